"""A kernel found bad later: it is withdrawn, what was made from it is suspect, values are anew."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evokernel.attempt import Stage
from evokernel.cli import main
from evokernel.config import BenchConfig, Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.errors import StoreError
from evokernel.memory.embedding import StructuralEmbedder
from evokernel.memory.experience import Experience, ExperienceStatus
from evokernel.memory.journal import Journal
from evokernel.memory.retraction import Discount, Yardstick
from evokernel.memory.rewards import Reward
from evokernel.memory.standing import reinstate, retract, standing
from evokernel.memory.store import Memory
from evokernel.memory.view import View
from evokernel.optimize import optimize
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_kernel, fake_task
from tests.memory_samples import command_line, config, edit, experience, graph, lesson, query

ACTIVE, QUARANTINE = ExperienceStatus.ACTIVE, ExperienceStatus.QUARANTINE
SUSPECT, TOMBSTONE = ExperienceStatus.SUSPECT, ExperienceStatus.TOMBSTONE

SHOWN = (lesson("one"), lesson("two"))
BAD = experience("bad", kind="kernel")
ITS_EDIT = edit("bad")
CHILD = edit("child", run="next", parents=("sha-bad",))
GRANDCHILD = edit("grandchild", run="third", parents=("sha-child",))
BESIDE = edit("beside", run="next", context=(BAD.id,))
LESSON = lesson("lesson", run="next", parents=("sha-bad",))
ALL = (*SHOWN, BAD, ITS_EDIT, CHILD, GRANDCHILD, BESIDE, LESSON)


def earned(value: float, best_ms: float = 2.0, latency_ms: float | None = 1.0) -> Reward:
    return Reward(
        value=value,
        feasible=latency_ms is not None,
        latency_ms=latency_ms,
        best_ms=best_ms,
        parent_ms=best_ms,
    )


def fill(memory: Memory, *experiences: Experience) -> None:
    for one in experiences:
        memory.add([one], one.origin.step, graph())
        if memory.get(one.id).status is QUARANTINE:
            memory.set_status(one.id, ACTIVE, "confirmed")


def told(memory: Memory, step: str, reward: Reward, run: str = "old") -> tuple[str, ...]:
    """One step of a run: shown something, then rewarded."""
    found = memory.recall(query(step, run=run)).ids
    memory.reinforce(f"{run}/{step}", Stage.REFINE, reward)
    return found


def values(memory: Memory) -> dict[str, tuple[float, int]]:
    found = {one.id: memory.value(one.id, Stage.REFINE) for one in SHOWN}
    return {id: (value.q, value.visits) for id, value in found.items()}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Memory.open(config(tmp_path)) as memory:
        fill(memory, *SHOWN)
        assert set(told(memory, "before", earned(0.1, latency_ms=1.9))) == {o.id for o in SHOWN}
        told(memory, "bad", earned(0.9, best_ms=1.9, latency_ms=0.5))
        told(memory, "after", earned(-0.8, best_ms=0.5, latency_ms=1.7))
        told(memory, "elsewhere", earned(0.2), run="next")
        fill(memory, *ALL[len(SHOWN) :])
    return tmp_path


class Watched(Journal):
    """Counts how often the whole reward log is read."""

    looks = 0

    def yardsticks(self) -> list[Yardstick]:
        self.looks += 1
        return super().yardsticks()


def forget(place: Path, id: str = BAD.id, **more: bool) -> None:
    with Memory.open(config(place)) as memory:
        memory.forget(memory.withdrawal([id], **more), "wrong on odd sizes")


class TestValues:
    def test_what_it_earned_leaves_the_fold_and_what_was_measured_against_it(self, place):
        with Memory.open(config()) as other:  # as if the bad kernel never had been
            fill(other, *SHOWN)
            told(other, "before", earned(0.1, latency_ms=1.9))
            told(other, "elsewhere", earned(0.2), run="next")
            expected = values(other)
        with Memory.open(config(place)) as memory:
            assert values(memory)[SHOWN[0].id][1] == 4
            memory.forget(memory.withdrawal([BAD.id]), "wrong")
            assert values(memory) == expected
            shown = memory.evidence(SHOWN[0].id).showings
            assert [s.counts for s in shown] == [True, False, False, True]
        with Memory.open(config(place)) as memory:  # from the snapshot, and from the first event
            assert values(memory) == expected
            assert memory.refit().changes == ()
            assert memory.refit().rewards == 2

    def test_another_process_learns_of_it(self, place):
        with Memory.open(config(place)) as one:
            before = values(one)
            forget(place)
            assert values(one) != before
            told(one, "later", earned(0.3), run="next")
            counted = values(one)[SHOWN[0].id][1]
        assert counted == 3

    def test_steps_are_told_by_their_run_and_the_best_time(self):
        known = [
            Yardstick("a/1", None, 4.0),
            Yardstick("a/2", 4.0, 1.0),
            Yardstick("a/3", 1.0, 2.0),
            Yardstick("a/4", 1.0, None),
            Yardstick("b/5", 1.0, 2.0),
        ]
        assert Discount({"a/2"}, known).steps == {"a/2", "a/3", "a/4"}
        assert Discount((), known).steps == frozenset()
        later = Discount({"a/2"}, known[:2])
        assert later.take_in(known[2:])
        assert later.steps == {"a/2", "a/3", "a/4"}
        unknown = Discount({"a/2"}, known[2:])
        assert not unknown.take_in(known[:2])
        assert unknown.steps == {"a/2"}

    def test_the_reward_log_is_read_again_only_after_another_retraction(self, place):
        forget(place)
        journal = Watched.open(place)
        view = View(config(place), journal, None, StructuralEmbedder())
        seen = [view.value(SHOWN[0].id, Stage.REFINE).visits]
        with Memory.open(config(place)) as memory:
            for number in range(3):
                told(memory, f"more-{number}", earned(-0.5, best_ms=0.5))
                told(memory, f"else-{number}", earned(0.3), run="next")
                seen.append(view.value(SHOWN[0].id, Stage.REFINE).visits)
            assert memory.refit().changes == ()
            assert view.value(SHOWN[0].id, Stage.REFINE) == memory.value(SHOWN[0].id, Stage.REFINE)
        journal.close()
        assert seen == [2, 3, 4, 5]
        assert journal.looks == 1


class TestStatus:
    def test_the_same_source_goes_and_descendants_by_parents_are_suspect(self, place):
        forget(place)
        with Memory.open(config(place)) as memory:
            found = {e.experience.id: e.status for e in memory.list()}
            assert {id for id, s in found.items() if s is TOMBSTONE} == {BAD.id, ITS_EDIT.id}
            suspects = {CHILD.id, GRANDCHILD.id, LESSON.id}
            assert {id for id, s in found.items() if s is SUSPECT} == suspects
            assert found[BESIDE.id] is ACTIVE
            assert memory.get(CHILD.id).reason == (
                "made from what was withdrawn: wrong on odd sizes"
            )
            pool = {item.id for item in memory.recall(query("9")).pool}
            assert not pool & {BAD.id, ITS_EDIT.id, *suspects}

    def test_a_second_time_changes_nothing(self, place):
        forget(place)
        with Memory.open(config(place)) as memory:
            memory.reinstate([CHILD.id], "right after all")
            before = memory.list(), values(memory)
            plan = memory.withdrawal([BAD.id])
            assert (plan.ids, plan.suspects, plan.gone) == ((), (), (BAD.id,))
            memory.forget(plan, "again")
            assert (memory.list(), values(memory)) == before

    def test_what_is_pinned_stays(self, place):
        with Memory.open(config(place)) as memory:
            memory.pin(CHILD.id)
        forget(place)
        with Memory.open(config(place)) as memory:
            assert memory.get(CHILD.id).status is ACTIVE
            assert memory.get(GRANDCHILD.id).status is SUSPECT

    def test_suspicion_ends_with_the_status_before(self, place):
        forget(place)
        with Memory.open(config(place)) as memory:
            assert memory.reinstate([CHILD.id, BESIDE.id], "looked at again") == (CHILD.id,)
            assert memory.get(CHILD.id).status is ACTIVE
            assert memory.get(CHILD.id).reason == "looked at again"
            assert memory.get(GRANDCHILD.id).status is SUSPECT
            with pytest.raises(StoreError, match="was withdrawn for good"):
                memory.reinstate([BAD.id], "no")

    def test_it_survives_a_rebuild_of_the_index(self, place):
        pytest.importorskip("chromadb")
        forget(place)
        with Memory.open(config(place)) as memory:
            before = values(memory)
            memory.rebuild()
        with Memory.open(config(place), exact_limit=0) as memory:
            pool = {item.id for item in memory.recall(query("9")).pool}
            assert pool
            assert not pool & {BAD.id, ITS_EDIT.id, CHILD.id, GRANDCHILD.id, LESSON.id}
            assert values(memory) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from evokernel.config import MemoryConfig
from evokernel.memory import rows, store, transaction
place, id, limit = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
count = 0
append = transaction.Transaction.append_once
def counted(self, table, columns):
    global count
    if count == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    count += 1
    return append(self, table, columns)
transaction.Transaction.append_once = counted
memory = store.Memory.open(MemoryConfig(path=place))
memory.forget(memory.withdrawal([id]), "wrong")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("limit", "is_done"), [(0, False), (3, False), (99, True)])
def test_killed_in_the_middle_it_is_done_or_not_begun(place, limit, is_done):
    command = [sys.executable, "-c", KILLED, str(place), BAD.id, str(limit)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    with Memory.open(config(place)) as memory:
        statuses = [memory.get(one.id).status for one in (BAD, ITS_EDIT, CHILD, GRANDCHILD)]
        assert statuses == ([TOMBSTONE] * 2 + [SUSPECT] * 2 if is_done else [ACTIVE] * 4)
        assert values(memory)[SHOWN[0].id][1] == (2 if is_done else 4)
    forget(place)
    with Memory.open(config(place)) as memory:
        assert memory.get(GRANDCHILD.id).status is SUSPECT
        assert values(memory)[SHOWN[0].id][1] == 2


def test_a_candidate_is_asked_for_by_its_hash(place, tmp_path):
    assert standing(place, "sha-bad").in_words() == ""
    gone = retract(place, "sha-bad", "wrong on odd sizes")
    assert gone is not None
    assert set(gone.ids) == {BAD.id, ITS_EDIT.id}
    assert standing(place, "sha-bad").in_words() == "retracted: wrong on odd sizes"
    assert standing(place, "sha-child").in_words().startswith("suspect: made from")
    assert reinstate(place, "sha-child", "right") == (CHILD.id,)
    assert standing(place, "sha-child").in_words() == ""
    assert retract(place, "sha-nobody", "wrong") is None
    assert retract(tmp_path / "nowhere", "sha-bad", "wrong") is None
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "journal.sqlite").write_text("no database")
    assert "could not be asked" in standing(tmp_path / "torn", "sha-bad").in_words()


def test_the_commands(place, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = lambda *words: command_line(capsys, *words, "--memory", place)  # noqa: E731
    code, out = said("forget", BAD.id)
    assert code == 0
    assert "with `--because TEXT`, 2 experiences would be withdrawn for good, 3 suspect" in out
    code, out = said("forget", BAD.id, "--because", "wrong on odd sizes")
    assert "2 experiences withdrawn, 3 suspect" in out
    assert "becomes suspect" in out
    assert "(left out: retracted)" in said("show", SHOWN[0].id)[1]
    assert f"`{CHILD.id}` is active again" in said("reinstate", CHILD.id)[1]
    assert "was not suspect" in said("reinstate", CHILD.id)[1]
    assert said("reinstate", BAD.id)[0] == 2


# From a run to its retraction

WRONG = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 0.5
"""
TASK = fake_task()


def run(folder: Path, name: str, *sources: str) -> Path:
    """One run whose evaluator believes what kernels say of themselves."""
    given = iter(sources)
    config = RunConfig(
        task=TASK.name,
        runs=folder / name,
        budget=Budget(attempts=len(sources)),
        search=SearchConfig(width=1, recombine=0.0),
        memory=MemoryConfig(path=folder / "memory", epsilon=0.0),
        bench=BenchConfig(measurement="quick", baselines=("eager",)),
    )
    return optimize(
        TASK,
        config,
        evaluator=FakeEvaluator(TASK),
        proposer=ScriptedProposer(lambda request: next(given, None)),
        graph=fake_graph(),
    ).path


def cheat(median_ms: float, note: str) -> str:
    return fake_kernel(median_ms, note=note).partition("\n\n\n")[0] + "\n\n\n" + WRONG


@pytest.mark.usefixtures("warm")
def test_a_cheat_that_a_later_check_finds_is_shown_to_no_later_run(tmp_path, capsys):
    folder = run(tmp_path, "first", fake_kernel(5.0), cheat(0.1, "cheat"))
    place = tmp_path / "memory"
    bad = json.loads((folder / "best" / "summary.json").read_text())["candidate"]
    with Memory.open(config(place)) as memory:
        its = set(memory.about(bad))
        assert {memory.get(id).status for id in its} == {ACTIVE}
    second = run(tmp_path, "second", fake_kernel(4.0, note="honest"))
    with Memory.open(config(place)) as memory:
        assert its & {i for a in _shown(second) for i in a}

    assert main(["verify", str(folder)]) == 1
    assert "`--retract` withdraws it from memory" in capsys.readouterr().out
    assert main(["verify", str(folder), "--retract"]) == 1
    out = capsys.readouterr().out
    assert "right         no: wrong_values" in out
    assert "2 experiences withdrawn" in out
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    retracted = "Its best kernel is retracted: <code>evokernel verify</code> found it wrong_values"
    assert f'<p class="warning" role="alert">{retracted}' in page
    third = run(tmp_path, "third", fake_kernel(3.0, note="honest, too"))
    assert not its & {id for shown in _shown(third) for id in shown}
    capsys.readouterr()
    assert main(["verify", str(folder), "--retract", "--json"]) == 1
    assert "0 experiences withdrawn" in json.loads(capsys.readouterr().out)["memory"]


RAISES = WRONG.replace("return x + 0.5", "raise RuntimeError('no such instruction')")


@pytest.mark.usefixtures("warm")
def test_what_may_be_the_doing_of_another_machine_is_not_withdrawn(tmp_path, capsys):
    text = fake_kernel(0.1).partition("\n\n\n")[0] + "\n\n\n" + RAISES
    folder = run(tmp_path, "first", text)
    assert main(["verify", str(folder), "--retract"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "right no: runtime_error" in out
    assert "`runtime_error` may be the doing of this machine other than the one it was" in out
    bad = json.loads((folder / "best" / "summary.json").read_text())["candidate"]
    assert standing(tmp_path / "memory", bad).in_words() == ""


def _shown(folder: Path) -> list[tuple[str, ...]]:
    files = sorted(folder.glob("attempts/*/attempt.json"))
    return [tuple(json.loads(file.read_text())["shown"]) for file in files]
