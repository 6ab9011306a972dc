"""The rules of choice: chances, slots, propensities; and the choice of start points."""

import math
import random
import re
from collections import Counter

import pytest

from evokernel.attempt import Stage
from evokernel.config import MemoryConfig
from evokernel.errors import ConfigError
from evokernel.memory.choice import NULL, PROBE, USUAL, Occasion, PoolItem, Selection
from evokernel.memory.joint import Traits
from evokernel.memory.policies import POLICIES, Policy, Surroundings, learner_of, policy_of
from evokernel.memory.retrieval import dice
from evokernel.memory.slots import Draw, Slotwise
from evokernel.memory.start_points import FAILING_CHILDREN, StartPoint, StartTable


def pool(*qs: float, kind: str = "edit", n: int = 1, **keys: str) -> list[PoolItem]:
    """Items a, b, c ... with these values; earlier ones are more similar."""
    return [
        PoolItem(
            id="abcdefgh"[i],
            kind=kind,
            similarity=0.9 - i / 10,
            q=q,
            n=n,
            keys={keys["abcdefgh"[i]]: "the same content as"} if "abcdefgh"[i] in keys else {},
        )
        for i, q in enumerate(qs)
    ]


def policy(name: str = "evokernel", **changes) -> Policy:
    """A policy without chance, unless it is asked for."""
    plain = {"epsilon": 0.0, "probe": 0.0, "null": 0.0}
    return policy_of(MemoryConfig(policy=name, **{**plain, **changes}))


def decided(items, rule: Policy, slots: int, seed: int = 0, spent: float | None = None):
    return rule.choose(items, Occasion(Stage.REFINE, slots, dice(seed, "step", "recall"), spent))


def chosen(items, rule: Policy, slots: int, seed: int = 0) -> list[str]:
    return [choice.item.id for choice in decided(items, rule, slots, seed).choices]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_chances_add_up_to_one_or_nothing(name, size):
    rule = policy(name, epsilon=0.3)
    assert isinstance(rule, Slotwise)
    items = pool(*(place / 10 for place in range(size)))
    scores = rule.scores(items)
    items = [i.model_copy(update={"score": s}) for i, s in zip(items, scores, strict=True)]
    for arm in (USUAL, PROBE):
        chances = rule.chances(items, Draw(arm, 0, 1))
        assert len(chances) == size
        assert all(0 <= chance <= 1 for chance in chances)
        assert sum(chances) == pytest.approx(0 if name == "none" else 1)


@pytest.mark.parametrize("name", POLICIES)
def test_arms_add_up_to_one(name):
    occasion = Occasion(Stage.REFINE, 3, random.Random(0))
    assert sum(policy(name, probe=0.1, null=0.05).arms(occasion).values()) == pytest.approx(1)


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_have_the_frequency_that_is_recorded(name):
    """The whole decision: arm, sequence of slots, what was held back."""
    rule = policy(name, epsilon=0.4, probe=0.3, null=0.1)
    items = pool(0.1, 0.2, 0.15, 0.3, n=2)
    draws = [decided(items, rule, 2, seed) for seed in range(4000)]
    recorded = {_what(draw): draw.propensity for draw in draws}
    counts = Counter(map(_what, draws))
    for what, chance in recorded.items():
        # Five standard deviations, and a little for rare ones
        assert abs(counts[what] / 4000 - chance) < 5 * (chance / 4000) ** 0.5 + 1e-3, what
    assert sum(recorded.values()) <= 1 + 1e-9
    assert sum(recorded.values()) > 0.9  # nearly every possible decision was met


def _what(draw: Selection) -> tuple[object, ...]:
    order = [(c.item.id, c in draw.withheld) for c in (*draw.choices, *draw.withheld)]
    return draw.arm, tuple(order)


def test_evokernel_ranks_by_value_alone():
    rule = policy(epsilon=0.2)
    found = decided(pool(0.1, 0.5, -1, 0), rule, 1)
    assert [item.chance for item in found.pool] == pytest.approx([0.05, 0.85, 0.05, 0.05])


def test_ties_go_to_the_more_similar():
    assert chosen(pool(0, 0.5, 0.5), policy(), 1) == ["b"]


def test_similarity_ignores_values():
    assert chosen(pool(0, 9, 9), policy("similarity"), 2) == ["a", "b"]


def test_slots_are_filled_greedily_without_repetition():
    found = decided(pool(0.1, 0.5, 0.3), policy(), slots=5)
    assert [choice.item.id for choice in found.choices] == ["b", "c", "a"]
    assert [choice.propensity for choice in found.choices] == [1, 1, 1]


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"none"}))
def test_duplicates_fill_one_slot(name):
    items = pool(3, 2, 1, a="x", b="x")
    found = decided(items, policy(name), 3)
    shown = {choice.item.id for choice in found.choices}
    assert len(shown) == 2
    assert "c" in shown
    (hidden,) = {item.id for item in found.pool} - shown
    (fate,) = {item.fate for item in found.pool if item.id == hidden}
    assert fate == f"the same content as `{'ab'.replace(hidden, '')}`"


def test_no_kind_takes_more_than_half_while_others_wait():
    edits, other = pool(9, 8, 7, 6), pool(0, 0, 0, 0, 1, kind="fix")[4:]
    assert chosen([*edits, *other], policy(), slots=4) == ["a", "b", "e", "c"]


def test_a_choice_says_why():
    (pick,) = decided(pool(0.25), policy(), 1).choices
    assert pick.reason == "best left by `evokernel`: similarity 0.90, value +0.25 after 1 visits"


class TestMemRL:
    def test_half_similarity_half_value(self):
        """Similarities 0.9, 0.8: z is +1, -1. Values 0, 1: z is -1, +1. Both scores are 0."""
        found = decided(pool(0, 1), policy("memrl"), 1)
        assert [item.score for item in found.pool] == pytest.approx([0, 0])

    def test_what_is_known_to_harm_is_never_shown(self):
        assert chosen(pool(-0.9, -0.85), policy("memrl"), 2) == []
        assert chosen(pool(-0.9, 0.1), policy("memrl", epsilon=1.0), 2) == ["b"]

    def test_equal_values_leave_it_to_similarity(self):
        assert chosen(pool(0, 0, 0), policy("memrl"), 2) == ["a", "b"]


class TestHybrid:
    def test_a_wiggle_does_not_outweigh_likeness(self):
        """Without a floor on the spread a value of 0.02 among zeros would have z = 2.6."""
        found = decided(pool(0, 0, 0, 0, 0, 0, 0, 0.02, n=9), policy("hybrid"), 1)
        assert [choice.item.id for choice in found.choices] == ["a"]

    def test_a_clear_value_does(self):
        items = [i.model_copy(update={"similarity": 0.5}) for i in pool(0, 0, 0.9, n=9)]
        assert chosen(items, policy("hybrid"), 1) == ["c"]

    def test_what_was_hardly_tried_is_hoped_to_be_good(self):
        items = [i.model_copy(update={"similarity": 0.5}) for i in pool(0, 0)]
        tried, fresh = items[0].model_copy(update={"n": 50}), items[1]
        found = decided([tried, fresh], policy("hybrid"), 2)
        assert found.pool[1].score > found.pool[0].score

    def test_a_null_step_shows_nothing(self):
        found = decided(pool(1, 1), policy("hybrid", null=0.5), 2, seed=1)
        arms = {decided(pool(1, 1), policy("hybrid", null=0.5), 2, s).arm for s in range(20)}
        assert arms == {USUAL, NULL}
        null = next(
            d
            for d in (decided(pool(1, 1), policy("hybrid", null=0.5), 2, s) for s in range(20))
            if d.arm == NULL
        )
        assert (null.choices, null.propensity) == ((), 0.5)
        assert found.arm_chance == 0.5

    def test_a_probe_step_tries_what_was_hardly_tried(self):
        rule = policy("hybrid", probe=0.5, withhold=0.0)
        known, fresh = pool(5, 4, 3, n=9), pool(0, 0, 0, 0, -5, n=0)[4:]
        probes = [d for s in range(60) if (d := decided([*known, *fresh], rule, 2, s)).arm == PROBE]
        last = Counter(draw.choices[-1].item.id for draw in probes)
        assert len(probes) > 15
        assert last["e"] > 0.8 * len(probes)

    def test_nothing_is_tried_where_the_budget_ends(self):
        rule = policy("hybrid", probe=0.5, null=0.5)
        arms = {decided(pool(1, 2), rule, 2, seed, spent=0.9).arm for seed in range(20)}
        assert arms == {USUAL}

    def test_the_pool_grows_with_evidence(self):
        rule = policy("hybrid")
        sizes = [rule.pool_factor(4, seasoned) for seasoned in (0, 16, 48, 999)]
        assert sizes == [4, 8, 16, 16]
        assert policy("similarity").pool_factor(4, 999) == 4

    def test_a_placebo_chooses_by_the_same_rule(self):
        items = pool(0.1, 0.5, 0.2)
        first = decided(items, policy("hybrid"), 2)
        second = decided(items, policy("placebo"), 2)
        assert [c.item.id for c in first.choices] == [c.item.id for c in second.choices]
        assert first.propensity == second.propensity


def test_dice_depend_on_seed_step_and_purpose():
    rolls = {
        dice(seed, step, purpose).random()
        for seed in (0, 1)
        for step in ("a", "b")
        for purpose in ("recall", "start point")
    }
    assert len(rolls) == 8
    assert dice(0, "a", "recall").random() in rolls


def point(name: str, ms: float = 1.0, niche: str = "", **changes) -> StartPoint:
    return StartPoint(candidate=name, median_ms=ms, niche=niche, **{"gain": 0.0, **changes})


def picked(*points: StartPoint, k: int = 1, epsilon: float = 0.0, exclude=()) -> list[str]:
    picks = StartTable(points).choose(k, epsilon, random.Random(0), exclude)
    return [pick.candidate for pick in picks]


class TestStartPoints:
    def test_the_fastest_comes_first(self):
        assert picked(point("slow", 2.0), point("fast", 1.0)) == ["fast"]

    def test_children_wear_a_start_point_out(self):
        worn = point("worn", 1.0, children=9)  # hope 0.1 / 10
        assert picked(worn, point("fresh", 1.05)) == ["fresh"]  # hope 0.1 - ln 1.05 = 0.051
        assert picked(worn, point("slower", 1.2)) == ["worn"]

    def test_a_gain_gives_hope_of_more(self):
        table = StartTable([point("plain"), point("promising", gain=0.5), point("c", 1.0)])
        assert table.value(table.points[0]) == pytest.approx(0.1)
        assert table.value(table.points[1]) == pytest.approx(0.5)

    def test_three_failing_children_end_it(self):
        dead = point("dead", 0.5, children=3, failing=FAILING_CHILDREN)
        assert picked(dead, point("alive", 1.0)) == ["alive"]
        assert picked(dead) == ["dead"]  # when nothing else is left

    def test_two_are_distinct_and_of_two_niches(self):
        points = [point("a", 1.0, "x"), point("b", 1.1, "x"), point("c", 9.0, "y")]
        assert picked(*points, k=2) == ["a", "c"]
        assert picked(*points[:2], k=2) == ["a", "b"]
        assert picked(points[0], k=2) == ["a"]

    def test_excluded_ones_are_passed_over(self):
        assert picked(point("a", 1.0), point("b", 2.0), exclude=("a",)) == ["b"]
        assert picked(point("a"), exclude=("a",)) == []

    def test_propensities_match_frequencies(self):
        table = StartTable([point("a", 1.0), point("b", 2.0), point("c", 3.0)])
        rng = random.Random(1)
        draws = [table.choose(1, 0.3, rng)[0] for _ in range(2000)]
        counts = Counter(pick.candidate for pick in draws)
        recorded = {pick.candidate: pick.propensity for pick in draws}
        assert recorded == pytest.approx({"a": 0.8, "b": 0.1, "c": 0.1})
        assert counts["a"] / 2000 == pytest.approx(0.8, abs=0.04)

    def test_children_are_put_to_their_parents(self):
        children = [("a", True, 0.2), ("a", False, None), ("b", True, -0.5), ("gone", True, 1.0)]
        table = StartTable([point("a"), point("b"), point("c")])
        for child in children:
            table.tell(*child)
        a, b, c = table.points
        assert (a.children, a.failing, a.best_child) == (2, 1, 0.2)
        assert (b.children, b.failing, b.best_child) == (1, 0, 0.0)
        assert c.children == 0

    def test_the_archive_keeps_the_fastest_of_each_niche(self):
        table = StartTable([point("a", 2.0, "x"), point("b", 1.0, "x"), point("c", 5.0, "y")])
        assert table.archive() == {"x": "b", "y": "c"}


class TestBandit:
    def test_by_hand(self):
        """Advance 0.2 of two children, its own making 0.1: g = (0.2 + 0.1) / 3 = 0.1."""
        table = StartTable([point("a"), point("b")], rule="bandit")
        table.tell("a", True, 0.5, 0.2)
        table.tell("a", False, None, 0.0)
        a, b = table.points
        assert a.advance == pytest.approx(0.2)
        bound = 0.05 * math.sqrt(math.log(3) / 3)
        assert table.value(a) == pytest.approx(0.1 / 3 + bound)
        assert table.value(b) == pytest.approx(0.1 + 0.05 * math.sqrt(math.log(3)))

    def test_what_was_never_tried_is_tried_in_time(self):
        table = StartTable([point("fast", 1.0), point("slow", 1.1)], rule="bandit")
        picked = []
        for number in range(40):
            (pick,) = table.choose(1, 0.0, random.Random(number))
            picked.append(pick.candidate)
            table.tell(pick.candidate, True, 0.0, 0.0)
        assert picked[0] == "fast"
        assert "slow" in picked

    def test_two_niches_are_kept(self):
        dead = point("dead", 0.5, "y", children=3, failing=FAILING_CHILDREN)
        found = StartTable([dead, point("alive", 1.0, "x")], rule="bandit")
        assert [p.candidate for p in found.choose(2, 0.0, random.Random(0))] == ["dead", "alive"]

    def test_the_order_of_children_does_not_matter(self):
        told = [("a", True, 0.2, 0.1), ("b", False, None, 0.0), ("a", True, 0.3, 0.0)]
        values = []
        for order in (told, told[::-1]):
            table = StartTable([point("a"), point("b")], rule="bandit")
            for child in order:
                table.tell(*child)
            values.append([table.value(p) for p in table.points])
        assert values[0] == pytest.approx(values[1])


# A policy of one's own

OWN = """
from evokernel.memory.policies import Recipe
from evokernel.memory.slots import Slotwise


class Newest(Slotwise):
    name = "newest"

    def scores(self, pool):
        return tuple(float(-item.n) for item in pool)

    def chances(self, items, draw):
        best = max(items, key=lambda item: item.score)
        return tuple(float(item is best) for item in items)


NEWEST = Recipe(choice=lambda config: Newest())
"""


@pytest.fixture
def own(tmp_path, monkeypatch) -> str:
    """The module of a policy of one's own."""
    (tmp_path / "policy_of_mine.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return "policy_of_mine"


def test_own_policy_chooses_and_learns(own):
    rule = policy(f"{own}:NEWEST")
    assert chosen(pool(0.1, 0.2, n=3), rule, 1) == ["a"]
    assert decided(pool(0.1, 0.2), rule, 1).propensity == 1.0
    learner = learner_of(MemoryConfig(policy=f"{own}:NEWEST"), Surroundings(lambda id: Traits()))
    assert not learner.table


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no_such_module:NAME", "no_such_module"),
        ("policy_of_mine:OLDEST", "OLDEST"),
        ("policy_of_mine:Newest", "`ABCMeta`: expected an `evokernel.memory.policies.Recipe`"),
        (":NAME", "PYTHONPATH=."),
        ("hybird", "did you mean `hybrid`?"),
    ],
)
def test_policy_that_is_none_is_refused_with_what_to_do(own, place, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        policy_of(MemoryConfig(policy=place))
    assert f"`{place}`" in str(refused.value)
