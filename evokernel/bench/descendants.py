"""Owns the search for a process's descendants, and their end where no namespace does it."""

import os
import signal
import time
from pathlib import Path

from evokernel.errors import WorkerError


def descendants(pid: int) -> list[int]:
    """Every living descendant, children first; what ends or begins meanwhile may be missing."""
    if not Path("/proc/thread-self/children").exists():  # an optional part of the kernel
        return _descendants_by_scan(pid)
    found: list[int] = []
    generation = _children(pid)
    while generation:
        found.extend(generation)
        generation = [grandchild for child in generation for grandchild in _children(child)]
    return found


def sweep(pid: int, timeout_s: float = 5.0) -> None:
    """Kill every descendant of a process, again and again until none is left.

    `pid` must collect its dead children, or be this process, which then does.

    Raises:
        WorkerError: Some survive.
    """
    end = time.monotonic() + timeout_s
    while living := descendants(pid):
        for process in living:
            _kill(process)
        if pid == os.getpid():
            collect()
        if time.monotonic() > end:
            raise WorkerError(f"processes {living} of a worker survive SIGKILL; end them by hand")
        time.sleep(0.005)


def collect() -> list[tuple[int, int]]:
    """Collect this process's dead children: their numbers and wait statuses."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead
        if pid == 0:
            return dead
        dead.append((pid, status))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it was faster
        return


def _children(pid: int) -> list[int]:
    """Living children of all threads of a process, oldest first within a thread."""
    try:
        files = [thread / "children" for thread in Path(f"/proc/{pid}/task").iterdir()]
        named = [int(name) for file in files for name in file.read_text().split()]
    except OSError:  # it ended meanwhile
        return []
    return [child for child in named if _parent(child) is not None]


def _descendants_by_scan(pid: int) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    parents = {number: _parent(number) for number in numbers}
    found: list[int] = []
    generation = {pid}
    while generation := {child for child, parent in parents.items() if parent in generation}:
        found.extend(sorted(generation))
    return found


def _parent(pid: int) -> int | None:
    """The parent of a living process; None for one that has ended, collected or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return None if state in "ZX" else int(parent)
