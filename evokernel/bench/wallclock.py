"""Owns the comparison of a worker's own clock with the parent's: turn by turn, and over batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evokernel.bench import disturbance, statistics
from evokernel.bench.oracle import Case
from evokernel.bench.pool import Worker
from evokernel.bench.series import CANDIDATE, IDLE, Series

TURN_SHARE, TURN_S = 0.04, 2.5e-4
"""What the parent's clock may see of a call beyond the worker's and beyond an idle call: share of
the call's time, plus seconds. The way back runs through caches that the call has emptied."""
BATCH_SHARE, BATCH_S = 1.25, 1e-4
"""A call of a batch may take this factor of a repetition's time, plus seconds, by the parent's
clock. A repetition starts with cold caches and a batch with warm ones, so that an honest batch is
faster."""
LEAST_S = 0.02
"""Shortest batch for which the parent's clock is trusted."""
LEAST_CALLS, MOST_S = 12, 1.0
"""Calls of a batch, as long as they take no more seconds: the worker is woken by a message, its
first call often begins with two threads on one core, and one of three would look like a lie."""
MOST_CALLS = 65536
TRIES = 6
STALLED, FOREIGN_CORES = 0.02, 0.1
"""What an undisturbed look may show: share of its time in which work waited for a core or the host
took it, and cores that others kept busy."""
AGREE, ALIKE = 3, 1.15
"""Undisturbed looks at a batch that accuse, and how far apart their figures may lie."""
LEAST_TURNS = 7
"""Turns that accuse: the smallest of fewer lies above the median by chance in over 1 % of cases."""
LEAST_CALL_S = 2e-4
"""Shortest call whose use of the processors is told."""
CHANCE = 0.01
"""Probability with which the median may lie below its lower bound."""


@dataclass(frozen=True)
class Extra:
    """What the parent's clock saw of the calls of one side beyond the worker's, in seconds."""

    median_s: float
    least_s: float
    """Lower bound of the median, one-sided 99 %."""
    allowed_s: float
    count: int
    """Blocks it rests on in which the side was left alone; 0 if there were none."""

    @property
    def is_sure(self) -> bool:
        """Whether there were enough of them for the bound to be one."""
        return self.count >= LEAST_TURNS

    @property
    def is_too_much(self) -> bool:
        """Whether it is surely more than is allowed."""
        return self.least_s > self.allowed_s


def extra(series: Series, seconds: float, side: str = CANDIDATE) -> Extra:
    """Compare turn by turn, each with the idle call of its block.

    Args:
        series: What was measured; blocks count that were supplied from outside, if there are any
            of them those in which the side was left alone.
        seconds: Time of one call as the worker told it.
        side: Whose calls.
    """
    watched = [b for b in series.blocks if b.is_watched]
    clean = [b for b in watched if b.clean[side]]
    blocks = clean or watched
    found = [b.turns[side].outside_s - b.turns[IDLE].outside_s for b in blocks]
    return Extra(
        median_s=statistics.median(found),
        least_s=lower_bound(found),
        allowed_s=TURN_SHARE * seconds + TURN_S,
        count=len(clean),
    )


def excess_cores(series: Series, threads: int, side: str = CANDIDATE) -> float:
    """How many cores more than its threads a side surely keeps busy while it is called.

    Args:
        series: What was measured; calls count that were supplied from outside, less an idle call
            each, if they are long enough for the clocks.
        threads: What each side was given.
        side: Whose calls.

    Returns:
        The lower bound of the median, one-sided 99 %; never positive with fewer than seven calls.
    """
    blocks = [b for b in series.blocks if b.is_watched and b.clean[side]]
    pairs = [(b.turns[side], b.turns[IDLE]) for b in blocks]
    found = [
        (turn.cpu_s - idle.cpu_s) / (turn.wall_s - idle.wall_s) - threads
        for turn, idle in pairs
        if turn.wall_s - idle.wall_s > LEAST_CALL_S
    ]
    return lower_bound(found) if len(found) >= LEAST_TURNS else min([0.0, *found])


def lower_bound(values: Sequence[float]) -> float:
    """A bound below the median of where the values come from, by their order alone.

    Of n values the k-th smallest lies above the median with the probability that fewer than k of n
    fair coins show heads (the sign test; Conover, Practical Nonparametric Statistics, section 3.2).
    With fewer than seven values it is the smallest.
    """
    ordered, count = sorted(values), len(values)
    rank, chance = 0, 2.0**-count
    while rank + 1 < count:
        chance += math.comb(count, rank + 1) * 2.0**-count
        if chance > CHANCE:
            break
        rank += 1
    return ordered[rank]


@dataclass(frozen=True)
class ClockCheck:
    """The parent's looks at batches of calls."""

    seconds: float
    """Wall seconds per call by the parent's clock, the null call subtracted; the best look."""
    undisturbed: tuple[float, ...]
    """The looks in which the machine did nothing else."""

    @property
    def is_sure(self) -> bool:
        """Whether enough undisturbed looks agree with each other."""
        looks = self.undisturbed
        return len(looks) >= AGREE and max(looks) <= ALIKE * min(looks)


def allowed(seconds: float) -> float:
    """What a call of a batch may take whose repetition took so many seconds."""
    return BATCH_SHARE * seconds + BATCH_S


def _calls(seconds: float) -> int:
    long_enough = round(1.2 * LEAST_S / max(seconds, 1e-7))
    return max(1, min(4096, max(long_enough, min(LEAST_CALLS, round(MOST_S / max(seconds, 1e-7))))))


def check_clock(worker: Worker, case: Case, seconds: float) -> ClockCheck:
    """Time batches from outside, until one agrees with the worker's figure or all looks are done.

    Args:
        worker: The candidate's worker, warmed up.
        case: A timed set that was put.
        seconds: Time of one call as the worker told it.
    """

    def look(calls: int) -> tuple[float, float]:
        return worker.null_batch(calls).wall_s, worker.batch(case.name, calls).wall_s

    def more(calls: float) -> int:
        return min(MOST_CALLS, round(calls))

    found = looked(worker, _calls(seconds), allowed(seconds), look, more)
    assert found is not None
    return found


def looked(
    worker: Worker,
    calls: int,
    allowed_s: float,
    look: Callable[[int], tuple[float, float] | None],
    more: Callable[[float], int],
) -> ClockCheck | None:
    """Look until a call takes no more than is allowed, or all looks are done.

    Args:
        worker: Whose own processor time is not foreign.
        calls: How many the first look takes.
        allowed_s: Seconds that a call may take.
        look: Wall seconds of the way alone and of so many calls; None where they cannot be made.
        more: A number of calls that `look` can take, near the one it is given.
    """
    best, undisturbed = float("inf"), []
    for _ in range(TRIES):
        before = disturbance.read(worker.usage().cpu_s)
        if (walls := look(calls)) is None:
            return None
        null, full = walls
        seen = disturbance.between(before, disturbance.read(worker.usage().cpu_s))
        took = max(full - null, 0.0)
        best = min(best, took / calls)
        if took < LEAST_S:
            calls = more(calls * max(2.0, 1.2 * LEAST_S / max(took, 1e-6)))
            continue
        if best <= allowed_s:
            break
        if seen.stalled_s + seen.stolen_s <= STALLED * full and seen.foreign_cores <= FOREIGN_CORES:
            undisturbed.append(took / calls)
    return ClockCheck(seconds=best, undisturbed=tuple(undisturbed))
