"""A run that is killed at any moment goes on as if it never had been: nothing twice, nothing lost.

The victims are real processes. An audit hook watches them rename files into place, which is how
every durable write of a run ends, and kills them right before or right after a named one.
"""

import multiprocessing
import os
import resource
import signal
import sqlite3
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.errors import EvoKernelError, RecordError
from evokernel.evaluation import Status
from evokernel.graphs.workflow import require_checkpoint
from evokernel.memory.store import Memory
from evokernel.optimize import RunResult, RunStopped, optimize, resume
from evokernel.proposers import Request
from evokernel.record import RunRecord
from evokernel.testing import (
    CallLog,
    FakeEvaluator,
    ScriptedProposer,
    fake_graph,
    fake_kernel,
    fake_task,
)

ATTEMPTS = 4
SOURCES = {
    1: fake_kernel(5.0),
    2: fake_kernel(4.0),
    3: fake_kernel(status=Status.COMPILE_ERROR),
    4: fake_kernel(3.0),
}
WRITES = [
    "baselines.json",
    "attempts/001/proposal.json",
    "attempts/001/compiled.json",
    "attempts/001/evaluation.json",
    "attempts/001/profile.json",
    "attempts/001/attempt.json",
    "attempts/002/plan.json",
    "attempts/002/proposal.json",
    "promotions/001.json",
    "promotions/003.json",
]
"""Every kind of durable write, each node at least once: the third attempt fails to compile, the
second and the fourth are new best kernels."""


def write(request: Request) -> str:
    """A script that a resumed process continues: it depends on the step alone."""
    return SOURCES[int(request.step.rpartition("/")[2])]


class Place:
    """Where one test's run, memory and notes of calls lie; shared by victim and successor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = CallLog(folder / "calls.txt")

    def begin(self, **more: object) -> RunResult:
        config = RunConfig(
            task="add-one",
            runs=self.folder / "runs",
            budget=Budget(attempts=ATTEMPTS),
            search=SearchConfig(width=1, recombine=0.0),
            memory=MemoryConfig(path=self.folder / "memory"),
        )
        given = {"graph": fake_graph(), **self.services(), **more}
        return optimize(fake_task(), config, **given)

    def go_on(self) -> RunResult:
        result = resume(self.run(), **self.services())
        assert result.reason == f"all {ATTEMPTS} attempts are spent"
        return result

    def services(self) -> dict:
        return {
            "evaluator": FakeEvaluator(fake_task(), self.log),
            "proposer": ScriptedProposer(write, self.log),
        }

    def run(self) -> Path:
        (path,) = (self.folder / "runs").iterdir()
        return path


def kill_at(file: str, when: str) -> None:
    """Kill this process right before or right after `file` is renamed into place."""
    is_over = False

    def watch(event: str, given: tuple) -> None:
        nonlocal is_over
        if event == "os.kill":
            return
        is_named = event == "os.rename" and str(given[1]).endswith(file)
        if is_over or (is_named and when == "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        # The event comes before the rename itself; the next event of any kind comes after it.
        is_over = is_named

    sys.addaudithook(watch)


def victim(folder: Path, file: str, when: str) -> None:
    kill_at(file, when)
    Place(folder).begin()


def successor(folder: Path, file: str = "", when: str = "") -> None:
    if file:
        kill_at(file, when)
    Place(folder).go_on()


@pytest.fixture(scope="module")
def processes():
    """Processes that share what is costly to import, but no thread and no open file."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["chromadb", "evokernel.graphs.workflow", "evokernel.memory.store", "evokernel.testing"]
    )
    return context


def outcome(processes, target, *given) -> int:
    process = processes.Process(target=target, args=given)
    process.start()
    process.join(60)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def assert_whole(place: Place, repeated: Counter) -> None:
    """Assert that the run is the one that was never killed, but for the calls that may repeat."""
    record = RunRecord.open(place.run())
    attempts = record.attempts()
    assert [a.proposal.candidate.source for a in attempts] == list(SOURCES.values())
    assert [a.reward for a in attempts] == [
        1.0,
        pytest.approx(0.2195, abs=1e-4),
        -1.0,
        attempts[3].reward,
    ]
    assert record.best().number == 4
    assert (record.path / "best" / "kernel.py").read_text() == SOURCES[4]
    twice = Counter({call: n - 1 for call, n in place.log.counts().items() if n > 1})
    assert twice <= repeated, f"{twice} happened again"
    with Memory.open(MemoryConfig(path=place.folder / "memory")) as memory:
        assert sum(stage.rewards for stage in memory.stats().stages) == ATTEMPTS
        kinds = Counter(entry.experience.kind for entry in memory.list())
        assert kinds == {"kernel": 3, "edit": 2, "lesson": 1}
        # A kernel that is much like another one gives way to it when the memory is closed.
        assert {entry.status.value for entry in memory.list()} <= {"active", "retired"}
        assert len(memory.start_points(record.id)) == 3


def may_repeat(place: Place, file: str, when: str) -> Counter:
    """Name what is lost with a process that is killed between finishing a call and storing it."""
    if when == "after" or not place.log.lines():
        return Counter()
    last = place.log.lines()[-1]
    if last.startswith("promote"):
        return Counter(line for line in place.log.lines() if line.startswith("promote"))
    return Counter({last: 1})


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("file", WRITES)
def test_killed_run_goes_on_as_if_it_never_was(tmp_path, processes, file, when):
    place = Place(tmp_path)
    assert outcome(processes, victim, tmp_path, file, when) == -signal.SIGKILL
    exists = (place.run() / file).exists()
    assert exists == (when == "after") or file.startswith("best/")
    allowed = may_repeat(place, file, when)
    assert outcome(processes, successor, tmp_path) == 0
    assert_whole(place, allowed)


MEMORY_WRITES = [
    "recall",
    "add",
    "record_start",
    "reinforce",
    "choose_start",
    "reward_start",
    "promote",
]


class FragileMemory(Memory):
    """Kills its process right after a named write of the second step, or the first promotion."""

    fatal = ""

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name != FragileMemory.fatal:
            return found

        def write_and_die(*given: object, **more: object) -> object:
            result = found(*given, **more)
            if name == "promote" or any(str(value).endswith("/2") for value in stamps(given)):
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return write_and_die


def stamps(given: tuple) -> list[str]:
    """The step ids among a call's arguments."""
    return [getattr(value, "step", value) for value in given]


def victim_of_memory(folder: Path, method: str) -> None:
    FragileMemory.fatal = method
    place = Place(folder)
    with FragileMemory.open(MemoryConfig(path=folder / "memory")) as memory:
        place.begin(memory=memory)


@pytest.mark.parametrize("method", MEMORY_WRITES)
def test_memory_counts_a_step_once_wherever_the_process_dies(tmp_path, processes, method):
    place = Place(tmp_path)
    assert outcome(processes, victim_of_memory, tmp_path, method) == -signal.SIGKILL
    assert outcome(processes, successor, tmp_path) == 0
    assert_whole(place, Counter())


def test_run_that_is_killed_again_and_again_finishes(tmp_path, processes):
    place = Place(tmp_path)
    assert outcome(processes, victim, tmp_path, "001/evaluation.json", "after") == -signal.SIGKILL
    for file, when in [
        ("001/attempt.json", "before"),
        ("001/attempt.json", "after"),
        ("best/kernel.py", "before"),
        ("002/proposal.json", "after"),
        ("promotions/001.json", "after"),
        ("promotions/003.json", "after"),
    ]:
        assert outcome(processes, successor, tmp_path, file, when) == -signal.SIGKILL
    assert outcome(processes, successor, tmp_path) == 0
    assert_whole(place, Counter())


def test_finished_run_is_left_as_it_is(tmp_path):
    place = Place(tmp_path)
    first = place.begin()
    calls = place.log.lines()
    again = place.go_on()
    assert again == first
    assert place.log.lines() == calls


def test_run_at_work_is_not_resumed_by_a_second_process(tmp_path, processes):
    place = Place(tmp_path)
    process = processes.Process(target=sleeper, args=(tmp_path,))
    process.start()
    wait_for(tmp_path / "asleep")
    with pytest.raises(RecordError, match=rf"worked on by process {process.pid}"):
        place.go_on()
    process.kill()
    process.join()
    place.go_on()
    assert_whole(place, Counter())


def sleeper(folder: Path) -> None:
    """Fall asleep in the middle of the second measurement."""

    def pause(call: str) -> None:
        if call == "verify" and place.log.number("verify") == 1:
            (folder / "asleep").touch()
            time.sleep(600)

    place = Place(folder)
    place.begin(evaluator=FakeEvaluator(fake_task(), place.log, before=pause))


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_stopped_run_says_how_to_go_on(tmp_path, processes, name):
    place = Place(tmp_path)
    process = processes.Process(target=stopped, args=(tmp_path,))
    process.start()
    wait_for(tmp_path / "asleep")
    os.kill(process.pid, getattr(signal, name))
    process.join(60)
    assert process.exitcode == 130
    path = place.run()
    said = (tmp_path / "said").read_text()
    assert said == f"stopped; `evokernel resume {path}` goes on from here"
    assert [event["kind"] for event in RunRecord.open(path).events()][-1] == "stopped"
    place.go_on()
    assert_whole(place, Counter())


def stopped(folder: Path) -> None:
    try:
        sleeper(folder)
    except RunStopped as stop:
        (folder / "said").write_text(str(stop))
        os._exit(130)


# -- checkpoints that cannot be used ---------------------------------------------------------------


@pytest.fixture
def interrupted(tmp_path):
    """A run that stopped in its second attempt, and no process."""
    place = Place(tmp_path)

    def fail(call: str) -> None:
        if call == "verify" and place.log.number("verify") == 1:
            raise KeyboardInterrupt

    with pytest.raises(RunStopped):
        place.begin(evaluator=FakeEvaluator(fake_task(), place.log, before=fail))
    return place


def test_absent_checkpoint_is_not_a_fresh_start(interrupted):
    calls = interrupted.log.lines()
    for path in interrupted.run().glob("checkpoints.sqlite*"):
        path.unlink()
    with pytest.raises(
        RecordError, match=r"has no checkpoint .*: its 1 attempts are intact"
    ) as caught:
        interrupted.go_on()
    assert caught.value.exit_code == 2
    assert interrupted.log.lines() == calls
    assert not (interrupted.run() / "checkpoints.sqlite").exists()


def test_empty_checkpoint_is_absent(interrupted):
    for path in interrupted.run().glob("checkpoints.sqlite*"):
        path.unlink()
    sqlite3.connect(interrupted.run() / "checkpoints.sqlite").close()
    with pytest.raises(RecordError, match="has no checkpoint"):
        interrupted.go_on()


def test_run_that_never_took_a_step_says_so(tmp_path):
    config = RunConfig(task="add-one", runs=tmp_path / "runs")
    record = RunRecord.create(config, fake_task())
    record.close()
    with pytest.raises(RecordError, match="stopped before its first step, so begin it anew"):
        resume(record.path)


@pytest.mark.parametrize("damage", ["rubbish", "page", "state"])
def test_damaged_checkpoint_is_not_a_fresh_start(interrupted, damage):
    path = interrupted.run() / "checkpoints.sqlite"
    if damage == "rubbish":
        path.write_bytes(b"rubbish" * 1000)
    elif damage == "page":
        content = bytearray(path.read_bytes())
        content[4096:8192] = os.urandom(4096)
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as file:
            file.execute("UPDATE checkpoints SET checkpoint = x'c1c1c1'")
        file.close()
    with pytest.raises(
        RecordError, match=r"checkpoints\.sqlite` is damaged .*begin a new run"
    ) as caught:
        interrupted.go_on()
    assert caught.value.exit_code == 2


def test_locked_checkpoint_is_named(interrupted):
    other = sqlite3.connect(interrupted.run() / "checkpoints.sqlite", isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(RecordError, match=r"checkpoints\.sqlite` is locked by another program"):
        require_checkpoint(RunRecord.open(interrupted.run()), wait_s=0.1)
    other.close()
    interrupted.go_on()
    assert_whole(interrupted, Counter())


# -- a full disk, and two runs at once -------------------------------------------------------------


def cramped(folder: Path, size: int) -> None:
    """Begin a run in which no file may grow beyond `size` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        Place(folder).begin()
    except EvoKernelError as error:
        (folder / "said").write_text(str(error), "utf-8")
        os._exit(10 + error.exit_code)


@pytest.mark.parametrize("size", [3_000, 60_000, 100_000, 140_000])
def test_full_disk_loses_nothing(tmp_path, processes, size):
    place = Place(tmp_path)
    code = outcome(processes, cramped, tmp_path, size)
    said = (tmp_path / "said").read_text()
    if code == 12:  # before the run was under way: there is none
        assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())
        return
    assert code == 11, said
    list(RunRecord.open(place.run()).events())
    place.go_on()
    assert_whole(place, Counter(place.log.lines()))


def test_two_runs_share_a_memory(tmp_path, processes):
    places = [tmp_path / "one", tmp_path / "two"]
    for folder in places:
        folder.mkdir()
        (folder / "memory").symlink_to(tmp_path / "memory")
    (tmp_path / "memory").mkdir()
    running = [processes.Process(target=plain_run, args=(folder,)) for folder in places]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
    assert [process.exitcode for process in running] == [0, 0]
    with Memory.open(MemoryConfig(path=tmp_path / "memory")) as memory:
        assert sum(stage.rewards for stage in memory.stats().stages) == 2 * ATTEMPTS
        for folder in places:
            run = Place(folder).run().name
            kinds = Counter(entry.experience.kind for entry in memory.list(run=run))
            assert kinds == {"kernel": 3, "edit": 2, "lesson": 1}
            assert len(memory.start_points(run)) == 3


def plain_run(folder: Path) -> None:
    Place(folder).begin()
