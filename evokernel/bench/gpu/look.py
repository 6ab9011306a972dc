"""Owns the look at candidates on a GPU for a profile: a trace, and counters where permitted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from evokernel.bench import Say, silent
from evokernel.bench.gpu import ncu
from evokernel.bench.gpu.case import Evidence
from evokernel.bench.gpu.counters import Counters
from evokernel.bench.gpu.player import Job
from evokernel.bench.gpu.replay import Lock, Replay
from evokernel.bench.gpu.trace import Trace, read
from evokernel.compilers.resources import Resources

TRACE_S = 60.0
"""Seconds for the calls that are traced."""
_BRIEF = ncu.Access(refusal="counters are read in standard measurements only")
_NO_KERNELS = "no kernel was recorded: shares of a call are unknown"


class Lookout:
    """Looks at one candidate after the other; a context manager that leaves no process behind.

    The processes for the next candidate start while it looks at this one: the tool and torch take
    seconds to start, and only the processor's.

    Args:
        cache: Folder of caches.
        lock: Holds the device, while calls are made only.
        device: Number of the GPU.
        say: Told once if counters may not be read here.
        is_brief: Whether a trace will do: counters take seconds.
    """

    def __init__(
        self,
        cache: Path,
        lock: Lock,
        device: int = 0,
        say: Say = silent,
        is_brief: bool = False,
    ) -> None:
        self._lock = lock
        self._known = _BRIEF if is_brief else ncu.access(cache, lock, device, say)
        self._waiting: list[Replay] = []

    def examine(self, job: Job, resources: Sequence[Resources] = ()) -> Evidence:
        """Replay a candidate that passed, once for its times and once for its counters.

        Args:
            job: The candidate with the inputs that were timed.
            resources: The compiler's report of its kernels.

        Raises:
            ReplayFailed: It fails now.
        """
        self.prepare()
        traced, *counted = self._waiting
        self._waiting = []
        try:
            traced.load(job)
            with self._lock():
                answer = traced.play(TRACE_S)
            kernels = read(traced.trace)
            traced.close()
            self.prepare()
            counters: tuple[Counters, ...] = ()
            refusal = self._known.refusal
            for replay in counted:
                counters, refusal = ncu.look(replay, job, self._lock)
        finally:
            for replay in (traced, *counted):
                replay.close()
        return Evidence(
            trace=Trace(
                calls=answer.calls,
                call_s=answer.call_s,
                kernels=kernels,
                note=answer.note or ("" if kernels else _NO_KERNELS),
            ),
            counters=counters,
            resources=tuple(resources),
            capability=answer.capability,
            multiprocessors=answer.multiprocessors,
            refusal=refusal,
        )

    def prepare(self) -> None:
        """Start what the next candidate needs; comes back at once."""
        if not self._waiting:
            self._waiting = [Replay("traced")]
            if self._known.is_permitted:
                self._waiting.append(ncu.start(self._known))

    def close(self) -> None:
        """End what waits. Idempotent."""
        while self._waiting:
            self._waiting.pop().close()

    def __enter__(self) -> Self:
        """Enter a block at whose end nothing waits any more."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End what waits."""
        self.close()
