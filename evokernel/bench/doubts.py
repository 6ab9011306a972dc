"""Owns the reasons not to believe a time: clocks, kinds of blocks or cores that do not fit."""

from __future__ import annotations

from evokernel.bench.favour import Favour
from evokernel.bench.pace import Pace
from evokernel.bench.trials import Failure
from evokernel.bench.wallclock import ClockCheck, Extra, allowed
from evokernel.evaluation import Status

MORE_CORES = 0.15
"""Cores beyond the given ones that a call may seem to keep busy: clocks differ by so much."""


def wrong_turns(found: Extra, seconds: float, is_second: bool, pace: Pace) -> Failure | None:
    """Compare the parent's clock with the worker's, turn by turn.

    Args:
        found: What the parent's clock saw beyond the worker's.
        seconds: Time of one call as the worker told it.
        is_second: Whether an earlier look said the same.
        pace: How much calm is demanded.
    """
    if not found.is_too_much:
        return None
    told = (
        f"{1e3 * seconds:.4g} ms a call from inside, {1e3 * found.median_s:.4g} ms more from "
        f"outside, {1e3 * found.allowed_s:.4g} ms more are allowed"
    )
    return disagreement(told, is_second and found.is_sure, pace)


def wrong_kind(found: Favour | None, is_second: bool, pace: Pace) -> Failure | None:
    """Compare the two kinds of blocks.

    Args:
        found: What one kind shows of the other, if there are both.
        is_second: Whether an earlier look said the same.
        pace: How much calm is demanded.
    """
    if found is None or not found.is_too_much:
        return None
    return disagreement(found.in_words(), is_second and found.is_sure, pace)


def wrong_batch(clock: ClockCheck, seconds: float, pace: Pace) -> Failure | None:
    """Compare the parent's wall time over batches with what the worker's clock said."""
    if clock.seconds <= allowed(seconds):
        return None
    told = (
        f"{1e3 * clock.seconds:.4g} ms a call from outside with warm caches, "
        f"{1e3 * seconds:.4g} ms from inside with cold ones"
    )
    return disagreement(told, clock.is_sure, pace)


def wrong_cores(surely: float, threads: int) -> Failure | None:
    """Compare what a call took of the processors with the threads that it was given.

    Args:
        surely: Cores that it kept busy at least, beyond those that its threads may.
        threads: Those that it was given.
    """
    if surely <= MORE_CORES:
        return None
    text = (
        f"a call keeps {threads + surely:.1f} cores busy, and the measurement gives {threads} "
        "threads to each side; let kernels take as many as OpenMP or torch say"
    )
    return Failure(Status.CONTRACT, text)


def disagreement(told: str, is_sure: bool, pace: Pace) -> Failure | None:
    """What clocks that disagree come to: an accusation, if sure; else the machine was too busy."""
    if is_sure:
        return Failure(Status.CONTRACT, f"the clocks disagree: {told}; the time is not believed")
    if not pace.is_strict:
        return None
    text = f"the machine was too busy to compare the clocks ({told})"
    return Failure(Status.INFRASTRUCTURE, text)
