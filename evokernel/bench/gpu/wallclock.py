"""Owns the question whether device times are believed: from outside, by the parent's clock.

A worker's events say how long a call took on the device, its own clock how long from launch to end.
Both are compared with batches of at least 20 ms that the parent times, the null call subtracted:

- launched one by one, a call takes no longer than the worker's wall time says;
- replayed from a graph, where the host has nothing to do, no longer than its device time says.

What cannot be captured shows its device time only where the device is the bottleneck of the batch.
Elsewhere its wall time counts: it is the one that was seen. Batches find warm caches, so that an
honest one is the faster. Work that other streams still do when a call's own stream has come to its
end belongs to the call, and whoever reads its output does not wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from evokernel.bench import statistics
from evokernel.bench.doubts import disagreement, wrong_batch
from evokernel.bench.messages import CAPTURED, Way
from evokernel.bench.oracle import Case
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.series import CANDIDATE, Series
from evokernel.bench.trials import Failure
from evokernel.bench.wallclock import (
    LEAST_S,
    LEAST_TURNS,
    ClockCheck,
    check_clock,
    looked,
    lower_bound,
)
from evokernel.evaluation import Status

REPLAY_SHARE, REPLAY_S = 1.25, 6e-6
"""A call of a replayed graph may take this factor of its device time, plus seconds: what lies
between two kernels of a graph, and an eighth of what lies between two graphs."""
LATE_SHARE, LATE_S = 0.05, 8e-6
"""Device time for which other streams may go on after a call: share of its time, plus seconds that
recording an event for all of them takes (seen: 1.6 us on an H200)."""
BETWEEN, BETWEEN_S = 0.0015, {"graph": 5e-8, "batch": 1e-7, "single": 1e-7}
"""Standard deviation of the log ratio between fresh processes, as `race.BETWEEN`: a share, and
seconds over the time of a call. Measured on an H200 over 16 processes of a kernel that doubles a
tensor, for each of the two sides: 0.3 % of 13 us out of a graph, 0.7 % in a batch, 0.15 % of 95 us,
0.05 % of 0.94 ms."""
MOST_REPLAYS = 1 << 16
ON_WALLS = (
    "its device time cannot be seen from outside (it cannot be captured in a CUDA graph, and the "
    "host takes longer than the device): its wall time counts"
)


@dataclass(frozen=True)
class Late:
    """For how long other streams went on after the calls of one side, in seconds."""

    median_s: float
    least_s: float
    """Lower bound of the median, one-sided 99 %."""
    allowed_s: float
    count: int

    @property
    def is_too_much(self) -> bool:
        """Whether it is surely more than is allowed."""
        return self.least_s > self.allowed_s

    @property
    def is_sure(self) -> bool:
        """Whether there were enough calls."""
        return self.count >= LEAST_TURNS


def late(series: Series, seconds: float, side: str = CANDIDATE) -> Late:
    """What was left on other streams.

    Args:
        series: What was measured.
        seconds: Device time of one call.
        side: Whose calls.
    """
    found = [block.late[side] for block in series.blocks]
    return Late(
        median_s=statistics.median(found),
        least_s=lower_bound(found),
        allowed_s=LATE_SHARE * seconds + LATE_S,
        count=len(found),
    )


def disbelieved(
    worker: Worker, case: Case, series: Series, side: str, is_second: bool, pace: Pace
) -> Failure | None:
    """Why the times of one side are not believed; where nothing shows them, its wall times count.

    Args:
        worker: The side's worker, as it is after it was timed.
        case: A timed set that was put.
        series: What was measured; may be changed.
        side: Whose times.
        is_second: The first look gave a reason to look again.
        pace: How much calm is demanded.

    Raises:
        Faulted: It keeps us from looking.
    """
    device_s = statistics.median(series.times(side) or series.times(side, tolerant=True))
    wall_s = statistics.median(series.walls(side) or series.walls(side, tolerant=True))
    if failure := left_behind(late(series, device_s, side), is_second, pace):
        return failure
    batch = check_clock(worker, case, wall_s)
    if failure := wrong_batch(batch, wall_s, pace):
        return failure
    replayed = check_replays(worker, case, device_s)
    if replayed is not None:
        return wrong_replays(replayed, device_s, pace)
    if batch.seconds > allowed(device_s):
        series.count_walls(side)
    return None


def between(seconds: float, way: Way) -> float:
    """How much a ratio differs between fresh processes of a call that takes so many seconds."""
    return BETWEEN + BETWEEN_S[way] / seconds


def allowed(seconds: float) -> float:
    """What a replayed call may take whose device time is so many seconds."""
    return REPLAY_SHARE * seconds + REPLAY_S


def left_behind(found: Late, is_second: bool, pace: Pace) -> Failure | None:
    """Accuse of work that is left on other streams, once a second look has shown it again."""
    if not found.is_too_much:
        return None
    told = (
        f"when its own stream has come to its end, other streams work on for "
        f"{1e3 * found.median_s:.4g} ms, {1e3 * found.allowed_s:.4g} ms are allowed"
    )
    if is_second and found.is_sure:
        text = f"it leaves work behind that its output does not wait for: {told}"
        return Failure(Status.CONTRACT, text)
    return disagreement(told, False, pace)


def wrong_replays(found: ClockCheck, seconds: float, pace: Pace) -> Failure | None:
    """Compare replays by the parent's clock with the worker's events."""
    if found.seconds <= allowed(seconds):
        return None
    told = (
        f"{1e3 * found.seconds:.4g} ms a call from outside, replayed from a graph with warm "
        f"caches, {1e3 * seconds:.4g} ms by events with cold ones"
    )
    return disagreement(told, found.is_sure, pace)


def check_replays(worker: Worker, case: Case, seconds: float) -> ClockCheck | None:
    """Time replays from outside, until one agrees with the events or all looks are done.

    Args:
        worker: The candidate's worker, warmed up.
        case: A timed set that was put.
        seconds: Device time of one call as the worker told it.

    Returns:
        None where its calls cannot be captured.
    """

    def look(calls: int) -> tuple[float, float] | None:
        null = worker.replay(case.name, CAPTURED)
        full = worker.replay(case.name, calls + CAPTURED)
        return None if null is None or full is None else (null.wall_s, full.wall_s)

    first = _steps(1.2 * LEAST_S / max(seconds, 1e-7))
    return looked(worker, first, allowed(seconds), look, _steps)


def _steps(calls: float) -> int:
    """So many calls, in whole graphs."""
    return max(1, min(MOST_REPLAYS, round(calls)) // CAPTURED) * CAPTURED
