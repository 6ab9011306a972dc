"""Owns `StartTable`: what each start point of one run is worth, and which to refine next.

Kept apart from the experiences' Q2, which the paper mixes with it: they are unlike things.
"""

import math
import random
from collections.abc import Collection, Iterable, Sequence

from evokernel.frozen import Frozen

FIRST_GAIN = 0.1
"""ln-gain that a start point may still be hoped to give before any child says otherwise (ours)."""

FAILING_CHILDREN = 3
"""A start point with so many infeasible children is chosen no more (as STARK, arXiv 2510.16996)."""


class StartPoint(Frozen):
    """A feasible candidate of a run, with how its children did."""

    candidate: str
    """Its hash."""
    median_ms: float
    """Median of one call, milliseconds."""
    niche: str
    """Its algorithm family."""
    gain: float
    """ln(parent / itself) of the step that made it; 0 for a draft."""
    children: int = 0
    """Children evaluated so far."""
    failing: int = 0
    """Those of them that were infeasible."""
    best_child: float = 0.0
    """Largest ln(itself / child), never below 0."""

    @property
    def is_pruned(self) -> bool:
        """Whether too many children failed."""
        return self.failing >= FAILING_CHILDREN


class Pick(Frozen):
    """One start point that was chosen."""

    candidate: str
    propensity: float
    """Chance of this pick, given the picks before; 0..1."""


class StartTable:
    """The start points of one run, valued against its fastest."""

    def __init__(self, points: Sequence[StartPoint]) -> None:
        self.points = tuple(points)
        self.best_ms = min((point.median_ms for point in points), default=math.inf)

    @classmethod
    def fold(
        cls, points: Iterable[StartPoint], children: Iterable[tuple[str, bool, float | None]]
    ) -> "StartTable":
        """Put the children to their parents.

        Args:
            points: As they were entered.
            children: Parent's hash, whether the child was feasible, and ln(parent / child).
        """
        told: dict[str, list[tuple[bool, float]]] = {}
        for parent, feasible, gain in children:
            told.setdefault(parent, []).append((feasible, gain or 0.0))
        return cls(
            [
                point.model_copy(update=_children(told[point.candidate]))
                if point.candidate in told
                else point
                for point in points
            ]
        )

    def value(self, point: StartPoint) -> float:
        """ln-scale: how far it is behind the best, plus the hope for a gain.

        The hope is the best gain seen around it (its own making, its children), at least
        `FIRST_GAIN`, divided by 1 + children: what was tried often promises little more. The
        child-count discount is ShinkaEvolve's (arXiv 2509.19349), the sum is ours.
        """
        hope = max(point.best_child, point.gain, FIRST_GAIN) / (1 + point.children)
        return hope - math.log(point.median_ms / self.best_ms)

    def choose(
        self, k: int, epsilon: float, rng: random.Random, exclude: Collection[str] = ()
    ) -> tuple[Pick, ...]:
        """Up to `k` distinct start points, each epsilon-greedy by value.

        The second and later ones come from niches not chosen yet, where there are such. Pruned ones
        return only when nothing else is left: a run never stands still for want of a start.
        """
        picks: list[Pick] = []
        niches: set[str] = set()
        while len(picks) < k:
            left = self._left({*exclude, *(pick.candidate for pick in picks)}, niches)
            if not left:
                break
            best = max(left, key=lambda point: (self.value(point), point.candidate))
            point = rng.choice(left) if rng.random() < epsilon else best
            chance = epsilon / len(left) + (1 - epsilon) * (point is best)
            picks.append(Pick(candidate=point.candidate, propensity=chance))
            niches.add(point.niche)
        return tuple(picks)

    def archive(self) -> dict[str, str]:
        """The fastest of each niche: niche to hash."""
        fastest: dict[str, StartPoint] = {}
        for point in self.points:
            if point.niche not in fastest or point.median_ms < fastest[point.niche].median_ms:
                fastest[point.niche] = point
        return {niche: point.candidate for niche, point in fastest.items()}

    def _left(self, hidden: set[str], niches: set[str]) -> list[StartPoint]:
        shown = [point for point in self.points if point.candidate not in hidden]
        alive = [point for point in shown if not point.is_pruned] or shown
        return [point for point in alive if point.niche not in niches] or alive


def _children(told: list[tuple[bool, float]]) -> dict[str, float]:
    return {
        "children": len(told),
        "failing": sum(not feasible for feasible, _ in told),
        "best_child": max(0.0, *(gain for _, gain in told)),
    }
