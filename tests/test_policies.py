"""The rules of choice: chances, slots, propensities; and the choice of start points."""

import random
from collections import Counter

import pytest

from evokernel.config import MemoryConfig
from evokernel.memory.policies import POLICIES, PoolItem, policy_of
from evokernel.memory.retrieval import choose, dice
from evokernel.memory.start_points import FAILING_CHILDREN, StartPoint, StartTable


def pool(*qs: float, kind: str = "edit") -> list[PoolItem]:
    """Items a, b, c ... with these values; earlier ones are more similar."""
    return [
        PoolItem(id="abcdefgh"[i], kind=kind, similarity=0.9 - i / 10, q=q, n=1, score=q)
        for i, q in enumerate(qs)
    ]


def chosen(items: list[PoolItem], policy, slots: int, seed: int = 0, contents=None):
    contents = contents or [item.id for item in items]
    return choose(items, contents, policy, slots, dice(seed, "step", "recall"))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_chances_add_up_to_one_or_nothing(name, size):
    policy = policy_of(MemoryConfig(policy=name, epsilon=0.3))
    chances = policy.chances(pool(*range(size)))
    assert len(chances) == size
    assert all(0 <= chance <= 1 for chance in chances)
    assert sum(chances) == pytest.approx(0 if name == "none" else 1)


def test_evokernel_ranks_by_value_alone():
    policy = policy_of(MemoryConfig(epsilon=0.2))
    assert policy.chances(pool(0.1, 0.5, -1, 0)) == pytest.approx((0.05, 0.85, 0.05, 0.05))


def test_ties_go_to_the_more_similar():
    policy = policy_of(MemoryConfig(epsilon=0))
    assert policy.chances(pool(0, 0.5, 0.5)) == (0, 1, 0)


def test_similarity_ignores_values():
    policy = policy_of(MemoryConfig(policy="similarity"))
    items = [i.model_copy(update={"score": policy.score(i)}) for i in pool(0, 9, 9)]
    assert policy.chances(items) == (1, 0, 0)


def test_slots_are_filled_greedily_without_repetition():
    policy = policy_of(MemoryConfig(epsilon=0))
    picks = chosen(pool(0.1, 0.5, 0.3), policy, slots=5)
    assert [pick.item.id for pick in picks] == ["b", "c", "a"]
    assert [pick.propensity for pick in picks] == [1, 1, 1]


def test_draws_have_the_frequency_that_is_recorded():
    policy = policy_of(MemoryConfig(epsilon=0.4))
    items = pool(0, 1, 0, 0)
    draws = [chosen(items, policy, 1, seed)[0] for seed in range(2000)]
    counts = Counter(pick.item.id for pick in draws)
    recorded = {pick.item.id: pick.propensity for pick in draws}
    assert recorded == pytest.approx({"a": 0.1, "b": 0.7, "c": 0.1, "d": 0.1})
    for id, chance in recorded.items():
        assert counts[id] / 2000 == pytest.approx(chance, abs=0.04)  # above 4 sigma


def test_duplicates_fill_one_slot():
    policy = policy_of(MemoryConfig(epsilon=0))
    picks = chosen(pool(3, 2, 1), policy, 3, contents=["x", "x", "y"])
    assert [pick.item.id for pick in picks] == ["a", "c"]


def test_no_kind_takes_more_than_half_while_others_wait():
    policy = policy_of(MemoryConfig(epsilon=0))
    edits, other = pool(9, 8, 7, 6), pool(0, 0, 0, 0, 1, kind="fix")[4:]
    picks = chosen([*edits, *other], policy, slots=4)
    assert [pick.item.id for pick in picks] == ["a", "b", "e", "c"]


def test_a_choice_says_why():
    policy = policy_of(MemoryConfig(epsilon=0))
    (pick,) = chosen(pool(0.25), policy, 1)
    assert pick.reason == "best left by `evokernel`: similarity 0.90, value +0.25 after 1 visits"


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
