"""Owns the comparison of arms: ratios and differences with paired bootstrap intervals by task."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np

from evokernel.evaluation import Interval
from evokernel.frozen import Frozen
from evokernel.study.ablation import CONTROL, Outcome, Setting

RESAMPLES = 4000
"""Draws of the bootstrap (ours)."""

ByTask = Mapping[str, float]
"""One number per task: the mean over the seeds."""


class ArmEffect(Frozen):
    """What one arm came to in one setting, and against an opponent."""

    arm: str
    setting: Setting
    runs: int
    needed: float
    """Mean attempts to the target; a run that missed it counts one more than its budget."""
    reached: float
    """Share of the runs that reached it within the budget."""
    first: float
    """Speed of the first attempt as a share of the best known; geometric mean would hide
    failures, so that this and the next two are plain means over tasks."""
    final: float
    area: float
    ratio: Interval | None = None
    """Attempts to the target over the control's: geometric mean over tasks of the ratio of means,
    with its interval; below 1 this arm needs fewer. None for the control itself."""


class Contrast(Frozen):
    """One arm against another, in attempts to the target."""

    arm: str
    opponent: str
    setting: Setting
    tasks: int
    ratio: Interval
    """Below 1 the arm needs fewer attempts."""
    final: Interval
    """Difference of the final speeds as shares of the best known."""
    area: Interval
    """Difference of the areas under the curves."""

    @property
    def is_better(self) -> bool:
        """Whether the interval of the ratio lies below 1."""
        return self.ratio.high < 1.0


def effects(outcomes: Sequence[Outcome], budget: int) -> tuple[ArmEffect, ...]:
    """Every arm in every setting, against the control."""
    groups: dict[tuple[str, Setting], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.arm, outcome.setting].append(outcome)
    return tuple(_effect(arm, setting, groups, budget) for arm, setting in groups)


def contrast(
    outcomes: Sequence[Outcome], arm: str, opponent: str, setting: Setting, budget: int
) -> Contrast | None:
    """One arm against another; None where they share no task."""
    mine = [o for o in outcomes if (o.arm, o.setting) == (arm, setting)]
    other = [o for o in outcomes if (o.arm, o.setting) == (opponent, setting)]
    needed = _pairs(mine, other, lambda o: _needed(o, budget))
    if not needed:
        return None
    return Contrast(
        arm=arm,
        opponent=opponent,
        setting=setting,
        tasks=len(needed),
        ratio=_ratio(needed),
        final=_difference(_pairs(mine, other, lambda o: o.final)),
        area=_difference(_pairs(mine, other, lambda o: o.area)),
    )


def curves(outcomes: Sequence[Outcome], setting: Setting, budget: int) -> dict[str, list[float]]:
    """Mean speed of what each arm held after each attempt, as a share of the best known."""
    held: dict[str, list[list[float]]] = defaultdict(list)
    for o in outcomes:
        if o.setting == setting and o.held:
            held[o.arm].append([*o.held, *[o.held[-1]] * (budget - len(o.held))][:budget])
    return {
        arm: [fmean(column) for column in zip(*rows, strict=True)] for arm, rows in held.items()
    }


def learning(outcomes: Sequence[Outcome], budget: int) -> dict[str, list[float]]:
    """Mean attempts to the target by place in the stream: does an arm get better as it goes on?"""
    by_place: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for o in outcomes:
        if o.setting == "adaptation":
            by_place[o.arm][o.place].append(_needed(o, budget))
    return {
        arm: [fmean(places[place]) for place in sorted(places)] for arm, places in by_place.items()
    }


def _effect(
    arm: str,
    setting: Setting,
    groups: Mapping[tuple[str, Setting], Sequence[Outcome]],
    budget: int,
) -> ArmEffect:
    mine, control = groups[arm, setting], groups.get((CONTROL, setting), ())
    pairs = _pairs(mine, control, lambda o: _needed(o, budget))
    return ArmEffect(
        arm=arm,
        setting=setting,
        runs=len(mine),
        needed=fmean(by_task(mine, lambda o: _needed(o, budget)).values()),
        reached=fmean(o.needed is not None for o in mine),
        first=fmean(by_task(mine, lambda o: o.first).values()),
        final=fmean(by_task(mine, lambda o: o.final).values()),
        area=fmean(by_task(mine, lambda o: o.area).values()),
        ratio=_ratio(pairs) if arm != CONTROL and pairs else None,
    )


def by_task(outcomes: Sequence[Outcome], measure: Callable[[Outcome], float]) -> ByTask:
    """Mean over the seeds for each task."""
    found: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.task].append(measure(outcome))
    return {task: fmean(values) for task, values in found.items()}


def _needed(outcome: Outcome, budget: int) -> float:
    return float(budget + 1 if outcome.needed is None else outcome.needed)


def _pairs(
    mine: Sequence[Outcome], other: Sequence[Outcome], measure: Callable[[Outcome], float]
) -> list[tuple[float, float]]:
    """By task, the means of both over the seeds in which both ran it."""
    shared = {(o.task, o.seed) for o in mine} & {(o.task, o.seed) for o in other}
    one = by_task([o for o in mine if (o.task, o.seed) in shared], measure)
    two = by_task([o for o in other if (o.task, o.seed) in shared], measure)
    return [(one[task], two[task]) for task in sorted(one)]


def _ratio(pairs: Sequence[tuple[float, float]]) -> Interval:
    logs = np.log(np.asarray(pairs, dtype=np.float64))
    found = _bootstrapped(logs[:, 0] - logs[:, 1])
    return Interval(value=math.exp(found.value), low=math.exp(found.low), high=math.exp(found.high))


def _difference(pairs: Sequence[tuple[float, float]]) -> Interval:
    values = np.asarray(pairs, dtype=np.float64)
    return _bootstrapped(values[:, 0] - values[:, 1])


def _bootstrapped(values: np.ndarray) -> Interval:
    """Mean over the tasks with its 95 % percentile interval; tasks are drawn with replacement."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), (0.025, 0.975))
    mean = float(values.mean())
    return Interval(value=mean, low=min(float(low), mean), high=max(float(high), mean))
