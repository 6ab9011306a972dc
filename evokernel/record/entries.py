"""Owns the small records that only a run folder holds, and the clock that dates them."""

import time
from typing import Any, Protocol

from evokernel.attempt import Attempt
from evokernel.config import RunConfig
from evokernel.evaluation import Promotion
from evokernel.frozen import Frozen

Event = dict[str, Any]
"""Plain values: `at` (seconds since 1970), `elapsed` (seconds of the run), `kind`, and its own."""


class Clock(Protocol):
    """What a run reads the time from."""

    def now(self) -> float:
        """Seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic()


class Header(Frozen):
    """`run.json`: what the run was asked to do, and where it ran."""

    id: str
    created: str
    """UTC, ISO 8601."""
    harness: str
    """Version of EvoKernel."""
    config: RunConfig
    environment: dict[str, str] = {}
    """Machine, interpreter, packages and device."""
    task_faults: tuple[str, ...] = ()
    """Checks of `evokernel task doctor` that the task failed, and was run all the same."""

    @property
    def label(self) -> str:
        """What every result of this run has to carry; empty where the task passed its check."""
        return label_of(self.task_faults)


def label_of(task_faults: tuple[str, ...]) -> str:
    """What results of a task carry that failed these checks; empty where there are none."""
    return f"task failed its check: {', '.join(task_faults)}" if task_faults else ""


class Ending(Frozen):
    """`attempt.json`: what closes a step, and makes it an attempt that counts."""

    number: int
    step: str
    trajectory: int
    shown: tuple[str, ...] = ()
    reward: float | None = None
    repeats: int | None = None
    """Number of the attempt that had proposed the same source; its evaluation was used again."""


class Skipped(Frozen):
    """`skipped.json`: what closes a step for which the proposer had nothing new."""

    number: int
    option: str
    """What it had been asked for."""


class Batch(Frozen):
    """`promotions/<n>.json`: the answers to the claims that were looked at again together."""

    answers: tuple[Promotion, ...]


def lead(attempt: Attempt, second_look: Promotion | None) -> float | None:
    """How many times faster than eager, or None for a kernel that cannot be the best.

    The fresh processes of a promotion count more than the first measurement, which picked the
    winner and so flatters it; a ratio of alternating times compares different hours better than two
    medians.
    """
    timing = attempt.evaluation.timing
    if timing is None or (second_look and not second_look.holds):
        return None
    if second_look and second_look.ratio:
        return second_look.ratio.value
    speedup = timing.against("eager")
    return speedup.ratio.value if speedup else 1 / timing.median_ms
