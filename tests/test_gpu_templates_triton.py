"""Triton candidates of the built-in tasks are right on a GPU; the drafts at odd sizes all are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evokernel.task import Task


@pytest.mark.gpu
def test_every_task_is_right_in_every_precision(tmp_path: Path) -> None:
    program = Path(__file__).with_name("triton_on_gpu.py")
    limits = ["--build-s", "60", "--total-s", "110"]
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path), *limits], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    print(run.stdout)
    found = json.loads((tmp_path / "results.json").read_text())["candidates"]
    slow = [e for e in found if "TimeoutError" in e.get("error", "") and e["label"] != "draft"]
    faults = [e for e in found if "error" in e or not e.get("is_right", True)]
    faults = [e for e in faults if e not in slow]
    assert not faults, run.stdout
    odd = [e for e in found if e["odd"] and e["label"] == "draft" and "is_right" in e]
    judged = {(e["task"], e["precision"]) for e in odd}  # what found no time was not judged
    assert judged == {(name, p) for name in Task.names() for p in ("fp32", "bf16", "fp16")}
    assert all(e["is_right"] and e["is_steady"] for e in odd), run.stdout
    assert all(e.get("is_steady", True) for e in found), run.stdout
