"""Values by joint credit, and their placebo: what must not matter, and what they can tell apart."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from evokernel.attempt import Stage
from evokernel.config import MemoryConfig
from evokernel.memory.joint import Joint, Traits
from evokernel.memory.placebo import Placebo
from evokernel.memory.policies import POLICIES, Surroundings, learner_of
from evokernel.memory.values import Rewarded

IDS = tuple("abcdefghij")
DRAFT, REFINE = Stage.DRAFT, Stage.REFINE


def traits(id: str) -> Traits:
    kind = "edit" if id in "abcde" else "lesson"
    return Traits(kind, "success", "softmax" if id in "abfg" else "reduction", (f"t-{id}",))


def event(seq: int, shown: Sequence[str], value: float, **changes) -> Rewarded:
    known = {"stage": DRAFT, "task": "t", "family": "softmax", "step": f"run/{seq}"}
    return Rewarded(seq=seq, shown=tuple(shown), value=value, **{**known, **changes})


def events(
    count: int, rng: random.Random, reward: Callable[[str, Sequence[str]], float], **changes
) -> list[Rewarded]:
    """Random bundles on three tasks of two families."""
    made = []
    for seq in range(1, count + 1):
        task = rng.choice(["easy", "hard", "other"])
        shown = rng.sample(IDS, rng.randint(0, 4))
        family = "reduction" if task == "other" else "softmax"
        value = reward(task, shown)
        made.append(event(seq, shown, value, task=task, family=family, **changes))
    return made


def noise(rng: random.Random) -> Callable[[str, Sequence[str]], float]:
    return lambda task, shown: rng.choice([-1.0, 1.0])


def renumbered(found: Sequence[Rewarded]) -> list[Rewarded]:
    return [e.model_copy(update={"seq": seq}) for seq, e in enumerate(found, 1)]


def learned(found: Sequence[Rewarded], make=Joint) -> Joint:
    learner = make(traits, 0.2)
    learner.fold(found)
    return learner


def table(learner) -> dict[object, tuple[float, int]]:
    return {key: (pytest.approx(v.q, abs=1e-9), v.visits) for key, v in learner.table.items()}


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_drafts_does_not_matter(seed):
    rng = random.Random(seed)
    found = events(60, rng, noise(rng))
    shuffled = found[:]
    rng.shuffle(shuffled)
    assert learned(renumbered(shuffled)).table.keys() == learned(found).table.keys()
    for key, value in learned(renumbered(shuffled)).table.items():
        assert value.q == pytest.approx(learned(found).of(*key).q, abs=1e-9)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_fold_is_the_same_at_once_and_bit_by_bit(name, seed):
    rng = random.Random(seed)
    drafts = events(40, rng, noise(rng))
    found = [e if e.seq % 2 else e.model_copy(update={"stage": REFINE}) for e in drafts]
    config = MemoryConfig(policy=name)
    at_once, bit_by_bit = (learner_of(config, Surroundings(traits)) for _ in range(2))
    at_once.fold(found)
    for one in found:
        bit_by_bit.fold([one])
        bit_by_bit.of("a", DRAFT)  # asking in between changes nothing
        bit_by_bit.fold([one])
    assert at_once.differences(bit_by_bit) == ()
    assert at_once.table
    assert at_once.seasoned(DRAFT) == sum(
        value.visits >= 3 for (_, stage), value in at_once.table.items() if stage is DRAFT
    )


def test_what_is_left_out_might_as_well_not_have_been():
    rng = random.Random(1)
    found = events(30, rng, noise(rng))
    without = Joint(traits, 0.2)
    without.uncounted = frozenset({"run/7", "run/8"})
    without.fold(found)
    rest = [e for e in found if e.seq not in {7, 8}]
    assert {key: v.q for key, v in without.table.items()} == {
        key: v.q for key, v in learned(rest).table.items()
    }


def test_a_hard_task_does_not_count_against_what_was_shown_there():
    """`a` on a task where all fails, `b` where all succeeds: neither made a difference."""
    hard = [event(n, [] if n % 2 else ["a"], -1, task="hard") for n in range(1, 41)]
    easy = [event(n, [] if n % 2 else ["b"], 1, task="easy") for n in range(41, 81)]
    learner = learned([*hard, *easy])
    assert abs(learner.of("a", DRAFT).q) < 0.15  # equal credit says -0.99
    assert abs(learner.of("b", DRAFT).q) < 0.15


def test_company_gets_no_credit():
    """`a` always helps and `b` is only ever seen beside it; alone it does nothing."""
    rng = random.Random(2)

    def reward(task: str, shown: Sequence[str]) -> float:
        return rng.gauss(0.8 if "a" in shown else 0.0, 0.2)

    bundles = [["a", "b"], ["a"], [], ["b"]]
    chosen = [rng.choices(bundles, weights=[6, 1, 6, 1])[0] for _ in range(300)]
    found = [event(n, shown, reward("t", shown)) for n, shown in enumerate(chosen, 1)]
    learner = learned(found)
    config = MemoryConfig(policy="evokernel")
    equal = learner_of(config, Surroundings(traits))
    equal.fold(found)
    apart = learner.of("a", DRAFT).q - learner.of("b", DRAFT).q
    assert apart > 0.4
    assert equal.of("b", DRAFT).q > 0.3  # equal credit believes in both


def test_credit_goes_to_who_contributed():
    found = [
        event(n, ["a", "b"] if n % 2 else [], 1.0 if n % 2 else -1.0, weights={"a": 1.0, "b": 0.2})
        for n in range(1, 41)
    ]
    learner = learned(found)
    a, b = learner.of("a", DRAFT), learner.of("b", DRAFT)
    assert (a.visits, b.visits) == (20, 20)
    assert (a.evidence, b.evidence) == (pytest.approx(20), pytest.approx(4))
    assert a.q > b.q > 0


def test_what_was_never_shown_is_worth_what_its_group_is():
    rng = random.Random(3)
    found = events(200, rng, lambda task, shown: 1.0 if {*"abcd"} & {*shown} else -1.0)
    learner = learned([e for e in found if "e" not in e.shown])
    assert learner.of("e", DRAFT).visits == 0
    assert learner.of("e", DRAFT).q > learner.of("f", DRAFT).q  # an edit, as a to d are


def test_stale_evidence_counts_less():
    found = [event(n, ["a"] if n % 2 else [], n % 2 * 2 - 1) for n in range(1, 21)]
    fresh = learned(found)
    stale = Joint(traits, 0.2, weigh=lambda event: 0.25)
    stale.fold(found)
    assert 0 < stale.of("a", DRAFT).q < fresh.of("a", DRAFT).q
    assert stale.of("a", DRAFT).evidence == pytest.approx(2.5)
    assert stale.of("a", DRAFT).spread > fresh.of("a", DRAFT).spread


def test_a_promise_counts_until_it_is_disproved():
    learner = Joint(traits, 0.2)
    assert learner.of("a", REFINE, prior=0.3).q == pytest.approx(0.3)
    rng = random.Random(4)
    empty = [
        event(n, [id], rng.choice([-0.5, 0.5]), stage=REFINE, priors={id: rng.choice([0, 1.0])})
        for n, id in enumerate(rng.choices("abcde", k=200), 1)
    ]
    learner.fold(empty)
    gain = learner.of("a", REFINE, prior=0.3).q - learner.of("a", REFINE).q
    assert abs(gain) < 0.1


class TestPlacebo:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("stage", Stage)
    def test_the_rewards_are_those_that_were_earned(self, seed, stage):
        rng = random.Random(seed)
        found = events(50, rng, lambda task, shown: rng.choice([-1.0, 0.5, 1.0]), stage=stage)
        learner = learned(found, Placebo)
        true = learned(found, _Kept).kept
        assert Counter(learner.rewards(stage)) == Counter(true)

    def test_none_stays_with_its_event(self):
        found = [event(n, ["a"], float(n)) for n in range(1, 60)]
        dealt = learned(found, Placebo).rewards(DRAFT)
        assert all(reward != n for n, reward in enumerate(dealt, 1))

    def test_the_sums_are_those_of_the_shuffled_rewards(self):
        rng = random.Random(5)
        found = events(40, rng, noise(rng))
        placebo = learned(found, Placebo)
        dealt = placebo.rewards(DRAFT)
        shuffled = [e.model_copy(update={"value": r}) for e, r in zip(found, dealt, strict=True)]
        for key, value in learned(shuffled).table.items():
            assert placebo.of(*key).q == pytest.approx(value.q, abs=1e-9)

    def test_it_learns_nothing(self):
        rng = random.Random(6)
        found = events(300, rng, lambda task, shown: 1.0 if "a" in shown else -1.0)
        gap = [make_gap(learned(found, make)) for make in (Joint, Placebo)]
        assert gap[0] > 0.8
        assert abs(gap[1]) < 0.4


def make_gap(learner: Joint) -> float:
    return learner.of("a", DRAFT).q - learner.of("b", DRAFT).q


class _Kept(Joint):
    """Keeps the rewards as they enter, on their scale."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.kept: list[float] = []

    def _took(self, stage, sample, reward) -> None:
        self.kept.append(reward)
