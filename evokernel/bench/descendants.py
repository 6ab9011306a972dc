"""Owns the search for a process's descendants, and their end where no namespace does it."""

import os
import signal
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from evokernel.errors import WorkerError


def descendants(pid: int) -> list[int]:
    """Every living descendant, children first; what ends or begins meanwhile may be missing."""
    found: list[int] = []
    generation = children(pid)
    while generation:
        found.extend(generation)
        generation = [grandchild for child in generation for grandchild in children(child)]
    return [process for process in found if _is_alive(process)]


def children(pid: int) -> list[int]:
    """Children of a process, dead ones that it has not collected included."""
    if not Path("/proc/thread-self/children").exists():  # an optional part of the kernel
        return _children_by_scan(pid)
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it ended meanwhile
        return []
    return [child for thread in threads for child in _children_of(thread)]


def sweep(spared: Set[int] = frozenset(), timeout_s: float = 5.0) -> set[int]:
    """Kill and collect every descendant of this process, which adopts all that are orphaned.

    As long as there is a descendant there is a child, dead or alive: to look for living descendants
    instead would miss those whose parent dies while we look.

    Args:
        spared: Children that are left alone with all below them.
        timeout_s: When to give up.

    Returns:
        The children that were collected, spared ones that died by themselves included.

    Raises:
        WorkerError: Some survive.
    """
    with _haste():
        return _sweep(spared, timeout_s)


def _sweep(spared: Set[int], timeout_s: float) -> set[int]:
    end = time.monotonic() + timeout_s
    collected = {pid for pid, _ in collect()}
    while unwanted := set(children(os.getpid())) - spared:
        for child in unwanted:
            for process in (child, *descendants(child)):
                _kill(process)
        if time.monotonic() > end:
            raise WorkerError(f"processes {unwanted} of a worker survive SIGKILL; end them by hand")
        time.sleep(0.001)
        collected |= {pid for pid, _ in collect()}
    return collected


@contextmanager
def _haste() -> Iterator[None]:
    """Go before the others, where permitted: who sweeps competes with all that is to be swept."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except OSError:  # at the usual pace, then
        yield
        return
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)


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


def _children_of(thread: Path) -> list[int]:
    try:
        return [int(name) for name in (thread / "children").read_text().split()]
    except OSError:  # it ended meanwhile; what the others have is still there
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it was faster
        return


def _children_by_scan(pid: int) -> list[int]:
    numbers = sorted(int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [number for number in numbers if _state_and_parent(number)[1] == pid]


def _is_alive(pid: int) -> bool:
    return _state_and_parent(pid)[0] not in "XZ"


def _state_and_parent(pid: int) -> tuple[str, int]:
    """The state letter of a process and its parent; X (dead) and 0 where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X", 0
    state, parent = stat.rpartition(")")[2].split()[:2]
    return state, int(parent)
