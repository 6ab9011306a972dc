"""Real processes with real kernels: killed and resumed, and two at once on one memory.

Runs begin in Python where they are to have one baseline only: torch.compile would make each of a
dozen processes wait for half a minute. The command with both is run, and stopped by Ctrl-C, in
tests/test_cli_run.py.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from evokernel.config import BenchConfig, Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.memory.store import Memory
from evokernel.record import RunRecord

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

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

LAUNCHER = f"""
import json, os, sys
import langgraph.graph, torch.export, torch._dynamo
import evokernel.bench.evaluator, evokernel.graphs.workflow, evokernel.memory.store
for line in sys.stdin:
    order = json.loads(line)
    if pid := order.get("wait"):
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    os.chdir(order["folder"])
    os.environ.update(order["environment"])
    for number, name in enumerate(("/dev/null", order["out"], order["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    sys.argv = ["-c", *order["words"]]
    exec({DEADLY!r}, {{"__name__": "__main__"}})
"""
"""Forks a process for each order: one that is started anew imports the same things for seconds."""

# tests/test_resume.py kills at every node, with fakes; here each process does everything anew.
KILLS = [
    ("attempts/001/evaluation.json", "before"),
    ("attempts/002/evaluation.json", "after"),
    ("promotions/001.json", "after"),
]


class Running(NamedTuple):
    """A process that was started, and where its output goes."""

    pid: int
    out: Path
    err: Path


class Bench:
    """A folder with a task, in which `evokernel` is called."""

    def __init__(self, folder: Path, launcher: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.memory = folder / "memory"
        self._launcher = launcher
        self._numbers = count()
        (folder / "double.py").write_text(TASK)

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

    def start(self, words: list[str], file: str = "", when: str = "") -> Running:
        number = next(self._numbers)
        out, err = (self.folder / f"{name}-{number}.txt" for name in ("out", "err"))
        own = {"EVOKERNEL_HOME": os.environ["EVOKERNEL_HOME"]}
        told = {"folder": self.folder, "out": out, "err": err, "environment": own}
        told |= {"words": [file, when, *words]}
        return Running(self._asked(told), out, err)

    def wait(self, running: Running) -> subprocess.CompletedProcess[str]:
        code = self._asked({"wait": running.pid})
        out, err = running.out.read_text(), running.err.read_text()
        return subprocess.CompletedProcess((), code, out, err)

    def call(
        self, words: list[str], file: str = "", when: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return self.wait(self.start(words, file, when))

    def _asked(self, order: dict[str, object]) -> int:
        assert self._launcher.stdin
        assert self._launcher.stdout
        print(json.dumps(order, default=str), file=self._launcher.stdin, flush=True)
        return int(self._launcher.stdout.readline())


@pytest.fixture(scope="module")
def launcher() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", LAUNCHER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as started:
        yield started


@pytest.fixture
def bench(tmp_path: Path, warm: None, launcher: subprocess.Popen[str]) -> Bench:
    return Bench(tmp_path, launcher)


def test_killed_run_goes_on_as_if_it_never_was(bench, tmp_path):
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


def test_two_runs_share_a_memory(bench, tmp_path):
    running = [bench.start(bench.begin(runs, attempts=1)) for runs in ("one", "two")]
    done = [bench.wait(process) for process in running]
    assert [process.returncode for process in done] == [0, 0], done
    with Memory.open(MemoryConfig(path=bench.memory)) as memory:
        assert sum(stage.rewards for stage in memory.stats().stages) == 2
        for runs in ("one", "two"):
            (path,) = (tmp_path / runs).iterdir()
            record = RunRecord.open(path)
            assert len(record.attempts()) == 1
            steps = {entry.experience.origin.step for entry in memory.list(run=record.id)}
            assert steps == {attempt.step for attempt in record.attempts()}
