"""Triton candidates of every built-in task are right on a GPU, at odd sizes and at their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


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
    assert all(e.get("is_steady", True) for e in found), run.stdout
