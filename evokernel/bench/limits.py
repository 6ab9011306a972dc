"""Owns the limits of a worker that the kernel does not keep by itself: looked at from outside."""

from collections.abc import Callable

from evokernel.bench import footprint
from evokernel.bench.descendants import descendants
from evokernel.bench.sandbox import PROCESSES, overhead_bytes
from evokernel.bench.scratch import Scratch
from evokernel.evaluation import Status

_SLACK = 40  # where the kernel keeps the limit it refuses, about there, and nobody need be ended
_GREEDY = 0.25
"""Share of its limit from which a worker is to blame when the machine is full (ours)."""
Excess = tuple[Status, str]
"""What a worker is ended for, in a status and in words."""


class Limits:
    """What one worker and all that it starts may take together.

    Args:
        reaper: Tells the number of its reaper, None once it has ended.
        scratch: Its folder.
        memory_bytes: Its memory limit.
        threads: Its threads.
    """

    def __init__(
        self, reaper: Callable[[], int | None], scratch: Scratch, memory_bytes: int, threads: int
    ) -> None:
        self._reaper = reaper
        self._scratch = scratch
        self._memory_bytes = memory_bytes + overhead_bytes(threads)
        self._birth_bytes = 0

    def begin(self) -> None:
        """Remember what it was born with; to be called before it knows its module."""
        self._birth_bytes = max(map(footprint.resident_bytes, self._pids()), default=0)

    def excess(self) -> Excess | None:
        """What it takes too much of now."""
        if self._scratch.is_full:
            return self._full_scratch()
        pids = self._pids()
        taken = footprint.footprint(pids, self._birth_bytes)
        if taken.tasks > PROCESSES + _SLACK:
            return Status.CRASHED, f"ended at {taken.tasks} processes and threads of {PROCESSES}"
        if taken.deleted_bytes > self._scratch.limit:
            return self._full_scratch()
        if taken.memory_bytes > self._memory_bytes and self._is_too_large(pids, taken.file_bytes):
            return Status.OUT_OF_MEMORY, "ended at its memory limit, all its processes together"
        return self._end_of_the_machine(taken.memory_bytes) if footprint.is_machine_full() else None

    def _end_of_the_machine(self, taken_bytes: int) -> Excess:
        """Whose fault it is that the machine has no memory left: others', unless it took a lot."""
        if taken_bytes > _GREEDY * self._memory_bytes:
            return Status.OUT_OF_MEMORY, "the machine was about to run out of memory with it"
        short = "the machine was about to run out of memory, most of which others take"
        return Status.INFRASTRUCTURE, short

    def _is_too_large(self, pids: list[int], file_bytes: int) -> bool:
        """The dear way: pages that several processes share are counted once."""
        together = footprint.shared_out(pids, self._birth_bytes) if len(pids) > 1 else None
        return together is None or together + file_bytes > self._memory_bytes

    def _full_scratch(self) -> Excess:
        limit = f"more than {self._scratch.limit} bytes in its scratch folder"
        return Status.OUTPUT_LIMIT, f"{limit}, or too many files"

    def _pids(self) -> list[int]:
        reaper = self._reaper()
        return [] if reaper is None else descendants(reaper)
