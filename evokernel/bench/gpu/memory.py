"""Owns the memory of a GPU as the parent sees it: what is free, and whether all of it came back."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from evokernel.bench.gpu.lock import physical
from evokernel.bench.gpu.nvml import opened
from evokernel.errors import DeviceMissing, WorkerError

RETURN_S = 10.0
"""How long the driver may take to give back what an ended process had."""
SLACK_BYTES = 384 << 20
"""What this process's own context may grow by, and others may take, without being blamed on a
worker; a context that is left over takes more."""
_POLL_S = 0.02


def free_bytes(device: str) -> int:
    """Device memory that could be had now, that which torch keeps in this process included."""
    place = torch.device(device)
    kept = torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    return int(torch.cuda.mem_get_info(place)[0]) + kept


def give_back() -> None:
    """Return what torch keeps in this process to the driver."""
    torch.cuda.empty_cache()


class Account:
    """Sees that workers give their device memory back when they end.

    The driver lists who has a context; where it lists none of ours (a container hides numbers of
    processes), what is in use without any worker is compared with what was in use before the first.

    Args:
        device: The GPU, as torch names it.
    """

    def __init__(self, device: str) -> None:
        self._place = torch.device(device)
        self._listed = _listing(self._place.index or 0)
        self._living: set[int] = set()
        self._at_first = self._foreign_bytes()

    def born(self, worker: int) -> None:
        """Count a worker that will use the GPU.

        Args:
            worker: Any number that tells it from the others.
        """
        if not self._living:
            self._at_first = self._foreign_bytes()
        self._living.add(worker)

    def ended(self, worker: int, pids: tuple[int, ...]) -> None:
        """Wait until nothing of a worker is left on the GPU.

        Args:
            worker: As `born` was told.
            pids: Its processes, while it lived.

        Raises:
            WorkerError: Something is held for longer than `RETURN_S`.
        """
        self._living.discard(worker)
        end = time.monotonic() + RETURN_S
        while why := self._left(pids):
            if time.monotonic() > end:
                raise WorkerError(
                    f"{why} {RETURN_S:.0f} s after a worker had ended; expected nothing of it to "
                    "be left: see with `nvidia-smi` who uses the GPU, and end that process"
                )
            time.sleep(_POLL_S)

    def _left(self, pids: tuple[int, ...]) -> str:
        """What is left of an ended worker, in words."""
        present = set(self._listed()) & set(pids)
        if present:
            return f"process {min(present)} still has a context on `{self._place}`"
        if self._living:
            return ""  # theirs cannot be told apart
        more = self._foreign_bytes() - self._at_first
        if more > SLACK_BYTES:
            return f"{more >> 20} MiB of the memory of `{self._place}` are still in use"
        return ""

    def _foreign_bytes(self) -> int:
        """Memory in use that torch in this process has not asked for."""
        free, total = torch.cuda.mem_get_info(self._place)
        return int(total - free - torch.cuda.memory_reserved(self._place))


def _listing(index: int) -> Callable[[], tuple[int, ...]]:
    """What tells the processes with a context on a GPU; none where the driver does not tell."""
    try:
        uuid = physical(index).uuid
    except DeviceMissing:
        return tuple
    return lambda: opened().state(uuid).pids or ()
