"""Owns the timed calls of one worker as the parent makes them: prepared, supplied, let go, watched.

Between its calls a worker has nothing to do. What its processes use of the processors then is
counted: it may be work that was begun before the clock or ended after it, and it takes from others.
A worker that does not rest by itself is held: it runs only while its call is timed.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from evokernel.bench.handle import Worker
from evokernel.bench.messages import Outcome, Turn, Variant
from evokernel.bench.procfs import cpu_seconds
from evokernel.bench.wire import Message

EARLY_S = 1.5e-4
"""Processor seconds that may pass between preparation and call: none is needed for anything."""
LATE_S = 4e-4
"""The same after a call, for each thread: waiting OpenMP threads spin before they sleep (0.2 ms as
`warm` sets it, twice that where a kernel's OpenMP runtime is another than the library's)."""
RESTLESS = 3
"""Restless turns after which a worker is held, if they are more than half of its turns."""


class Turns:
    """The timed calls of one worker.

    Args:
        worker: Has input sets put.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.is_held = False
        """It did not rest by itself, and is stopped between its calls."""
        self._restless = self._count = 0
        self._pids: tuple[int, ...] = ()
        self._ended_s: float | None = None
        self._ready_s = self._late_s = 0.0

    def prepare(self, name: str, slot: int, variant: Variant | None = None) -> None:
        """Have a call prepared; with a variant the worker writes the values itself."""
        self._begin()
        self.worker.ready(name, slot, variant)
        if self.is_held:
            self.worker.hold.stop()
        self._pids = self.worker.pids
        self._ready_s = cpu_seconds(self._pids)

    def supply(self, name: str, slot: int, values: Sequence[Any]) -> None:
        """Write the values of the prepared call."""
        self.worker.write(name, slot, values)

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes when the call was prepared."""
        return self._pids

    def go(self) -> Turn:
        """Let the prepared call go, timed from here."""
        return self._timed(lambda: self.worker.go(self.worker.hold.release))

    def alone(self, name: str, variant: Variant, flush_bytes: int) -> Turn:
        """A call that the worker prepares by itself, in the one request that is timed from here."""
        self._begin()
        self._pids = self.worker.pids
        self._ready_s = cpu_seconds(self._pids)
        return self._timed(lambda: self.worker.alone(name, variant.slot, variant, flush_bytes))

    def _begin(self) -> None:
        """Let it run, and count what it did since its last call."""
        self.worker.hold.release()
        if self._ended_s is not None:
            self._late_s = max(0.0, cpu_seconds(self._pids) - self._ended_s)

    def _timed(self, call: Callable[[], Message]) -> Turn:
        before = cpu_seconds(self._pids)
        began = time.perf_counter()
        told = call()
        wall_s = time.perf_counter() - began
        if self.is_held:
            self.worker.hold.stop()
        self._ended_s = cpu_seconds(self._pids)
        parts = {part: told.get(part) for part in ("repetition", "tree", "places", "refusal")}
        turn = self.worker.seen(
            {
                **parts,
                "wall_s": wall_s,
                "cpu_s": max(0.0, self._ended_s - before),
                "early_s": max(0.0, before - self._ready_s),
                "late_s": self._late_s,
                "is_held": self.is_held,
            }
        )
        self._watch(turn)
        return turn

    def take(self, turn: Turn) -> Outcome:
        """The output of the turn that has just ended, as its memory is now that it is stopped."""
        self.worker.hold.stop()
        return self.worker.read(turn)

    def rest(self) -> None:
        """Let it go on; what it does from now on is not counted."""
        self.worker.hold.release()
        self._ended_s, self._late_s = None, 0.0

    def is_restless(self, turn: Turn) -> bool:
        """Whether it used the processors when it had nothing to do."""
        return turn.early_s > EARLY_S or turn.late_s > LATE_S * self.worker.spec.threads

    def _watch(self, turn: Turn) -> None:
        if self.worker.spec.role != "candidate":
            return
        self._count += 1
        self._restless += self.is_restless(turn)
        if self._restless >= RESTLESS and 2 * self._restless > self._count:
            self.is_held = True
