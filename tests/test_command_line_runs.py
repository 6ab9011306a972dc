"""Real processes with real kernels: killed and resumed, and two at once on one memory.

Runs begin in Python where they are to have one baseline only: torch.compile would make each of a
dozen processes wait for half a minute. The command with both is run in tests/test_cli_run.py.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from evokernel.config import BenchConfig, Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.memory.store import Memory
from evokernel.record import RunRecord

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("warm")]

TASK = '''"""Doubles every element and adds one."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.randn(512, 1024)]
'''

DEADLY = """
import os, signal, sys
file, when = sys.argv[1:3]
is_over = False
def watch(event, given):
    global is_over
    if event == "os.kill":
        return
    is_named = event == "os.rename" and str(given[1]).endswith(file)
    if is_over or (is_named and when == "before"):
        os.kill(os.getpid(), signal.SIGKILL)
    is_over = is_named  # the next event of any kind comes after the rename
if file:
    sys.addaudithook(watch)
if sys.argv[3] == "begin":
    from evokernel import RunConfig, optimize
    config = RunConfig.model_validate_json(sys.argv[4])
    sys.exit(optimize(config.task, config).best is None)
sys.argv = ["evokernel", *sys.argv[3:]]
from evokernel.cli import main
sys.exit(main())
"""

# tests/test_resume.py kills at every node, with fakes; here each process has to start for real.
KILLS = [
    ("attempts/001/evaluation.json", "before"),
    ("attempts/002/evaluation.json", "after"),
    ("promotions/001.json", "after"),
]


class Bench:
    """A folder with a task, in which `evokernel` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = folder / "memory"
        (folder / "double.py").write_text(TASK)

    def command(self, *words: str, file: str = "", when: str = "") -> list[str]:
        return [sys.executable, "-c", DEADLY, file, when, *words]

    def begin(self, runs: str = "runs", attempts: int = 2) -> list[str]:
        config = RunConfig(
            task="double.py",
            runs=Path(runs),
            budget=Budget(attempts=attempts),
            search=SearchConfig(width=1),
            memory=MemoryConfig(path=self.memory),
            bench=BenchConfig(measurement="quick", baselines=("eager",)),
        )
        return ["begin", config.model_dump_json()]

    def call(self, words: list[str], file: str = "", when: str = "") -> subprocess.CompletedProcess:
        command = self.command(*words, file=file, when=when)
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False
        )


def test_killed_run_goes_on_as_if_it_never_was(tmp_path):
    bench = Bench(tmp_path)
    words = bench.begin()
    for file, when in KILLS:
        done = bench.call(words, file, when)
        assert done.returncode == -signal.SIGKILL, (file, when, done.stderr)
        (path,) = (tmp_path / "runs").iterdir()
        words = ["resume", str(path), "--json"]
    done = bench.call(words)
    assert done.returncode == 0, done.stderr
    record = RunRecord.open(path)
    assert [attempt.number for attempt in record.attempts()] == [1, 2]
    measured = Counter(e["number"] for e in record.events() if e["kind"] == "evaluated")
    assert measured[1] == 1  # the measurement that was killed before it was stored says nothing
    assert measured[2] <= 1  # killed between storing and saying so
    assert record.best()
    assert json.loads(done.stdout.splitlines()[-1])
    with Memory.open(MemoryConfig(path=bench.memory)) as memory:
        assert sum(stage.rewards for stage in memory.stats().stages) == 2
        kernels = memory.list(kind="kernel", run=record.id)
        assert len(kernels) == sum(a.evaluation.status.is_feasible for a in record.attempts())
    assert no_process_mentions(str(tmp_path))


def no_process_mentions(text: str) -> bool:
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return text not in found.stdout


def test_two_runs_share_a_memory(tmp_path):
    bench = Bench(tmp_path)
    running = [
        subprocess.Popen(
            bench.command(*bench.begin(runs, attempts=1)),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for runs in ("one", "two")
    ]
    done = [process.communicate(timeout=500) for process in running]
    assert [process.returncode for process in running] == [0, 0], done
    with Memory.open(MemoryConfig(path=bench.memory)) as memory:
        assert sum(stage.rewards for stage in memory.stats().stages) == 2
        for runs in ("one", "two"):
            (path,) = (tmp_path / runs).iterdir()
            record = RunRecord.open(path)
            assert len(record.attempts()) == 1
            steps = {entry.experience.origin.step for entry in memory.list(run=record.id)}
            assert steps == {attempt.step for attempt in record.attempts()}


def test_stopped_command_says_how_to_go_on(tmp_path):
    bench = Bench(tmp_path)
    process = subprocess.Popen(
        bench.command("run", "double.py", "--quick", "--json"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        if json.loads(line)["kind"] == "phase":
            break
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    (path,) = (tmp_path / "runs").iterdir()
    assert f"`evokernel resume {path.relative_to(tmp_path)}` goes on from here" in said
    assert "Traceback" not in said
