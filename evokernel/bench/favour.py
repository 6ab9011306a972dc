"""Owns the comparison of the two kinds of blocks: who tells them apart must gain nothing by it.

The number comes from blocks in which workers supply themselves, since a message wakes a worker's
threads in an unlucky way; what a worker's clock says there is its own word. In the other blocks the
parent's clock bounds it (see `wallclock`). A side that is faster against the same opponent in the
first kind than in the second has a clock, values or caches of its own making there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evokernel.bench import statistics
from evokernel.bench.series import CANDIDATE, Series
from evokernel.bench.wallclock import LEAST_TURNS, lower_bound

SHARE, SECONDS = 0.1, 1e-4
"""What a side may gain in the blocks that make the number: share of a call's time, plus seconds.
Threads that still wait for work after the caches were emptied begin sooner than those that a
message wakes."""


@dataclass(frozen=True)
class Favour:
    """How much faster than an opponent a side is in one kind of blocks, and in the other."""

    opponent: str
    alone: float
    """Median ratio where workers supply themselves."""
    watched: float
    """Median ratio where everything is supplied to them."""
    least: float
    """What the first surely is of the second: the quotient of their one-sided 99 % bounds."""
    allowed: float
    count: int
    """Blocks of the rarer kind in which both sides were left alone; 0 if there were none."""

    @property
    def is_sure(self) -> bool:
        """Whether there were enough of them for the bounds to be such."""
        return self.count >= LEAST_TURNS

    @property
    def is_too_much(self) -> bool:
        """Whether it is surely more than is allowed."""
        return self.least > self.allowed

    def in_words(self) -> str:
        """The two figures, and what may lie between them."""
        return (
            f"{self.alone:.3g}x as fast as `{self.opponent}` where its process empties the caches "
            f"and takes the time by itself, {self.watched:.3g}x where that is done from outside; a "
            f"factor of {self.allowed:.3g} is allowed"
        )


def favour(
    series: Series, seconds: float, opponents: Sequence[str], side: str = CANDIDATE
) -> Favour | None:
    """Compare the kinds of blocks, against the opponent that shows the least.

    Args:
        series: What was measured.
        seconds: Time of one call as the worker told it.
        opponents: Whom the side is compared with.
        side: Whose calls.

    Returns:
        None where there is one kind only, or nobody to compare with.
    """
    found = [made for other in opponents if (made := _against(series, seconds, other, side))]
    return min(found, key=lambda one: one.least, default=None)


def _against(series: Series, seconds: float, opponent: str, side: str) -> Favour | None:
    alone, few = _ratios(series, opponent, side, is_watched=False)
    watched, fewer = _ratios(series, opponent, side, is_watched=True)
    if not alone or not watched:
        return None
    return Favour(
        opponent=opponent,
        alone=statistics.median(alone),
        watched=statistics.median(watched),
        least=lower_bound(alone) / -lower_bound([-ratio for ratio in watched]),
        allowed=1 + SHARE + SECONDS / seconds,
        count=min(few, fewer),
    )


def _ratios(series: Series, opponent: str, side: str, is_watched: bool) -> tuple[list[float], int]:
    """Ratios of the clean blocks of one kind, else of all, and the number of clean ones."""
    blocks = [b for b in series.blocks if b.is_watched == is_watched]
    clean = [b for b in blocks if b.clean[side] and b.clean[opponent]]
    return [b.seconds[opponent] / b.seconds[side] for b in clean or blocks], len(clean)
