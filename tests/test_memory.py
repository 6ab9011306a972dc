"""The memory from its front door: one contract, kept by the one on disk and the one in memory."""

import math
from typing import Any

import pytest

from evokernel.attempt import Stage
from evokernel.errors import ConfigError, StoreError
from evokernel.evaluation import Interval, Promotion
from evokernel.memory.choice import PoolItem
from evokernel.memory.embedding import Situation
from evokernel.memory.experience import Experience, ExperienceStatus, Measurement
from evokernel.memory.retrieval import GATE
from evokernel.memory.rewards import Reward
from evokernel.memory.store import Memory
from tests.memory_samples import (
    BAD,
    GOOD,
    config,
    edit,
    experience,
    graph,
    keep,
    lesson,
    query,
    shows,
)

ACTIVE, QUARANTINE = ExperienceStatus.ACTIVE, ExperienceStatus.QUARANTINE
SUSPECT, TOMBSTONE = ExperienceStatus.SUSPECT, ExperienceStatus.TOMBSTONE


def promotion(name: str, claim: str = "edit", holds: bool = True, **changes) -> Promotion:
    ratio = Interval(value=1.3, low=1.2, high=1.4)
    reason = "" if holds else "not confirmed"
    return Promotion(
        candidate=f"sha-{name}",
        parent=None,
        claim=claim,
        holds=holds,
        **{"ratio": ratio, "processes": 3, "reason": reason, **changes},
    )


def race(name: str, ms: float, speedup: Interval | None = None, **changes: Any) -> Experience:
    """A kernel that takes `ms` where eager takes 3."""
    ratio = speedup or Interval(value=3 / ms, low=2.9 / ms, high=3.1 / ms)
    measured = Measurement(median_ms=ms, speedup=ratio, device="d")
    return edit(name, **{"kind": "kernel", "measurement": measured, **changes})


def teach(memory: Memory, good: str, bad: str, steps: int = 4) -> None:
    """Show `good` in steps that go well and `bad` in steps that do not, each alone."""
    everything = {entry.experience.id for entry in memory.list()}
    for number in range(steps):
        for id, reward in ((good, GOOD), (bad, BAD)):
            step = f"teach-{number}-{id}"
            assert shows(memory, step, *(everything - {id})) == (id,)
            memory.reinforce(f"new/{step}", Stage.REFINE, reward)


class MemoryContract:
    """What every memory does, whatever it lies on."""

    @pytest.fixture
    def memory(self, where):
        with Memory.open(config(where)) as memory:
            yield memory

    @pytest.fixture
    def reopened(self, where):
        """Return a function that opens the same place under other settings."""
        opened = []

        def again(**changes) -> Memory:
            opened.append(Memory.open(config(where, **changes)))
            return opened[-1]

        yield again
        for memory in opened:
            memory.close()

    def test_an_empty_memory_shows_nothing_and_logs_it(self, memory):
        retrieval = memory.recall(query("1"))
        assert (retrieval.pool, retrieval.chosen) == ((), ())
        assert memory.stats().policies == {"evokernel": 1}

    def test_a_lesson_from_a_failure_is_active_at_once(self, memory):
        (id,) = keep(memory, lesson("A"))
        assert memory.get(id).status is ACTIVE
        assert shows(memory, "1") == (id,)

    @pytest.mark.parametrize("kind", ["kernel", "edit", "fix"])
    def test_claims_stay_in_their_own_run_until_promoted(self, memory, kind):
        (id,) = keep(memory, edit("A", kind=kind))
        assert memory.get(id).status is QUARANTINE
        assert shows(memory, "1", run="other") == ()
        assert shows(memory, "2", run="old") == (id,)
        assert memory.promote("old", [promotion("A", claim=kind)], "old/9") == (id,)
        assert memory.get(id).status is ACTIVE
        assert shows(memory, "3", run="other") == (id,)

    def test_a_lesson_that_claims_a_speed_waits_too(self, memory):
        slow = edit("A", kind="lesson", outcome="failure")
        assert memory.get(*keep(memory, slow)).status is QUARANTINE

    def test_promotion_brings_its_own_measurement(self, memory):
        (id,) = keep(memory, edit("A"))
        memory.promote("old", [promotion("A")], "old/9")
        measured = memory.get(id).experience.measurement
        assert (measured.speedup.value, measured.median_ms) == (1.3, 1.0)

    def test_promotion_may_turn_a_gain_into_a_loss(self, memory):
        (id,) = keep(memory, edit("A"))
        slower = Interval(value=0.9, low=0.8, high=0.95)
        memory.promote("old", [promotion("A", ratio=slower)], "old/9")
        assert memory.get(id).experience.outcome == "failure"

    @pytest.mark.parametrize("kind", ["kernel", "edit"])
    def test_a_rough_measurement_that_may_be_a_loss_is_no_win(self, memory, kind):
        (id,) = keep(memory, edit("A", kind=kind))
        maybe = Interval(value=1.1, low=0.9, high=1.4)
        rough = promotion("A", claim=kind, ratio=maybe, measurement="quick")
        assert memory.promote("old", [rough], "old/9") == ()
        entry = memory.get(id)
        assert (entry.status, entry.experience.measurement.speedup) == (QUARANTINE, maybe)
        assert "too roughly to tell a gain from a loss" in entry.reason
        assert shows(memory, "1", run="other") == ()

    def test_a_rough_measurement_that_tells_a_gain_is_believed(self, memory):
        (id,) = keep(memory, edit("A"))
        assert memory.promote("old", [promotion("A", measurement="quick")], "old/9") == (id,)

    def test_what_does_not_hold_is_suspect_and_hidden(self, memory):
        (id,) = keep(memory, edit("A"))
        assert memory.promote("old", [promotion("A", holds=False)], "old/9") == ()
        entry = memory.get(id)
        assert (entry.status, entry.reason) == (SUSPECT, "not confirmed")
        assert shows(memory, "1", run="old") == ()

    def test_a_promotion_means_its_run_candidate_and_claim(self, memory):
        ids = keep(memory, edit("A"), edit("A", run="b"), edit("B"), edit("A2", kind="kernel"))
        assert memory.promote("old", [promotion("A")], "old/9") == (ids[0],)
        assert [memory.get(id).status for id in ids[1:]] == [QUARANTINE] * 3

    def test_promotion_does_not_wake_the_dead(self, memory):
        (id,) = keep(memory, edit("A"))
        memory.set_status(id, TOMBSTONE, "a cheat")
        assert memory.promote("old", [promotion("A")], "old/9") == ()
        assert memory.get(id).status is TOMBSTONE

    def test_a_planted_experience_is_chosen_and_withdrawn_it_is_not(self, memory):
        good, bad, *_ = keep(memory, lesson("good"), lesson("bad"), lesson("C"), lesson("D"))
        teach(memory, good, bad)
        assert memory.value(good, Stage.REFINE).q > 0.5
        first = memory.recall(query("x")).chosen[0]
        assert first.experience.id == good
        memory.set_status(good, TOMBSTONE, "found to be a cheat")
        again = memory.recall(query("y"))
        assert good not in {item.id for item in again.pool}
        assert memory.get(good).reason == "found to be a cheat"
        assert memory.recall(query("x")).chosen[0] == first  # what was shown stays on record

    def test_a_value_of_one_stage_says_nothing_about_the_other(self, memory):
        good, bad = keep(memory, lesson("good"), lesson("bad"))
        teach(memory, good, bad)
        assert memory.value(good, Stage.DRAFT).visits == 0

    def test_nothing_of_a_resumed_step_counts_twice(self, memory):
        lessons = [lesson("A"), lesson("B")]
        for _ in range(2):
            ids = memory.add(lessons, "old/1", graph())
            retrieval = memory.recall(query("1"))
            memory.reinforce("new/1", Stage.REFINE, GOOD)
            memory.record_start("new", "new/1", "sha-A", 1.0)
            memory.reward_start("new", "new/2", "sha-A", BAD)
        assert len(memory.list()) == 2
        assert retrieval.ids == memory.recall(query("1", seed=99)).ids
        assert {memory.value(id, Stage.REFINE).visits for id in ids} == {1}
        assert not memory.reinforce("new/1", Stage.REFINE, BAD)
        assert memory.start_points("new")[0].children == 1
        stats = memory.stats()
        assert [(s.retrievals, s.rewards) for s in stats.stages] == [(0, 0), (1, 1)]

    def test_what_a_resumed_step_makes_otherwise_is_not_added(self, memory):
        first = memory.add([edit("A")], "old/1")
        assert memory.add([edit("other")], "old/1") == first
        assert memory.add([lesson("C")], "old/1") != first  # another kind has a place of its own
        assert len(memory.list()) == 2

    def test_a_promotion_counts_once(self, memory):
        (id,) = keep(memory, edit("A"))
        for _ in range(2):
            assert memory.promote("old", [promotion("A")], "old/9") == (id,)
        assert len(memory.evidence(id).history) == 2

    def test_a_recorded_retrieval_is_given_back_whole(self, memory):
        keep(memory, lesson("A"), lesson("B"), lesson("C"))
        assert memory.recall(query("1")) == memory.recall(query("1"))

    def test_drafts_start_from_the_fastest_of_a_task_and_from_no_setback(self, where):
        kernels = [race("fast", 1.0), race("near", 1.03), race("slow", 1.5)]
        worse = Interval(value=0.9, low=0.8, high=0.95)
        setback = race("near2", 1.04, kind="edit", outcome="failure", speedup=worse)
        elsewhere = race("other", 9.0, fingerprint="another", task="log_softmax")
        with Memory.open(config(where, shown_draft=8, shown_refine=8)) as memory:
            for made in (*kernels, setback, elsewhere):
                (id,) = keep(memory, made)
                memory.set_status(id, ACTIVE, "held")
            drafts = memory.recall(query("1", stage=Stage.DRAFT))
            assert set(drafts.ids) == {kernels[0].id, kernels[1].id, elsewhere.id}
            told = memory.explain("new/1").reasons
            assert "a faster kernel of its task stands for it" in told[kernels[2].id]
            assert {kernels[2].id, setback.id} <= set(shows(memory, "2"))

            memory.set_status(kernels[0].id, TOMBSTONE, "a cheat")
            memory.set_status(kernels[1].id, TOMBSTONE, "a cheat")
            assert kernels[2].id in shows(memory, "3", stage=Stage.DRAFT)

    def test_holdouts_are_never_shown(self, where):
        held = lesson("A", fingerprint="secret")
        with Memory.open(config(where, holdout=("secret",))) as memory:
            own = edit("B", run="new", fingerprint="secret")
            keep(memory, held, own)
            assert shows(memory, "1") == ()
            (other,) = keep(memory, lesson("C"))
            assert shows(memory, "2") == (other,)

    def test_hard_filters(self, memory):
        cpp, cuda, neutral = keep(
            memory, lesson("A"), lesson("B", backend="cuda"), lesson("C", backend="neutral")
        )
        assert set(shows(memory, "1")) == {cpp, neutral}
        assert set(shows(memory, "2", backend="cuda")) == {cuda, neutral}
        assert shows(memory, "3", cpp) == (neutral,)

    def test_too_little_likeness_shows_nothing(self, memory):
        keep(memory, lesson("A"))
        alien = graph("gather", family="indexing", size=7, dtype="int8")
        retrieval = memory.recall(query("1", graph=alien, family="indexing", fingerprint="f"))
        assert retrieval.pool == ()
        assert all(item.similarity >= GATE for item in memory.recall(query("2")).pool)

    def test_every_choice_tells_its_pool_and_propensity(self, where):
        with Memory.open(config(where, epsilon=0.3, pool_factor=2)) as memory:
            keep(memory, *(lesson(name) for name in "ABCDEF"))
            retrieval = memory.recall(query("1"))
        assert len(retrieval.pool) == 4  # K = lambda N
        assert retrieval.parameters["epsilon"] == 0.3
        assert retrieval.bank_version == 12  # six experiences, each with its first status
        left = list(retrieval.pool)
        for shown in retrieval.chosen:
            best = max(left, key=lambda item: (item.score, item.similarity))
            greedy = 0.7 * (best.id == shown.experience.id)
            assert shown.propensity == pytest.approx(greedy + 0.3 / len(left))
            left = [item for item in left if item.id != shown.experience.id]

    def test_the_same_seed_and_step_choose_the_same(self, where):
        def run(seed: int) -> list[tuple[str, ...]]:
            with Memory.open(config(epsilon=1.0)) as memory:
                keep(memory, *(lesson(name) for name in "ABCDEF"))
                return [shows(memory, str(step), seed=seed) for step in range(8)]

        assert run(1) == run(1)
        assert run(1) != run(2)

    def test_two_runs_with_one_seed_choose_the_same(self, where):
        """Whatever their ids are, and whatever ids their own experiences get from that."""

        def choices(run: str) -> list[object]:
            with Memory.open(config(epsilon=0.5, shown_draft=1, shown_refine=3)) as memory:
                keep(memory, *(lesson(name) for name in "ABCDEF"))
                chosen: list[object] = []
                for step in range(8):
                    retrieval = memory.recall(query(str(step), run=run))
                    chosen.append([e.origin.candidate for e in retrieval.experiences])
                    memory.add([lesson(f"own-{step}", run)], f"{run}/{step}", graph())
                    memory.record_start(run, f"{run}/{step}", f"sha-{step}", 1.0 + step % 3)
                    chosen.append(memory.choose_start(run, f"{run}/{step}", 0, k=2))
                return chosen

        assert choices("20260101-softmax-1a2b") == choices("20260202-softmax-9f8e")

    def test_duplicates_are_shown_once_and_kinds_share_the_slots(self, where):
        with Memory.open(config(where, shown_refine=4)) as memory:
            same = {"payload": {"source": "x"}, "techniques": ("t",)}
            keep(memory, *(lesson(f"{n}", **same) for n in range(3)))
            edits = keep(memory, *(edit(name) for name in "ABCDE"))
            memory.promote("old", [promotion(name) for name in "ABCDE"], "old/9")
            shown = memory.recall(query("1")).experiences
        assert len(shown) == 4
        assert len({id for id in edits if id in {e.id for e in shown}}) == 3
        assert sum(e.kind == "lesson" for e in shown) == 1

    def test_technique_notes_are_seeded_once(self, memory):
        for run in ("a", "b"):
            note = experience("tiling", run, kind="technique", backend="neutral", payload={})
            (id,) = memory.seed([note])
        assert len(memory.list(kind="technique")) == 1
        assert memory.get(id).status is ACTIVE
        with pytest.raises(ValueError, match="promotion"):
            memory.seed([edit("A")])

    def test_api_notes_are_looked_up_by_name_and_never_ranked(self, memory):
        note = experience("api", kind="api", payload={"name": "vexpf", "note": "exp of a vector"})
        memory.seed([note])
        assert shows(memory, "1") == ()
        assert memory.lookup(["nothing", "vexpf"], "cpp") == (note,)
        assert memory.lookup(["vexpf"], "cuda") == ()

    def test_list_filters_newest_first(self, memory):
        keep(memory, lesson("A"), edit("B"), lesson("C", family="scan"), lesson("D", run="x"))
        names = [entry.experience.techniques[0] for entry in memory.list()]
        assert names == ["D", "C", "B", "A"]
        assert len(memory.list(kind="lesson", family="softmax")) == 2
        assert len(memory.list(status=QUARANTINE)) == 1
        assert len(memory.list(run="x", backend="cpp")) == 1
        assert len(memory.list(limit=2)) == 2

    def test_an_unknown_id_suggests_the_nearest(self, memory):
        (id,) = keep(memory, lesson("A"))
        for look in (memory.get, memory.evidence, memory.descendants):
            with pytest.raises(StoreError, match=f"`{id}`"):
                look(id[:-1] + "x")
        with pytest.raises(StoreError, match="no experience `nope`"):
            memory.set_status("nope", TOMBSTONE, "why")

    def test_search_by_words(self, memory):
        keep(memory, lesson("vectorized-loads"), lesson("B", family="layer_norm"), lesson("C"))
        found = memory.search("Vectorized")
        assert found[0].entry.experience.techniques == ("vectorized-loads",)
        assert memory.search("layer norm")[0].entry.experience.family == "layer_norm"
        assert memory.search("nothingness") == ()
        assert len(memory.search("softmax", limit=1)) == 1

    def test_search_by_situation(self, memory):
        softmax, scan = lesson("A"), lesson("B", family="scan")
        memory.add([softmax], "old/1", graph())
        memory.add([scan], "old/2", graph("cumsum", family="scan"))
        situation = Situation(graph=graph("cumsum", family="scan", size=8192), family="scan")
        first, second = memory.search(situation=situation)
        assert first.entry.experience.family == "scan"
        assert first.score > second.score

    def test_evidence_tells_where_it_was_shown_and_what_that_earned(self, memory):
        (id,) = keep(memory, lesson("A"))
        shows(memory, "1")
        memory.reinforce("new/1", Stage.REFINE, GOOD)
        shows(memory, "2")
        memory.set_status(id, SUSPECT, "doubtful")
        evidence = memory.evidence(id)
        assert [(s.step, s.reward) for s in evidence.showings] == [("new/1", 0.6), ("new/2", None)]
        assert [change.status for change in evidence.history] == ["active", "suspect"]
        assert evidence.values[Stage.REFINE].visits == 1
        assert len(evidence.entry.experience.features) == 256

    def test_descendants(self, memory):
        a, b, c, d = keep(
            memory,
            lesson("A"),
            edit("B", parents=("sha-A",)),
            edit("C", run="new", context=(edit("B", parents=("sha-A",)).id,)),
            edit("D", run="new", parents=("sha-A",)),  # the same source, in another run
        )
        found = memory.descendants(a)
        expected = {(b, 1, "parent"), (d, 1, "parent"), (c, 2, "context")}
        assert {(one.id, one.depth, one.via) for one in found} == expected

    def test_stats(self, memory):
        good, bad = keep(memory, lesson("good"), lesson("bad"))
        keep(memory, edit("C"))
        teach(memory, good, bad, steps=3)
        stats = memory.stats()
        counts = {(g.kind, g.status): g.count for g in stats.groups}
        assert counts == {("lesson", "active"): 2, ("edit", "quarantine"): 1}
        draft, refine = stats.stages
        assert (draft.values, draft.median, draft.mean_reward) == (0, None, None)
        assert (refine.retrievals, refine.rewards, refine.visited_thrice) == (6, 6, 2)
        assert refine.lowest < 0 < refine.highest
        assert refine.mean_reward == pytest.approx(-0.2)
        assert stats.bank_version == stats.experiences * 2 + 12

    def test_start_points_are_chosen_by_value_and_recorded(self, memory):
        memory.record_start("r", "r/1", "slow", 4.0, "a")
        memory.record_start("r", "r/2", "fast", 1.0, "a")
        memory.record_start("other", "other/1", "elsewhere", 0.1)
        assert memory.choose_start("r", "r/3", seed=0) == ("fast",)
        memory.record_start("r", "r/3", "fastest", 0.5, "b")
        assert memory.choose_start("r", "r/3", seed=0) == ("fast",)  # as recorded
        assert memory.choose_start("r", "r/3", 0, exclude=("fast",)) == ("fastest",)
        assert memory.choose_start("r", "r/4", seed=0, k=2) == ("fastest", "fast")
        assert memory.archive("r") == {"a": "fast", "b": "fastest"}
        assert memory.choose_start("nobody", "nobody/1", seed=0) == ()

    def test_children_change_what_a_start_point_is_worth(self, memory):
        memory.record_start("r", "r/1", "a", 1.0)
        child = Reward(value=0.2, feasible=True, latency_ms=0.8, best_ms=1.0, parent_ms=1.0)
        memory.reward_start("r", "r/2", "a", child)
        memory.reward_start("r", "r/3", "a", BAD)
        (point,) = memory.start_points("r")
        assert (point.children, point.failing) == (2, 1)
        assert point.best_child == pytest.approx(math.log(1 / 0.8))

    def test_an_unknown_policy_suggests_the_nearest(self, where):
        with pytest.raises(ConfigError, match="did you mean `evokernel`"):
            Memory.open(config(where, policy="evokernal"))

    @pytest.mark.parametrize("policy", ["none", "random", "similarity"])
    def test_other_policies(self, reopened, policy):
        memory = reopened(policy=policy)
        keep(memory, lesson("A"), lesson("B"), lesson("C"))
        retrieval = memory.recall(query("1"))
        assert retrieval.policy == policy
        assert len(retrieval.pool) == 3
        chances = [shown.propensity for shown in retrieval.chosen]
        expected = {"none": [], "random": [1 / 3, 1 / 2], "similarity": [1, 1]}[policy]
        assert chances == pytest.approx(expected)

    def test_closing_twice_is_harmless(self, where):
        memory = Memory.open(config(where))
        keep(memory, lesson("A"))
        memory.close()
        memory.close()


class TestMemoryOnDisk(MemoryContract):
    @pytest.fixture
    def where(self, tmp_path):
        return tmp_path / "memory"

    def test_it_is_there_again(self, where):
        with Memory.open(config(where)) as memory:
            good, bad = keep(memory, lesson("good"), lesson("bad"))
            teach(memory, good, bad)
            recorded = memory.recall(query("1"))
        with Memory.open(config(where), create=False) as memory:
            assert memory.recall(query("1")) == recorded
            assert memory.recall(query("2")).chosen[0].q == recorded.chosen[0].q

    def test_two_open_at_once_see_each_other(self, where):
        with Memory.open(config(where)) as one, Memory.open(config(where)) as two:
            (id,) = keep(one, lesson("A"))
            assert shows(two, "1") == (id,)
            two.reinforce("new/1", Stage.REFINE, GOOD)
            assert one.value(id, Stage.REFINE).visits == 1
            one.set_status(id, TOMBSTONE, "why")
            assert shows(two, "2") == ()


class TestMemoryInMemory(MemoryContract):
    @pytest.fixture
    def where(self):
        return None

    def test_it_is_gone_with_its_object(self):
        with Memory.open(config()) as memory:
            keep(memory, lesson("A"))
        with Memory.open(config()) as memory:
            assert memory.list() == ()


def test_pool_items_are_the_public_name():
    from evokernel import memory

    assert memory.PoolItem is PoolItem
    assert "Memory" in dir(memory)
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = memory.nothing_such
