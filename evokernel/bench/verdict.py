"""Owns how the death of a worker is read: which status a signal or an exit code means."""

import os
import select
import signal

from evokernel.bench.wire import BrokenWire, Wire
from evokernel.evaluation import Status

# What libstdc++ prints when an allocation fails in a function that C or Python called.
_NO_MEMORY = "terminate called after throwing an instance of 'std::bad_alloc'"
_STATUS_S = 1.0  # how long the reaper may take to say how the worker ended
_NEAR = 0.9  # share of the memory limit from which a SIGKILL is taken for the kernel's


def last_words(reaper: Wire) -> tuple[int, int] | None:
    """Wait status and peak memory of a worker as its reaper tells them; None if it still lives."""
    ready = select.poll()
    ready.register(reaper, select.POLLIN)
    try:
        while (frame := reaper.take()) is None:
            if not ready.poll(_STATUS_S * 1000):
                return None
            reaper.feed()
        return int(frame[0]["status"]), int(frame[0]["peak_bytes"])
    except (BrokenWire, KeyError, TypeError, ValueError):
        return None


def verdict(wait_status: int, peak_bytes: int, limit: int, log: str) -> tuple[Status, str]:
    """Status and reason of a worker that ended without being asked to.

    Args:
        wait_status: As `waitpid` gives it.
        peak_bytes: Most resident memory that it had.
        limit: Its memory limit, bytes.
        log: Tail of its standard streams.
    """
    if not os.WIFSIGNALED(wait_status):
        code = os.waitstatus_to_exitcode(wait_status)
        return Status.CRASHED, f"the process left by itself with exit code {code}"
    number = os.WTERMSIG(wait_status)
    name = f"{signal.strsignal(number)} ({_name(number)})"
    if number == signal.SIGXCPU:
        return Status.TIMEOUT, f"ended at its CPU limit: {name}"
    is_killed_when_large = number == signal.SIGKILL and peak_bytes > _NEAR * limit
    if is_killed_when_large or (number == signal.SIGABRT and _NO_MEMORY in log):
        return Status.OUT_OF_MEMORY, f"ended at its memory limit: {name}"
    return Status.CRASHED, f"the process died: {name}"


def _name(number: int) -> str:
    """What a signal is called; most of the real-time signals have only a number."""
    names = {known.value: known.name for known in signal.Signals}
    return names.get(number, f"signal {number}")
