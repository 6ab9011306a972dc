"""Owns paired timing on a GPU: all sides alternate in random order on the same fresh inputs.

A block is one repetition of each side. A repetition is one call, or where calls are short, several,
each on values of its own and with empty caches; its time is the median of their device times, and
beside it stands the wall time of one call more. All sides of a section are timed in the same way.
Blocks in which clocks were held back or others computed are dropped (see `monitor`).

The worker's events say how long a call took; `wallclock` says whether to believe them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evokernel.bench import statistics
from evokernel.bench.descendants import descendants
from evokernel.bench.gpu.monitor import GpuDisturbance, Monitor, Signs, between, slowed
from evokernel.bench.gpu.stage import GpuStage
from evokernel.bench.messages import Repetition, TimePlan, Variant, Way
from evokernel.bench.oracle import Oracle
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.rounds import Draw, Rivals, Rounds, blamed, most_kept, warm_up
from evokernel.bench.series import Block, Series

SHORT_S = 3e-5
"""Calls below this are timed many in a row, if possible out of a graph: an event is recorded about
a microsecond after what it follows, and the host cannot launch one as fast as it runs."""
SHOTS, STRETCH_S, MOST_SHOTS = 16, 2e-4, 6
"""Calls in a repetition of short ones; of others so many as take this long, and at most."""
ROUGH = 3
"""Calls that show about how long one takes."""
LAG_S = 1.0
"""By so much later the driver may tell that another process computed."""
WINDOW_S = 0.3
"""Length of a window in which it is watched whether others compute."""


def measure(
    sides: Mapping[str, Worker],
    oracle: Oracle,
    pace: Pace,
    stage: GpuStage,
    rng: random.Random,
    rivals: Rivals,
) -> Series:
    """Time all sides against each other; the caller holds the device lock; see `timing.measure`."""
    trusted = [worker for worker in sides.values() if worker.spec.role != "candidate"]
    series = Series(is_outside=any(worker.hold.is_permitted for worker in trusted))
    section = _Section(sides, oracle, pace, stage, rng, rivals)
    if pace.quiet_s > 0:
        series.restless = section.wait_for_quiet()
    warm_up(sides, oracle, pace, rivals)
    section.run(series)
    return series


def shots_of(way: Way, seconds: float) -> int:
    """How many calls make a repetition where the fastest side takes so many seconds for one."""
    if way != "single":
        return SHOTS
    return max(1, min(MOST_SHOTS, round(STRETCH_S / max(seconds, 1e-9))))


def told(found: Sequence[Repetition]) -> tuple[float, float | None, float]:
    """Device time, wall time and late work of one repetition, seconds."""
    walls = [each.wall_ns for each in found if each.wall_ns is not None]
    return (
        statistics.median([each.seconds for each in found]),
        1e-9 * statistics.median(walls) if walls else None,
        1e-9 * statistics.median([each.late_ns for each in found]),
    )


def dropped(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, with those marked that cannot count: disturbed, or slower than the others."""
    found = list(blocks)
    slow = slowed([block.signs.sm_mhz if block.signs else None for block in found])
    age, busy = 0.0, -LAG_S  # seconds back from the end: here, and where others computed last
    for place in reversed(range(len(found))):
        signs = found[place].signs
        if signs is not None and signs.others:
            busy = age
        if slow[place] or age - busy < LAG_S or (signs is not None and not signs.is_calm):
            found[place] = replace(found[place], clean=dict.fromkeys(found[place].clean, False))
        age += signs.seconds if signs is not None else 0.0
    return found


class _Section:
    """One timed section."""

    def __init__(
        self,
        sides: Mapping[str, Worker],
        oracle: Oracle,
        pace: Pace,
        stage: GpuStage,
        rng: random.Random,
        rivals: Rivals,
    ) -> None:
        self._sides = sides
        self._oracle = oracle
        self._pace = pace
        self._flush_bytes = stage.flush_bytes
        self._rng = rng
        self._rivals = rivals
        self._rounds = Rounds(oracle, pace, rng, rivals)
        self._most_kept = most_kept(oracle, pace)
        self._monitor = Monitor(stage.gpu)
        self._ours = tuple(descendants(os.getpid()))
        """Processes that may have a context: they compute only when they are asked to."""

    def wait_for_quiet(self) -> GpuDisturbance | None:
        """Wait while others compute or the device is too hot; what was seen when time was up."""
        deadline = time.monotonic() + self._pace.quiet_s
        while True:
            before = self._monitor.read()
            if not self._seen(before, before).idle_others:
                return None  # nobody else is there
            time.sleep(WINDOW_S)
            seen = self._seen(before, self._monitor.read())
            if seen.is_calm:
                return None
            if time.monotonic() >= deadline:
                return seen

    def run(self, series: Series) -> None:
        """Add blocks until the ratios are tight or the time is up."""
        way, shots = self._fitting()
        series.way = way
        began = before = now = self._monitor.read()
        seen: list[Block] = []  # what looks slow among few may prove usual among more
        for number in self._rounds.numbers(series):
            block = self._block(series, self._rounds.draw(series, number), way, shots)
            now = self._monitor.read()
            seen.append(replace(block, signs=self._seen(before, now)))
            series.blocks = dropped(seen)
            before = now
        series.noise = self._seen(began, now)

    def _seen(self, before: Signs, after: Signs) -> GpuDisturbance:
        return between(before, after, self._ours)

    def _fitting(self) -> tuple[Way, int]:
        """How calls are timed, and how many of them make a repetition."""
        seconds = min(
            statistics.median([each.seconds for each in found])
            for found in self._each("single", ROUGH)
        )
        if seconds >= SHORT_S:
            return "single", shots_of("single", seconds)
        ways = {each.way for found in self._each("graph", 2) for each in found}
        way: Way = "graph" if ways == {"graph"} else "batch"
        return way, shots_of(way, seconds)

    def _each(self, way: Way, count: int) -> Iterator[Sequence[Repetition]]:
        """A first look at each side."""
        name = self._oracle.timed_cases()[0].name
        for side, worker in self._sides.items():
            with blamed(side, self._rivals):
                yield worker.time(name, self._plan(way, self._variants(count)))

    def _block(self, series: Series, drawn: Draw, way: Way, shots: int) -> Block:
        block = Block({}, {})
        variants = (*self._variants(shots - 1), drawn.variant)
        plan = self._plan(way, variants, self._variants(1)[0])
        for side in self._rng.sample([*self._sides], len(self._sides)):
            worker = self._sides[side]
            with blamed(side, self._rivals):
                seconds, wall, late = told(worker.time(drawn.case.name, plan))
                if drawn.is_kept and side in self._rivals:
                    outputs = series.outputs.setdefault(side, [])
                    if len(outputs) < self._most_kept:
                        outputs.append((drawn.case, worker.kept()))
            block.seconds[side], block.late[side] = seconds, late
            block.walls[side] = seconds if wall is None else wall
            block.clean[side] = True
        return block

    def _variants(self, count: int) -> tuple[Variant, ...]:
        """Values that never come again, at addresses that nobody can foresee."""
        return tuple(
            self._rounds.fresh().model_copy(update={"slot": self._rng.randrange(1 << 16)})
            for _ in range(count)
        )

    def _plan(
        self, way: Way, variants: tuple[Variant, ...], wall: Variant | None = None
    ) -> TimePlan:
        return TimePlan(variants=variants, way=way, flush_bytes=self._flush_bytes, wall=wall)
