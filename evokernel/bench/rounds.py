"""Owns the rounds of a timing: how many, after which warming up, on which inputs, what is kept."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from evokernel.bench import statistics
from evokernel.bench.messages import Faulted, TimePlan, Variant
from evokernel.bench.oracle import Case, Oracle
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.series import CANDIDATE, Series
from evokernel.errors import WorkerError

Rivals = Mapping[str, Sequence[str]]
"""By candidate, the sides that it is compared with."""

WINDOW_S = 0.5
"""Length of the windows in which foreign core time is judged; see the ticks in `disturbance`."""
KNOWN, KEPT = 1 / 3, 3 / 4
"""Share of the blocks on values whose results are known, and of the outputs of these that are kept.
Such values come again: whoever remembers results gains in fewer blocks than move a median."""
KEPT_BYTES, LEAST_KEPT = 64 << 20, 2
"""Memory for kept outputs of one side, and how many are kept however large they are."""
PATIENCE = 3
"""Times the least number of blocks that is tried before a busy machine is given up."""


@dataclass(frozen=True)
class Draw:
    """The inputs of one round."""

    case: Case
    variant: Variant
    is_kept: bool
    """Outputs of the candidates are wanted for checking."""


class Rounds:
    """The rounds of one timed section.

    Args:
        oracle: Says how inputs vary, and which outputs can be checked.
        pace: How long, and how calm.
        rng: Draws inputs and kept outputs.
        rivals: Who is compared with whom.
    """

    def __init__(self, oracle: Oracle, pace: Pace, rng: random.Random, rivals: Rivals) -> None:
        self._oracle = oracle
        self._pace = pace
        self._rng = rng
        self._rivals = rivals
        self._draws = range(len(oracle.timed_cases()))
        self._forgotten = 0

    def forget(self, count: int) -> None:
        """So many rounds do not count."""
        self._forgotten += count

    def numbers(self, series: Series) -> Iterator[int]:
        """Numbers of the rounds; ends when there is enough of them."""
        pace = self._pace
        deadline = time.monotonic() + pace.limit_s
        last = deadline + max(pace.limit_s, 2 * WINDOW_S)
        for number in itertools.count():
            yield number
            now, done = time.monotonic(), number + 1 - self._forgotten
            if self._is_tight(series, done):
                return
            if now > deadline and self._clean(series) >= pace.least:
                return
            if now > deadline and not pace.is_strict and done >= pace.least:
                return
            if now > last and done >= PATIENCE * pace.least:
                return

    def draw(self, series: Series, number: int) -> Draw:
        """Inputs for a round that nobody can foresee."""
        draw = self._rng.randrange(len(self._oracle.timed_cases()))
        case = self._oracle.timed_cases()[draw]
        checkable = self._rng.random() < KNOWN or self._must_keep(series, number)
        if checkable:
            case = self._rng.choice(self._oracle.checkable(draw))
        variant = case.variant or self.fresh()
        if self._wants_new(series) and not checkable:
            case, checkable = replace(case, variant=variant), True
        variant = variant.model_copy(update={"slot": self._rng.randrange(1 << 16)})
        wanted = checkable and (self._rng.random() < KEPT or self._must_keep(series, number))
        return Draw(case, variant, wanted)

    def fresh(self) -> Variant:
        """Values that never come again."""
        return self._oracle.variant(str(self._rng.getrandbits(62)))

    def _clean(self, series: Series) -> int:
        """Clean blocks of the worst comparison, those of the open window not included."""
        groups = [(side, *others) for side, others in self._rivals.items()]
        return min(map(series.clean, groups or [()]))

    def _is_tight(self, series: Series, number: int) -> bool:
        if number % 8 or not any(self._rivals.values()):
            return False
        return half_width(series, self._rivals, self._pace) <= self._pace.tight

    def _wants_new(self, series: Series) -> bool:
        """Whether an output of values that never come again is still to be kept, where it is cheap.

        Who tells by values that return which calls are checked has to be right in the others too.
        """
        known = [case for draw in self._draws for case in self._oracle.checkable(draw)]
        kept = [case for outputs in series.outputs.values() for case, _ in outputs]
        return not self._oracle.is_large and all(case in known for case in kept)

    def _must_keep(self, series: Series, number: int) -> bool:
        """The last block that surely comes keeps what chance has not."""
        return number >= self._pace.least - 1 and not series.outputs


def half_width(series: Series, rivals: Rivals, pace: Pace) -> float:
    """Largest relative half width of the ratios' intervals so far; infinite with too few blocks."""
    widest = 0.0
    for side, opponent in ((side, other) for side, others in rivals.items() for other in others):
        pairs = series.pairs(opponent, side, tolerant=not pace.is_strict)
        if len(pairs) < pace.least:
            return float("inf")
        interval = statistics.ratio_interval([pairs], resamples=400)
        widest = max(widest, (interval.high - interval.low) / (2 * interval.value))
    return widest


def most_kept(oracle: Oracle, pace: Pace) -> int:
    """How many outputs of one side are kept."""
    size = sum(oracle.expected(oracle.checkable(0)[0]).output_bytes)
    return min(pace.kept, max(LEAST_KEPT, KEPT_BYTES // max(size, 1)))


def warm_up(
    sides: Mapping[str, Worker],
    oracle: Oracle,
    pace: Pace,
    candidates: Collection[str] = (CANDIDATE,),
) -> None:
    """Call each side on each timed set, so that memory and thread pools are as later."""
    for side, worker in sides.items():
        for case in oracle.timed_cases():
            variant = oracle.variant(f"warm/{case.draw}")
            plan = TimePlan(variants=(variant,), warmups=0 if case.draw else pace.warmups)
            with blamed(side, candidates):
                worker.time(case.name, plan)


@contextmanager
def blamed(side: str, candidates: Collection[str]) -> Iterator[None]:
    """Keep an opponent's failure from being taken for a candidate's."""
    try:
        yield
    except Faulted as error:
        if side in candidates:
            raise
        raise WorkerError(f"`{side}`, which it is timed against, failed: {error}") from error
