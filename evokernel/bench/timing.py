"""Owns paired timing: all sides alternate in random order on the same fresh inputs.

A block is one repetition of each side, in random order, on one draw of the timed inputs: a set, an
address, and a change of sign, scale and offset that no candidate can foresee. Ratios are formed
within blocks. Disturbed repetitions are dropped; too few clean ones make no number at all.

Inputs are written, caches emptied and outputs read from outside (see `stage`), and what a side does
between its turns is counted (see `turns`).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from evokernel.bench import disturbance, statistics
from evokernel.bench.disturbance import Signs
from evokernel.bench.messages import Faulted, Repetition, TimePlan, Turn, Variant
from evokernel.bench.oracle import Case, Oracle
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.series import CANDIDATE, IDLE, Block, Series
from evokernel.bench.stage import Stage, Supply, calm
from evokernel.bench.turns import Turns
from evokernel.errors import WorkerError

Rivals = Mapping[str, Sequence[str]]
"""By candidate, the sides that it is compared with."""

WAIT_SHARE, WAIT_S = 0.05, 3e-4
"""Waiting for a core that a repetition may show: share of its time, plus seconds. Values are made
and caches flushed within the same request, so that their waits count as well."""
SWITCHES, SWITCH_RATE = 2, 100.0
"""Involuntary switches that it may show, and more for each second."""
WINDOW_S = 0.5
"""Length of the windows in which foreign core time is judged; see the ticks in `disturbance`."""
LEAST_WINDOW_S = 0.1
"""Shortest window, at a section's end, whose ticks say enough to be judged."""
FOREIGN_CORES = 0.3
STOLEN_SHARE = 0.05
KNOWN, KEPT = 1 / 3, 3 / 4
"""Share of the blocks on values whose results are known, and of the outputs of these that are kept.
Such values come again: whoever remembers results gains in fewer blocks than move a median."""
KEPT_BYTES, LEAST_KEPT = 64 << 20, 2
"""Memory for kept outputs of one side, and how many are kept however large they are."""
PATIENCE = 3
"""Times the least number of blocks that is tried before a busy machine is given up."""


def measure(
    sides: Mapping[str, Worker],
    oracle: Oracle,
    pace: Pace,
    stage: Stage,
    rng: random.Random,
    rivals: Rivals | None = None,
) -> Series:
    """Time all sides against each other; the caller holds the device lock.

    Args:
        sides: Workers by side; each has the oracle's timed sets put.
        oracle: Says how inputs vary, and which outputs can be checked.
        pace: How long, and how calm.
        stage: Empties the caches before each repetition, and says what the way to a call takes.
        rng: Draws order, inputs and kept outputs.
        rivals: Who is compared with whom; by default `CANDIDATE`, if it is there, with all others.

    Raises:
        Faulted: A candidate failed.
        WorkerError: Another side failed.
    """
    series = Series()
    if rivals is None:
        others = tuple(side for side in sides if side != CANDIDATE)
        rivals = {CANDIDATE: others} if CANDIDATE in sides else {}
    if pace.quiet_s > 0:
        series.restless = disturbance.wait_for_quiet(pace.quiet_s)
    warm_up(sides, oracle, pace, rivals)
    section = _Section(sides, oracle, pace, stage, rng, rivals)
    with calm():
        section.run(series)
    return series


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
            with _blamed(side, candidates):
                worker.time(case.name, plan)


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


class _Section:
    """One timed section: its blocks, and the windows in which foreign core time is judged."""

    def __init__(
        self,
        sides: Mapping[str, Worker],
        oracle: Oracle,
        pace: Pace,
        stage: Stage,
        rng: random.Random,
        rivals: Rivals,
    ) -> None:
        self._sides = sides
        self._turns = {side: Turns(worker) for side, worker in sides.items()}
        self._oracle = oracle
        self._pace = pace
        self._stage = stage
        self._supply = Supply(oracle, stage.is_reachable)
        self._most_kept = _most_kept(oracle, pace)
        self._held = self._forgotten = 0
        self._draws = range(len(oracle.timed_cases()))
        self._rng = rng
        self._rivals = rivals

    def run(self, series: Series) -> None:
        """Add blocks until the ratios are tight or the time is up."""
        started = window = self._signs()
        fresh: list[Block] = []
        try:
            for number in self._numbers(series):
                fresh.append(self._block(series, number))
                self._forget(series, fresh)
                if time.monotonic() - window.clock >= WINDOW_S:
                    window = self._close_window(series, fresh, window)
        finally:
            for turns in self._turns.values():
                turns.rest()
        if fresh:
            self._close_window(series, fresh, window)
        series.noise = disturbance.between(started, self._signs())
        series.is_outside = self._supply.is_outside

    def _forget(self, series: Series, fresh: list[Block]) -> None:
        """Drop what was measured beside a side that did not rest, now that it is held."""
        held = sum(turns.is_held for turns in self._turns.values())
        if held > self._held:
            self._held = held
            self._forgotten += len(series.blocks) + len(fresh)
            series.blocks.clear()
            fresh.clear()

    def _numbers(self, series: Series) -> Iterator[int]:
        """Numbers of the blocks; ends when there is enough of them."""
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

    def _clean(self, series: Series) -> int:
        """Clean blocks of the worst comparison, those of the open window not included."""
        groups = [(side, *others) for side, others in self._rivals.items()]
        return min(map(series.clean, groups or [()]))

    def _is_tight(self, series: Series, number: int) -> bool:
        if number % 8 or not any(self._rivals.values()):
            return False
        return half_width(series, self._rivals, self._pace) <= self._pace.tight

    def _block(self, series: Series, number: int) -> Block:
        draw = self._rng.randrange(len(self._oracle.timed_cases()))
        case = self._oracle.timed_cases()[draw]
        checkable = self._rng.random() < KNOWN or self._must_keep(series, number)
        if checkable:
            case = self._rng.choice(self._oracle.checkable(draw))
        variant = case.variant or self._oracle.variant(str(self._rng.getrandbits(62)))
        if self._wants_new(series) and not checkable:
            case, checkable = replace(case, variant=variant), True
        variant = variant.model_copy(update={"slot": self._rng.randrange(1 << 16)})
        wanted = checkable and (self._rng.random() < KEPT or self._must_keep(series, number))
        block = Block({}, {})
        is_watched = number % self._pace.watched == 0
        if is_watched:
            self._supply.make(case, variant)
        sides = [*self._sides, IDLE] if is_watched else [*self._sides]
        for side in self._rng.sample(sides, len(sides)):
            if side == IDLE:
                block.turns[side] = self._stage.call()
                continue
            with _blamed(side, self._rivals):
                self._repetition(block, side, case, variant, is_watched)
                if wanted and side in self._rivals:
                    self._keep(series, side, case, block.turns[side])
        return block

    def _repetition(
        self, block: Block, side: str, case: Case, variant: Variant, is_watched: bool
    ) -> None:
        """Time one repetition; note whether it was left alone."""
        turns = self._turns[side]
        if is_watched:
            self._supply.give(turns, case, variant)
            self._stage.flush()
        pids = turns.worker.pids
        before = disturbance.waited_seconds(pids)
        flush_bytes = self._stage.flush_bytes
        turn = turns.go() if is_watched else turns.alone(case.name, variant, flush_bytes)
        waited = disturbance.waited_seconds(pids) - before
        block.turns[side] = turn
        block.seconds[side] = turn.repetition.seconds
        # Threads that were stopped go on where it suits the system: that they wait for each other
        # is the doing of a side that does not rest by itself.
        block.clean[side] = _is_clean(turn.repetition, 0.0 if turns.is_held else waited)

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

    def _keep(self, series: Series, side: str, case: Case, turn: Turn) -> None:
        outputs = series.outputs.setdefault(side, [])
        if len(outputs) < self._most_kept:
            outputs.append((case, self._supply.take(self._turns[side], turn, case)))

    def _close_window(self, series: Series, fresh: list[Block], opened: Signs) -> Signs:
        """Judge the window as a whole, and move its blocks over."""
        now = self._signs()
        seen = disturbance.between(opened, now)
        is_calm = seen.seconds < LEAST_WINDOW_S or (
            seen.foreign_cores <= FOREIGN_CORES
            and seen.stolen_s + seen.throttled_s <= STOLEN_SHARE * seen.seconds
        )
        for block in fresh:
            flags = block.clean if is_calm else dict.fromkeys(block.clean, False)
            series.blocks.append(Block(block.seconds, flags, block.turns))
        fresh.clear()
        return now

    def _signs(self) -> Signs:
        workers = (*self._sides.values(), self._stage.worker)
        return disturbance.read(sum(worker.usage().cpu_s for worker in workers))


@contextmanager
def _blamed(side: str, candidates: Collection[str]) -> Iterator[None]:
    """Keep an opponent's failure from being taken for a candidate's."""
    try:
        yield
    except Faulted as error:
        if side in candidates:
            raise
        raise WorkerError(f"`{side}`, which it is timed against, failed: {error}") from error


def _most_kept(oracle: Oracle, pace: Pace) -> int:
    size = sum(oracle.expected(oracle.checkable(0)[0]).output_bytes)
    return min(pace.kept, max(LEAST_KEPT, KEPT_BYTES // max(size, 1)))


def _is_clean(repetition: Repetition, waited_s: float) -> bool:
    took = repetition.nanoseconds * 1e-9
    if waited_s > WAIT_S + WAIT_SHARE * took:
        return False
    return repetition.involuntary <= SWITCHES + SWITCH_RATE * took
