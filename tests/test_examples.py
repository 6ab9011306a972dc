"""Every Python example of the pages runs as it stands, one after the other, as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def examples(page: str) -> list[str]:
    """The Python blocks of a page."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def ran(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("python.md", ("all 2 attempts are spent", "passed", "['1'] 1 1")),
        ("langgraph.md", ("began", "use ", "candidate draft", "approval {'eager'", "True")),
    ],
)
def test_examples_run_as_they_stand(tmp_path, warm, page, words):
    """In a folder of their own; the sentences that a reader would check are printed."""
    file = tmp_path / "page.py"
    file.write_text("\n".join(examples(page)))
    said = ran(tmp_path, file.name)
    for word in words:
        assert word in said
