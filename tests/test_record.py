"""A run folder stays readable whatever happens to its writer."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evokernel.attempt import Attempt, Candidate, Proposal, Stage, Usage
from evokernel.config import Budget, RunConfig, SearchConfig
from evokernel.errors import RecordError
from evokernel.evaluation import Interval, Promotion, Status
from evokernel.profile import Profile
from evokernel.record import RunRecord
from evokernel.testing import FakeClock, fake_evaluation, fake_graph, fake_kernel, fake_task

TASK = fake_task()


@pytest.fixture
def config(tmp_path):
    return RunConfig(task="add-one", runs=tmp_path / "runs", budget=Budget(attempts=5))


@pytest.fixture
def record(config):
    record = RunRecord.create(config, TASK, fake_graph(), {"torch": "2"}, FakeClock())
    yield record
    record.close()


def proposal(source: str, **more: object) -> Proposal:
    candidate = Candidate(source=source, backend="cpp")
    return Proposal(candidate=candidate, stage=Stage.DRAFT, **more)


def add_attempt(record: RunRecord, number: int, source: str) -> None:
    made = proposal(source)
    record.save_proposal(number, made)
    record.save_evaluation(number, fake_evaluation(made.candidate, TASK))
    evaluation, step = record.evaluation(number), f"{record.id}/{number}"
    attempt = Attempt(
        number=number, step=step, trajectory=0, proposal=made, evaluation=evaluation, reward=1.0
    )
    record.close_attempt(attempt)


def test_new_run_can_be_read_back(record, config):
    again = RunRecord.open(record.path)
    assert again.config == config
    assert again.task() == TASK
    assert again.graph() == fake_graph()
    assert again.header.environment == {"torch": "2"}
    assert (record.path / "task.py").read_text() == TASK.source


def test_id_is_time_task_and_chance(config):
    first = RunRecord.create(config, TASK, clock=FakeClock())
    second = RunRecord.create(config, TASK, clock=FakeClock())
    assert first.id.startswith("20270115-080000-add-one-")
    assert first.id != second.id


def test_id_of_an_odd_name_is_a_plain_file_name(config):
    record = RunRecord.create(config, TASK.model_copy(update={"name": "../Weird ö name/"}))
    assert record.path.parent == config.runs
    assert record.id.split("-", 2)[2].startswith("weird-name-")


def test_start_kernels_are_copied(config, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("# mine\n")
    search = SearchConfig(start=(mine,))
    record = RunRecord.create(config.model_copy(update={"search": search}), TASK)
    mine.unlink()
    assert record.start(1) == "# mine\n"


def test_missing_start_kernel_leaves_no_run(config, tmp_path):
    search = SearchConfig(start=(tmp_path / "absent.py",))
    with pytest.raises(RecordError, match=r"absent\.py` cannot be read.*ModelNew"):
        RunRecord.create(config.model_copy(update={"search": search}), TASK)
    assert not config.runs.exists()


def test_proposal_keeps_every_text(record):
    made = proposal(
        "x = 1\r\n# ü\n\n",
        prompt="ask\n",
        reply="tell",
        techniques=("a", "b"),
        usage=Usage(tokens_in=3, usd=None),
    )
    record.save_proposal(1, made)
    assert record.proposal(1) == made
    assert record.proposal(1).candidate.sha == made.candidate.sha
    folder = record.path / "attempts" / "001"
    assert (folder / "prompt.md").read_text() == "ask\n"
    assert "x = 1" not in (folder / "proposal.json").read_text()


def test_evaluation_comes_back_with_its_profile(record):
    evaluation = fake_evaluation(proposal(fake_kernel()).candidate, TASK)
    profile = Profile(bound_by="memory", roofline_share=0.5)
    whole = evaluation.model_copy(update={"profile": profile})
    record.save_evaluation(1, evaluation)
    assert record.evaluation(1) == evaluation
    record.save_profile(1, profile)
    assert record.evaluation(1) == whole
    record.save_evaluation(2, whole)
    assert record.evaluation(2) == whole


def test_step_counts_once_it_is_closed(record):
    assert record.next_number() == 1
    record.save_proposal(1, proposal(fake_kernel()))
    assert record.next_number() == 1
    assert record.attempts() == ()
    add_attempt(record, 1, fake_kernel())
    assert record.next_number() == 2
    record.close_in_vain(2, "draft")
    assert record.next_number() == 3
    add_attempt(record, 3, fake_kernel(2.0))
    for reader in (record, RunRecord.open(record.path)):
        assert [attempt.number for attempt in reader.attempts()] == [1, 3]
        assert reader.skipped() == ("draft",)
        assert reader.attempt(2) is None


def test_numbers_beyond_three_digits_stay_in_order(record):
    for number in (999, 1000):
        add_attempt(record, number, fake_kernel(number))
    assert [attempt.number for attempt in RunRecord.open(record.path).attempts()] == [999, 1000]
    assert record.next_number() == 1001


def test_best_is_the_fastest_feasible_one(record):
    assert record.best() is None
    add_attempt(record, 1, fake_kernel(0.1, Status.WRONG_VALUES))
    assert record.best() is None
    add_attempt(record, 2, fake_kernel(3.0))
    add_attempt(record, 3, fake_kernel(2.0))
    add_attempt(record, 4, fake_kernel(2.0))
    assert record.best().number == 3


def test_second_look_overrules_the_first(record):
    for number, median_ms in enumerate((2.0, 2.1, 2.2), start=1):
        add_attempt(record, number, fake_kernel(median_ms))
    first, second, _ = (a.proposal.candidate.sha for a in record.attempts())
    record.save_promotions((answer(first, 0.0, holds=False), answer(second, 4.6)))
    # Attempt 1 is refuted.
    assert record.best().number == 2
    record.save_promotions((answer(second, 4.0),))
    assert record.best().number == 3
    assert len(record.batches()) == 2
    assert RunRecord.open(record.path).promotions() == record.promotions()


def answer(candidate: str, ratio: float, holds: bool = True) -> Promotion:
    interval = Interval(value=ratio, low=ratio, high=ratio)
    return Promotion(
        candidate=candidate, parent=None, claim="kernel", holds=holds, ratio=interval, processes=3
    )


def test_best_folder_holds_the_kernel_and_why(record):
    add_attempt(record, 1, fake_kernel(2.0, techniques=("a",)))
    record.save_best(record.best())
    summary = json.loads((record.path / "best" / "summary.json").read_text())
    assert (record.path / "best" / "kernel.py").read_text() == fake_kernel(2.0, techniques=("a",))
    assert (summary["attempt"], summary["median_ms"]) == (1, 2.0)


def test_events_are_readable_at_once(record):
    seen = []
    record.on_event = seen.append
    record.event("one", text="ü\u2028\n")
    record.event("two", values=[1, None])
    assert list(RunRecord.open(record.path).events()) == seen
    assert [event["kind"] for event in seen] == ["one", "two"]


def test_event_that_is_still_being_written_is_left_out(record):
    record.event("whole")
    with (record.path / "events.jsonl").open("a") as file:
        file.write('{"kind": "ha')
    assert [event["kind"] for event in record.events()] == ["whole"]


def test_resumed_run_continues_after_a_torn_event(record):
    record.event("whole")
    with (record.path / "events.jsonl").open("a") as file:
        file.write('{"kind": "ha')
    record.close()
    again = RunRecord.resume(record.path)
    again.event("next")
    again.close()
    assert [event["kind"] for event in again.events()] == ["whole", "next"]


def test_time_adds_up_over_sessions(config):
    clock = FakeClock()
    record = RunRecord.create(config, TASK, clock=clock)
    clock.advance(5)
    record.event("a")
    clock.advance(2)  # until it was killed, which nobody noted
    record.close()
    clock.advance(1000)
    again = RunRecord.resume(record.path, clock)
    clock.advance(3)
    assert again.elapsed() == pytest.approx(8)
    again.close()


def test_run_is_locked_while_at_work(record):
    with pytest.raises(RecordError, match=rf"worked on by process {os.getpid()}"):
        RunRecord.resume(record.path)
    assert RunRecord.open(record.path).id == record.id
    record.close()
    RunRecord.resume(record.path).close()


def test_lock_ends_with_its_process(config):
    code = """
import os, sys
from pathlib import Path
from evokernel.config import RunConfig
from evokernel.record import RunRecord
from evokernel.testing import fake_task
record = RunRecord.create(RunConfig(task="x", runs=Path(sys.argv[1])), fake_task())
print(record.path, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, config.runs], stdout=subprocess.PIPE)
    RunRecord.resume(Path(done.stdout.decode().strip())).close()


@pytest.mark.parametrize("name", ["run.json", "task.json", "attempts/001/attempt.json"])
def test_damage_is_named(record, name):
    add_attempt(record, 1, fake_kernel())
    (record.path / name).write_text('{"id": 3')
    with pytest.raises(RecordError, match=rf"{name}` is damaged or from another version"):
        read_all(record.path)


def read_all(path: Path) -> None:
    record = RunRecord.open(path)
    record.task()
    record.attempts()


def test_other_folder_is_no_run(tmp_path):
    with pytest.raises(RecordError, match=r"not a run folder: expected `run\.json`"):
        RunRecord.open(tmp_path)


def test_place_that_cannot_be_written_is_named(config, tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RecordError, match=r"runs.*` cannot be written: .*; make room"):
        RunRecord.create(config, TASK)


def test_full_disk_spoils_nothing(config):
    """The limit on the size of files answers a write as a full disk does, in the middle of it."""
    code = """
import resource, signal, sys
from pathlib import Path
from evokernel.config import RunConfig
from evokernel.record import RunRecord
from evokernel.testing import fake_task
record = RunRecord.create(RunConfig(task="x", runs=Path(sys.argv[1])), fake_task())
print(record.path, flush=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
while True:
    record.event("long", text=300 * "x")
"""
    done = subprocess.run([sys.executable, "-c", code, config.runs], capture_output=True, text=True)
    assert "RecordError" in done.stderr
    assert "events.jsonl` cannot be written" in done.stderr
    path = Path(done.stdout.strip())
    assert len(list(RunRecord.open(path).events())) == 2
    again = RunRecord.resume(path)
    again.event("room again")
    again.close()
    assert [event["kind"] for event in again.events()] == ["long", "long", "room again"]


def test_file_is_replaced_whole_or_not_at_all(record):
    add_attempt(record, 1, fake_kernel(2.0))
    record.save_best(record.best())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    add_attempt(record, 2, fake_kernel(1.0, note=3000 * "x"))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(RecordError, match=r"kernel\.py` cannot be written"):
            record.save_best(record.best())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert (record.path / "best" / "kernel.py").read_text() == fake_kernel(2.0)
