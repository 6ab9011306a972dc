"""Every Python example of the pages runs as it stands, one after the other, as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def examples(pages: str) -> list[str]:
    """The Python blocks of some pages."""
    text = "\n".join((ROOT / "docs" / page).read_text() for page in pages.split())
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def ran(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("pages", "words"),
    [
        (
            # Together in one process: importing torch takes seconds.
            "python.md tutorial/own-model.md howto/own-backend.md reference/settings.md",
            ("all 2 attempts are spent", "passed", "['1'] 1 1", "4 the proposer has nothing new"),
        ),
        ("langgraph.md", ("began", "use ", "candidate draft", "approval {'eager'", "True")),
    ],
)
def test_examples_run_as_they_stand(tmp_path, warm, pages, words):
    """In a folder of their own; the sentences that a reader would check are printed."""
    file = tmp_path / "page.py"
    file.write_text("\n".join(examples(pages)))
    said = ran(tmp_path, file.name)
    for word in words:
        assert word in said


SMALL = (
    "--quick",
    "--attempts",
    "1",
    "--top",
    "1",
    "--width",
    "64",
    "--tokens",
    "32",
    "--depth",
    "1",
)


@pytest.mark.slow
def test_pipeline_goes_from_profile_to_patched_model(tmp_path, warm):
    said = ran(tmp_path, str(ROOT / "examples" / "pipeline.py"), *SMALL, "--rounds", "3")
    assert "profile: share of the time of all parts" in said
    assert re.search(r"end to end: [\d.]+ ms -> [\d.]+ ms, [\d.]+x", said)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda", "triton"])
def test_pipeline_on_a_gpu(tmp_path, warm, backend):
    pipeline = str(ROOT / "examples" / "pipeline.py")
    said = ran(tmp_path, pipeline, "--backend", backend, "--attempts", "3", "--rounds", "10")
    assert re.search(r"patched [1-9]\d* parts", said)
    assert "calls outside of what was verified: 0" in said
