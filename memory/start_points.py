"""Owns `StartTable`: what each start point of one run is worth, and which to refine next.

Kept apart from the experiences' Q2, which the paper mixes with it: they are unlike things.
"""

import math
import random
from collections.abc import Collection, Iterable

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

    def __init__(self, points: Iterable[StartPoint] = ()) -> None:
        self._points: dict[str, StartPoint] = {}
        self._values: dict[str, float] = {}
        self.best_ms = math.inf
        self.watermark = 0
        """Number of the last event taken in."""
        for point in points:
            self.enter(point)

    @property
    def points(self) -> tuple[StartPoint, ...]:
        """All of them, oldest first."""
        return tuple(self._points.values())

    def enter(self, point: StartPoint) -> None:
        """Take in a new one."""
        self._points[point.candidate] = point
        if point.median_ms < self.best_ms:
            self.best_ms = point.median_ms
            self._values.clear()

    def tell(self, parent: str, feasible: bool, gain: float | None) -> None:
        """Put a child to its parent, if that is one of these.

        Args:
            parent: Hash of the parent.
            feasible: Whether the child was.
            gain: ln(parent / child); None where one of the two times is missing.
        """
        if (point := self._points.get(parent)) is not None:
            known = {
                "children": point.children + 1,
                "failing": point.failing + (not feasible),
                "best_child": max(point.best_child, gain or 0.0),
            }
            self._points[parent] = point.model_copy(update=known)
            self._values.pop(parent, None)

    def value(self, point: StartPoint) -> float:
        """ln-scale: how far it is behind the best, plus the hope for a gain.

        The hope is the best gain seen around it (its own making, its children), at least
        `FIRST_GAIN`, divided by 1 + children: what was tried often promises little more. The
        child-count discount is ShinkaEvolve's (arXiv 2509.19349), the sum is ours.
        """
        if (known := self._values.get(point.candidate)) is not None:
            return known
        hope = max(point.best_child, point.gain, FIRST_GAIN) / (1 + point.children)
        value = hope - math.log(point.median_ms / self.best_ms)
        self._values[point.candidate] = value
        return value

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
