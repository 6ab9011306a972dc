"""Owns the searches without memory: what a simple strategy finds in a recorded space by itself.

Each starts from the same fixed configuration, sees the same noisy times as a run, and never tries a
plan twice.
"""

import math
import random
from collections.abc import Callable, Iterator
from itertools import chain

from evokernel.proposers.templates.choices import Plan, Space
from evokernel.study.fixed import Configuration
from evokernel.study.space import plans

Measure = Callable[[Plan], float | None]
"""A noisy time of a plan, milliseconds; None where it fails."""
Search = Callable[[Space, Configuration, Measure, random.Random], Iterator[Plan]]
"""Tries plans one after the other, each once; yields every one that it has measured."""

WIDTH = 2.0
"""Of the confidence bound, as KernelBand has it (arXiv 2511.18868)."""
FIRST_MEAN, FIRST_COUNT = 0.5, 1
"""What an arm is thought to be worth before it is tried, and how often (KernelBand's)."""


def at_random(
    space: Space, start: Configuration, measure: Measure, rng: random.Random
) -> Iterator[Plan]:
    """All plans in random order, the fixed configuration first."""
    first = space.settle(start)
    rest = [plan for plan in plans(space) if plan != first]
    rng.shuffle(rest)
    for plan in chain([first], rest):
        measure(plan)
        yield plan


def hill_climbing(
    space: Space, start: Configuration, measure: Measure, rng: random.Random
) -> Iterator[Plan]:
    """Changes one choice at a time, keeps what is faster; anew from elsewhere at a summit."""
    tried: dict[str, float | None] = {}
    starts = [plan for plan in plans(space) if plan != space.settle(start)]
    rng.shuffle(starts)
    for plan in chain([space.settle(start)], starts):
        if plan.line in tried:
            continue
        here = plan
        tried[here.line] = measure(here)
        yield here
        while (near := _untried(space, here, tried)) is not None:
            rng.shuffle(near)
            for other in near:
                tried[other.line] = measure(other)
                yield other
                if _is_faster(tried[other.line], tried[here.line]):
                    here = other
                    break
            else:
                break


def bandit(
    space: Space, start: Configuration, measure: Measure, rng: random.Random
) -> Iterator[Plan]:
    """A bandit over techniques: which one to apply to, or take from, the fastest plan so far.

    Arms are techniques, ranked by mean + 2 sqrt(ln t / n) with mean 0.5 and n 1 at first; the
    reward is max(0, 1 - t_child / t_parent), 0 for a failure: KernelBand's rule without clusters.
    """
    best = space.settle(start)
    tried = {best.line: measure(best)}
    yield best
    worth: dict[str, tuple[int, float]] = {}
    while True:
        arms: dict[str, list[Plan]] = {}
        for parent in _fastest_first(space, tried):
            for move in space.moves(parent):
                child = move.on(space, parent)
                if child.line not in tried:
                    arms.setdefault(move.technique, []).append(child)
            if arms:
                best = parent
                break
        if not arms:
            return
        technique = max(sorted(arms), key=lambda name: _bound(worth.get(name), len(tried)))
        child = rng.choice(arms[technique])
        tried[child.line] = measure(child)
        yield child
        count, total = worth.get(technique, (0, 0.0))
        gain = _gain(tried[best.line], tried[child.line])
        worth[technique] = count + 1, total + gain


SEARCHES: dict[str, Search] = {
    "random-plans": at_random,
    "hill-climbing": hill_climbing,
    "technique-bandit": bandit,
}


def _untried(space: Space, plan: Plan, tried: dict[str, float | None]) -> list[Plan] | None:
    near = {child.line: child for m in space.moves(plan) if (child := m.on(space, plan))}
    found = [child for line, child in near.items() if line not in tried]
    return found or None


def _is_faster(child: float | None, parent: float | None) -> bool:
    return child is not None and (parent is None or child < parent)


def _fastest_first(space: Space, tried: dict[str, float | None]) -> list[Plan]:
    known = [(tried[p.line], p) for p in plans(space) if p.line in tried]
    return [p for _, p in sorted(known, key=lambda pair: pair[0] or math.inf)]


def _bound(known: tuple[int, float] | None, steps: int) -> float:
    count, total = known or (0, 0.0)
    mean = (FIRST_MEAN * FIRST_COUNT + total) / (count + FIRST_COUNT)
    return mean + WIDTH * math.sqrt(math.log(max(steps, 1)) / (count + FIRST_COUNT))


def _gain(parent: float | None, child: float | None) -> float:
    if parent is None or child is None:
        return 0.0 if child is None else 1.0
    return max(0.0, 1.0 - child / parent)
