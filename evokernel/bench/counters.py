"""Owns what the kernel's perf events say about a process while it runs, where they are permitted.

Two kinds: hardware counters (cycles, instructions, misses of the last cache), which virtual
machines rarely pass on, and samples of the instruction pointer taken by a timer, which need no
hardware at all. Both only look at user code, and change nothing in the process.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

from evokernel.bench.mappings import Region, regions_of

SAMPLES_PER_S = 4000
RING_SAMPLES = 500
"""Samples of one thread on one core that surely find room; what comes later is lost."""
_PAGES = 16
"""Pages of the ring of one thread, a power of two: some thousand samples."""
_HEIR_PAGES = 4
"""Pages of the ring of one thread on one core; 682 samples of 24 bytes."""
_MOST_THREADS = 64
_MOST_RINGS = 256
"""Rings of threads and what they start: one for each thread on each core."""

# From linux/perf_event.h; the call's number from the tables of each architecture.
_CALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE, _SOFTWARE = 0, 1
_TASK_CLOCK = 1
_HARDWARE_EVENTS = {"cycles": 0, "instructions": 1, "cache-misses": 3}
_SAMPLE_IP, _SAMPLE_THREAD, _SAMPLE_RECORD = 1, 2, 9
_DISABLED, _INHERIT = 1 << 0, 1 << 1
_EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR, _BY_FREQUENCY = 1 << 5, 1 << 6, 1 << 10
_CLOSE_ON_EXEC = 1 << 3
_ENABLE, _DISABLE = 0x2400, 0x2401
_ATTR_BYTES = 112
_HEAD, _TAIL = 1024, 1032
"""Offsets of the ring's two ends in its first page."""
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Place:
    """Where a sample was taken."""

    file: str
    """Path of the mapped file; empty for code that belongs to none."""
    offset: int
    """Address within the file's own numbering."""


@dataclass
class Seen:
    """What was seen while a `watched` block was entered; complete when it is left."""

    counts: dict[str, int] = field(default_factory=dict)
    """Hardware events of all threads by name; empty where they are not permitted."""
    samples: dict[int, Counter[Place]] = field(default_factory=dict)
    """By thread, how often it was met where; empty where sampling is not permitted."""
    are_heirs_seen: bool = False
    """Whether threads and processes that it started meanwhile are among them, and all threads."""
    elsewhere: Counter[int] = field(default_factory=Counter)
    """With `heirs`: by process, how often others that it started meanwhile were met at work."""
    refusal: str = ""
    """Why there are no hardware counters, in words."""


@contextmanager
def watched(pid: int, heirs: bool = False, per_s: int = SAMPLES_PER_S) -> Iterator[Seen]:
    """Watch all present threads of a process, as far as this system permits.

    Raises nothing of its own: what is not permitted is missing in what was seen.

    Args:
        pid: The process.
        heirs: Sample threads and processes that start meanwhile, too, instead of counting hardware
            events. Where there are too many cores for that, present threads only.
        per_s: Samples that each thread gives for a second of work.
    """
    seen = Seen()
    with ExitStack() as stack:
        every = _threads(pid)
        threads = every[:_MOST_THREADS]
        events: list[tuple[str, int]] = []
        if heirs:
            rings, are_seen = _open_for_heirs(threads, stack, per_s)
            seen.are_heirs_seen = are_seen and len(every) == len(threads)
        else:
            events, seen.refusal = _open_counters(threads, stack)
            rings = _open_rings(threads, stack, per_s)
        files = [*(file for _, file in events), *(ring.file for ring in rings)]
        _switch(files, _ENABLE)
        try:
            yield seen
        finally:
            _switch(files, _DISABLE)
            for name, file in events:
                seen.counts[name] = seen.counts.get(name, 0) + _value(file)
            maps = regions_of(pid) if rings else ()
            _sort(rings, pid, maps, seen)


def _sort(rings: list[_Ring], pid: int, maps: tuple[Region, ...], seen: Seen) -> None:
    """Every thread that was watched has its counter, also one that was never met."""
    for ring in rings:
        found = seen.samples.setdefault(ring.thread, Counter())
        for process, thread, address in ring.samples():
            if process != pid:
                seen.elsewhere[process] += 1
                continue
            found = seen.samples.setdefault(thread, Counter())
            found[_place(address, maps)] += 1


def offered() -> tuple[str, bool]:
    """Why hardware counters cannot be read (empty: they can), and whether samples can be taken."""
    thread = [threading.get_native_id()]
    with ExitStack() as stack:
        _, refusal = _open_counters(thread, stack)
        return refusal, bool(_open_rings(thread, stack, SAMPLES_PER_S))


def _threads(pid: int) -> list[int]:
    try:
        return sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


@cache
def _cores() -> tuple[int, ...]:
    """The cores that a process may ever run on, whatever it is bound to now."""
    found: list[int] = []

    def look() -> None:  # in a thread of its own, which is the only one that it binds
        with suppress(OSError):
            os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
        found.extend(sorted(os.sched_getaffinity(0)))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return tuple(found)


def _open(kind: int, config: int, thread: int, frequency: int = 0, core: int = -1) -> int:
    """A descriptor of one event of one thread, not started yet; its heirs' too on a given core.

    Raises:
        OSError: Not permitted, or not there.
    """
    number = _CALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _DISABLED | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    flags |= _BY_FREQUENCY if frequency else 0
    flags |= _INHERIT if core >= 0 else 0
    wanted = _SAMPLE_IP | _SAMPLE_THREAD if frequency else 0
    head = (kind, _ATTR_BYTES, config, frequency, wanted, 0, flags)
    attributes = struct.pack("=IIQQQQQ", *head).ljust(_ATTR_BYTES, b"\0")
    result = int(_libc.syscall(number, attributes, thread, core, -1, _CLOSE_ON_EXEC))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _open_counters(threads: list[int], stack: ExitStack) -> tuple[list[tuple[str, int]], str]:
    """All hardware events of all threads, or none and why."""
    opened: list[tuple[str, int]] = []
    for thread in threads:
        for name, config in _HARDWARE_EVENTS.items():
            try:
                file = _open(_HARDWARE, config, thread)
            except OSError as error:
                return [], _in_words(error)
            stack.callback(os.close, file)
            opened.append((name, file))
    return opened, "" if opened else "the process has ended"


def _in_words(error: OSError) -> str:
    if error.errno in {errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV}:
        return "this processor offers no hardware counters, as in most virtual machines"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "hardware counters are not permitted (see /proc/sys/kernel/perf_event_paranoid)"
    return f"hardware counters cannot be read ({error.strerror})"


class _Ring:
    """The samples of one thread, in memory that the kernel writes."""

    def __init__(self, thread: int, stack: ExitStack, per_s: int, core: int = -1) -> None:
        self.thread = thread
        self.file = _open(_SOFTWARE, _TASK_CLOCK, thread, per_s, core)
        stack.callback(os.close, self.file)
        self._size = (_PAGES if core < 0 else _HEIR_PAGES) * mmap.PAGESIZE
        self._memory = mmap.mmap(self.file, mmap.PAGESIZE + self._size)
        stack.callback(self._memory.close)

    def samples(self) -> list[tuple[int, int, int]]:
        """Process, thread and instruction pointer, oldest first; what did not fit is lost."""
        (head,) = struct.unpack_from("=Q", self._memory, _HEAD)
        (tail,) = struct.unpack_from("=Q", self._memory, _TAIL)
        size = self._size
        found: list[tuple[int, int, int]] = []
        while tail + 8 <= head:
            kind, _, length = struct.unpack("=IHH", self._bytes(tail % size, 8))
            if length < 8:
                break
            if kind == _SAMPLE_RECORD:
                (address,) = struct.unpack("=Q", self._bytes((tail + 8) % size, 8))
                found.append((*struct.unpack("=II", self._bytes((tail + 16) % size, 8)), address))
            tail += length
        return found

    def _bytes(self, at: int, length: int) -> bytes:
        """Records are multiples of eight bytes, so that no eight of them lie across the end."""
        start = mmap.PAGESIZE + at
        return self._memory[start : start + length]


def _open_for_heirs(threads: list[int], stack: ExitStack, per_s: int) -> tuple[list[_Ring], bool]:
    """Rings of threads, and whether they show what the threads start, too.

    The kernel maps no ring of a thread and its heirs other than for a single core.
    """
    cores = _cores()
    have_room = len(cores) * len(threads) <= _MOST_RINGS
    if have_room and (rings := _open_rings(threads, stack, per_s, cores)):
        return rings, True
    return _open_rings(threads, stack, per_s), False


def _open_rings(
    threads: list[int], stack: ExitStack, per_s: int, cores: tuple[int, ...] = (-1,)
) -> list[_Ring]:
    """All of them, or none: what is not sampled would count as not working."""
    rings: list[_Ring] = []
    with ExitStack() as opened:
        for thread, core in product(threads, cores):
            try:
                rings.append(_Ring(thread, opened, per_s, core))
            except ProcessLookupError:  # the thread has ended
                continue
            except (OSError, ValueError):  # not permitted, or too much locked memory
                return []
        stack.push(opened.pop_all())
    return rings


def _switch(files: list[int], request: int) -> None:
    for file in files:
        _libc.ioctl(file, request, 0)


def _value(file: int) -> int:
    return int.from_bytes(os.read(file, 8), "little")


def _place(address: int, maps: tuple[Region, ...]) -> Place:
    for region in maps:
        if region.first <= address < region.last:
            return Place(region.path, address - region.first + region.offset)
    return Place("", address)
