"""Owns `StartTable`: what each start point of one run is worth, and which to refine next.

Kept apart from the experiences' Q2, which the paper mixes with it: they are unlike things.
"""

import math
import random
from collections.abc import Collection, Iterable

from evokernel.config import StartRule
from evokernel.frozen import Frozen

FIRST_GAIN = 0.1
"""ln-gain that a start point may still be hoped to give before any child says otherwise (ours)."""

FIRST_CHILDREN = 1.0
"""Children that the gain of its own making counts as, with the `bandit` (ours)."""

CONFIDENCE = 0.05
"""c of the bound, on the scale of ln-gains: small, since most gains are (ours)."""

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
    advance: float = 0.0
    """Sum over its children of how far each moved the run's best, ln; never below 0."""

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

    def __init__(self, points: Iterable[StartPoint] = (), rule: StartRule = "hope") -> None:
        self.rule = rule
        """By what they are valued."""
        self._points: dict[str, StartPoint] = {}
        self._values: dict[str, float] = {}
        self._told = 0
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

    def tell(
        self, parent: str, feasible: bool, gain: float | None, advance: float | None = None
    ) -> None:
        """Put a child to its parent, if that is one of these.

        Args:
            parent: Hash of the parent.
            feasible: Whether the child was.
            gain: ln(parent / child); None where one of the two times is missing.
            advance: ln(best / child), at least 0; None where older versions did not log it, which
                then counts as the gain.
        """
        if advance is None:
            advance = max(0.0, gain or 0.0)
        if (point := self._points.get(parent)) is not None:
            known = {
                "children": point.children + 1,
                "failing": point.failing + (not feasible),
                "best_child": max(point.best_child, gain or 0.0),
                "advance": point.advance + advance,
            }
            self._points[parent] = point.model_copy(update=known)
            self._told += 1
            if self.rule == "bandit":
                self._values.clear()  # the number of all children is in every bound
            self._values.pop(parent, None)

    def value(self, point: StartPoint) -> float:
        """ln-scale: how far it is behind the best, plus the hope for a gain.

        By `hope` that is the best gain seen around it (its own making, its children), at least
        `FIRST_GAIN`, divided by 1 + children: what was tried often promises little more. The
        child-count discount is ShinkaEvolve's (arXiv 2509.19349), the sum is ours. By `bandit` it
        is an upper confidence bound.
        """
        if (known := self._values.get(point.candidate)) is not None:
            return known
        if self.rule == "bandit":
            hope = self._bound(point)
        else:
            hope = max(point.best_child, point.gain, FIRST_GAIN) / (1 + point.children)
        value = hope - math.log(point.median_ms / self.best_ms)
        self._values[point.candidate] = value
        return value

    def _bound(self, point: StartPoint) -> float:
        """The hope g / (1 + children) + c sqrt(ln(1 + all children) / (1 + children)).

        g is the mean advance of its children over the run's best, shrunk to the gain of the step
        that made it: what it promised counts as `FIRST_CHILDREN` children. The bound is that of
        UCB1 (Auer et al., 2002); the discount by children is ShinkaEvolve's (arXiv 2509.19349).
        Advance, shrinkage and c are ours. Apart from the values of experiences, which the paper
        mixes with it (EvoKernel, arXiv 2603.10846, has one Q2 for both).
        """
        promised = FIRST_CHILDREN * max(point.gain, FIRST_GAIN)
        mean = (point.advance + promised) / (point.children + FIRST_CHILDREN)
        tried = 1 + point.children
        return mean / tried + CONFIDENCE * math.sqrt(math.log(1 + self._told) / tried)

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
        if self.rule == "bandit":
            alive += self._other_niche(alive, shown)
        return [point for point in alive if point.niche not in niches] or alive

    def _other_niche(
        self, alive: Collection[StartPoint], shown: Collection[StartPoint]
    ) -> list[StartPoint]:
        """The fastest of another niche where those that are alive are all of one: two are kept."""
        niches = {point.niche for point in alive}
        others = [point for point in shown if point.niche not in niches]
        return (
            [min(others, key=lambda point: point.median_ms)] if others and len(niches) < 2 else []
        )
