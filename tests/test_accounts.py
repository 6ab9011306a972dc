"""What a memory tells people of all of it at once, and of what has changed since a moment."""

import pytest

from evokernel.attempt import Stage
from evokernel.evaluation import Interval, Promotion
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.revision import Revision
from evokernel.memory.store import Memory
from evokernel.memory.technique_table import TechniqueUse
from tests.memory_samples import BAD, GOOD, config, edit, experience, graph, keep, lesson, query

OLD, NEW = lesson("tiling"), lesson("unrolling", run="later", payload={"source": "another"})
CLAIM = edit("vectorized-loads", parents=("sha-tiling",))
BOUNDARY = 2_000_000_000.0


@pytest.fixture(scope="module")
def memory():
    """One that had a lesson and a claim, and then a promotion, a lesson, rewards and a note."""
    with Memory.open(config()) as memory:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("time.time", lambda: BOUNDARY - 100)
            keep(memory, OLD, CLAIM)
            memory.recall(query("1"))
            memory.reinforce("new/1", Stage.REFINE, GOOD)
            patch.setattr("time.time", lambda: BOUNDARY + 100)
            _go_on(memory)
        yield memory


def _go_on(memory):
    ratio = Interval(value=1.3, low=1.2, high=1.4)
    claim = {"claim": "edit", "holds": True, "ratio": ratio, "processes": 3}
    promotion = Promotion(candidate="sha-vectorized-loads", parent=None, **claim)
    memory.promote("old", [promotion], "old/9")
    keep(memory, NEW)
    memory.recall(query("2", exclude=(NEW.id, CLAIM.id)))
    memory.reinforce("new/2", Stage.REFINE, BAD)
    memory.revise(OLD.id, Revision(note="mind the tail"), "I saw it")


def test_one_reading_tells_the_same_as_single_ones(memory):
    told = memory.account()
    assert [e.entry.experience.id for e in told.evidences] == [NEW.id, CLAIM.id, OLD.id]
    for evidence in told.evidences:
        alone = memory.evidence(evidence.entry.experience.id)
        assert alone.showings == evidence.showings
        assert alone.history == evidence.history
        assert alone.values == evidence.values
    assert told.changes is None
    assert told.stats.experiences == 3


def test_a_showing_says_when_and_in_which_run(memory):
    first, second = memory.evidence(OLD.id).showings
    assert (first.run, first.at, first.rewarded_at) == ("new", BOUNDARY - 100, BOUNDARY - 100)
    assert (second.at, second.reward) == (BOUNDARY + 100, BAD.value)


def test_what_is_new_is_told(memory):
    changes = memory.account(since=BOUNDARY).changes
    assert changes.added == (NEW.id,)
    (move,) = changes.moved
    assert (move.experience, move.before, move.after) == (CLAIM.id, "quarantine", "active")
    assert move.reason == "looked at again in 3 fresh processes"
    (revised,) = changes.revised
    assert (revised.experience, revised.change.note) == (OLD.id, "mind the tail")
    assert changes.rewards == 1


def test_values_are_told_as_they_were_and_as_they_are(memory):
    (change,) = memory.account(since=BOUNDARY).changes.values
    assert change.experience == OLD.id
    assert (change.before.visits, change.after.visits) == (1, 2)
    assert change.before.q == pytest.approx(0.12)
    assert change.after == memory.value(OLD.id, Stage.REFINE)


def test_techniques_are_told_as_they_were_and_as_they_are(memory):
    (change,) = memory.account(since=BOUNDARY).changes.techniques
    assert change.now.technique == "unrolling"
    assert (change.before.attempts, change.now.attempts) == (0, 1)


def test_nothing_has_changed_since_the_last_event(memory):
    assert memory.account(since=BOUNDARY + 101).changes.is_empty


def test_everything_has_changed_since_before_the_first(memory):
    changes = memory.account(since=0).changes
    assert set(changes.added) == {OLD.id, CLAIM.id, NEW.id}
    assert len(changes.moved) == 1


def test_what_was_withdrawn_leaves_the_techniques(tmp_path):
    with Memory.open(config(tmp_path)) as memory:
        (id,) = keep(memory, experience("tiling", kind="kernel"))
        told = memory.account(since=0).changes.techniques
        assert [change.now.attempts for change in told] == [1]
        since = memory.evidence(id).history[-1].at + 1e-6
        memory.set_status(id, ExperienceStatus.TOMBSTONE, "wrong")
        (change,) = memory.account(since=since).changes.techniques
        assert (change.before.attempts, change.now.attempts) == (1, 0)


def test_techniques_are_of_the_family_that_is_asked_about():
    with Memory.open(config()) as memory:
        keep(memory, OLD)
        memory.add([lesson("unrolling", family="scan")], "old/u", graph())
        told = memory.account(family="scan")
        assert [use.technique for use in told.techniques] == ["unrolling"]
        assert told.divided[0].family == "scan"


@pytest.mark.parametrize(
    ("passed", "tried", "low", "high"), [(0, 1, 0, 0.793), (1, 1, 0.207, 1), (5, 10, 0.237, 0.763)]
)
def test_a_share_has_the_interval_of_wilson(passed, tried, low, high):
    interval = TechniqueUse(technique="t", attempts=tried, feasible=passed).share_interval
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-3)
    assert interval.value == passed / tried


def test_what_was_never_tried_has_no_share():
    assert TechniqueUse(technique="t").share_interval is None
