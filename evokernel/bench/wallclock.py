"""Owns the look at a worker's time from outside: batches by the parent's clock."""

from dataclasses import dataclass

from evokernel.bench import disturbance
from evokernel.bench.oracle import Case
from evokernel.bench.pool import Worker

BATCH_S = 0.02
"""Shortest batch for which the parent's clock is trusted."""
CLOCK_TRIES = 3


@dataclass(frozen=True)
class ClockCheck:
    """The parent's look at a batch of calls."""

    seconds: float
    """Wall seconds per call by the parent's clock, the null call subtracted; the best of some."""
    is_disturbed: bool
    """The machine was busy with other things, so that the figure is no upper limit."""


def check_clock(worker: Worker, case: Case, seconds: float) -> ClockCheck:
    """Time batches of at least `BATCH_S` from outside, against the worker's own figure.

    Args:
        worker: The candidate's worker, warmed up.
        case: A timed set that was put.
        seconds: Time of one call as the worker told it.
    """
    calls = max(1, min(4096, round(1.2 * BATCH_S / max(seconds, 1e-7))))
    best, is_disturbed = float("inf"), True
    for _ in range(CLOCK_TRIES):
        before = disturbance.read(worker.usage().cpu_s)
        null = worker.null_batch(calls).wall_s
        wall = worker.batch(case.name, calls).wall_s
        seen = disturbance.between(before, disturbance.read(worker.usage().cpu_s))
        best = min(best, max(wall - null, 0.0) / calls)
        is_disturbed = is_disturbed and seen.stalled_s + seen.stolen_s > 0.1 * wall
        if wall < BATCH_S:
            calls = min(65536, calls * max(2, round(1.2 * BATCH_S / max(wall, 1e-6))))
        elif best <= seconds:
            break
    return ClockCheck(seconds=best, is_disturbed=is_disturbed)
