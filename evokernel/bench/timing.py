"""Owns paired timing: all sides alternate in random order on the same fresh inputs.

A block is one repetition of each side, in random order, on one draw of the timed inputs: a set, an
address, and a change of sign, scale and offset that no candidate can foresee. Ratios are formed
within blocks. Disturbed repetitions are dropped; too few clean ones make no number at all.

Inputs are written, caches emptied and outputs read from outside (see `stage`), and what a side does
between its turns is counted (see `turns`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from evokernel.bench import disturbance
from evokernel.bench.disturbance import Signs
from evokernel.bench.gpu import timing as on_gpu
from evokernel.bench.gpu.stage import GpuStage
from evokernel.bench.messages import Repetition, Turn, Variant
from evokernel.bench.oracle import Case, Oracle
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.rounds import WINDOW_S, Rivals, Rounds, blamed, most_kept, warm_up
from evokernel.bench.series import CANDIDATE, IDLE, Block, Series
from evokernel.bench.stage import Stage, Supply, calm
from evokernel.bench.turns import Turns

WAIT_SHARE, WAIT_S = 0.05, 3e-4
"""Waiting for a core that a repetition may show: share of its time, plus seconds. Values are made
and caches flushed within the same request, so that their waits count as well."""
SWITCHES, SWITCH_RATE = 2, 100.0
"""Involuntary switches that it may show, and more for each second."""
LEAST_WINDOW_S = 0.1
"""Shortest window, at a section's end, whose ticks say enough to be judged."""
FOREIGN_CORES = 0.3
STOLEN_SHARE = 0.05


def measure(
    sides: Mapping[str, Worker],
    oracle: Oracle,
    pace: Pace,
    stage: Stage | GpuStage,
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
    if rivals is None:
        others = tuple(side for side in sides if side != CANDIDATE)
        rivals = {CANDIDATE: others} if CANDIDATE in sides else {}
    if isinstance(stage, GpuStage):
        return on_gpu.measure(sides, oracle, pace, stage, rng, rivals)
    series = Series()
    if pace.quiet_s > 0:
        series.restless = disturbance.wait_for_quiet(pace.quiet_s)
    warm_up(sides, oracle, pace, rivals)
    section = _Section(sides, oracle, pace, stage, rng, rivals)
    with calm():
        section.run(series)
    return series


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
        self._most_kept = most_kept(oracle, pace)
        self._rounds = Rounds(oracle, pace, rng, rivals)
        self._held = 0
        self._rng = rng
        self._rivals = rivals

    def run(self, series: Series) -> None:
        """Add blocks until the ratios are tight or the time is up."""
        started = window = self._signs()
        fresh: list[Block] = []
        try:
            for number in self._rounds.numbers(series):
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
            self._rounds.forget(len(series.blocks) + len(fresh))
            series.blocks.clear()
            fresh.clear()

    def _block(self, series: Series, number: int) -> Block:
        drawn = self._rounds.draw(series, number)
        case, variant = drawn.case, drawn.variant
        block = Block({}, {})
        is_watched = number % self._pace.watched == 0
        if is_watched:
            self._supply.make(case, variant)
        sides = [*self._sides, IDLE] if is_watched else [*self._sides]
        for side in self._rng.sample(sides, len(sides)):
            if side == IDLE:
                block.turns[side] = self._stage.call()
                continue
            with blamed(side, self._rivals):
                self._repetition(block, side, case, variant, is_watched)
                if drawn.is_kept and side in self._rivals:
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


def _is_clean(repetition: Repetition, waited_s: float) -> bool:
    took = repetition.nanoseconds * 1e-9
    if waited_s > WAIT_S + WAIT_SHARE * took:
        return False
    return repetition.involuntary <= SWITCHES + SWITCH_RATE * took
