"""Owns the hold on a worker from outside: its processes stopped, its memory written and read.

A worker that is held does not run, whatever it has started: no thread of it can use the time of
others, finish late what it was timed for, or begin early.
"""

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)
for _call in (_libc.process_vm_readv, _libc.process_vm_writev):
    _call.restype = ctypes.c_ssize_t
_CHUNK = 1 << 30  # bytes; one call moves less than 2 GiB


class Unreachable(Exception):
    """The memory of a worker cannot be reached: not permitted here, or no such address."""

    def __init__(self, reason: str, is_permitted: bool) -> None:
        super().__init__(reason)
        self.is_permitted = is_permitted
        """It could be reached, if there were any at that address."""


class Hold:
    """Stops and continues all processes of one worker.

    Args:
        main: The worker's main process; None if it never lived.
        pids: Every living process of the worker, as the system tells it now.
    """

    def __init__(self, main: int | None, pids: Callable[[], tuple[int, ...]]) -> None:
        self._main = main
        self._list = pids
        self._held: tuple[int, ...] = ()

    def stop(self) -> None:
        """Stop every process, the main one at once. Those born meanwhile are found by looking on.

        Nothing happens when it is held already.
        """
        if self._held:
            return
        stopped: dict[int, bool] = {}
        if self._main is not None:
            stopped[self._main] = _send(self._main, signal.SIGSTOP)
        while new := [pid for pid in self._list() if pid not in stopped]:
            stopped.update((pid, _send(pid, signal.SIGSTOP)) for pid in new)
        self._held = tuple(pid for pid, is_there in stopped.items() if is_there)

    def release(self) -> None:
        """Let every process go on. Nothing happens when it is not held."""
        held, self._held = self._held, ()
        for pid in held:
            _send(pid, signal.SIGCONT)

    @property
    def is_permitted(self) -> bool:
        """Whether its memory can be reached: what the system says of an address of nothing."""
        word = ctypes.create_string_buffer(8)
        try:
            self.read(0, ctypes.addressof(word), len(word))
        except Unreachable as error:
            return error.is_permitted
        return True

    def write(self, address: int, source: int, size: int) -> None:
        """Write into the main process from an address of this one.

        Raises:
            Unreachable: Not permitted here, or no memory there that can be written.
        """
        _move(_libc.process_vm_writev, self._main or 0, address, source, size)

    def read(self, address: int, target: int, size: int) -> None:
        """Read from the main process to an address of this one.

        Raises:
            Unreachable: Not permitted here, or no memory there.
        """
        _move(_libc.process_vm_readv, self._main or 0, address, target, size)


def _send(pid: int, number: int) -> bool:
    """Whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _move(call: Callable[..., int], pid: int, remote: int, local: int, size: int) -> None:
    done = 0
    while done < size:
        count = min(_CHUNK, size - done)
        ours, theirs = (struct.pack("QQ", base + done, count) for base in (local, remote))
        one = ctypes.c_ulong(1)
        moved = call(pid, ours, one, theirs, one, ctypes.c_ulong(0))
        if moved <= 0:
            number = ctypes.get_errno()
            reason = f"{size} bytes at {remote:#x} of process {pid}: {os.strerror(number)}"
            raise Unreachable(reason, number == errno.EFAULT)
        done += moved
