"""Owns what /proc and the CPU clocks say about another process."""

import time
from collections.abc import Iterable
from pathlib import Path

from evokernel.bench.messages import Usage

_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED: nanoseconds on the CPU, all threads, dead ones too


def usage_of(pid: int, processes: int) -> Usage:
    """Threads, CPU time and memory of a process; zeros when it has ended."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return Usage(
            threads=int(status["Threads"]),
            processes=processes,
            cpu_s=time.clock_gettime(_cpu_clock(pid)),
            resident_bytes=_bytes(status.get("VmRSS", "0 kB")),
            peak_resident_bytes=_bytes(status.get("VmHWM", "0 kB")),
        )
    except OSError:
        return Usage()


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of all threads of these processes so far; what has ended counts nothing."""
    total = 0.0
    for pid in pids:
        try:
            total += time.clock_gettime(_cpu_clock(pid))
        except OSError:
            continue
    return total


def forget_peak(pid: int) -> bool:
    """Start the peak of resident memory anew; whether the kernel lets us."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # see proc(5)
    except OSError:
        return False
    return True


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, numbered as clock_getcpuclockid(3) does on Linux."""
    return (~pid << 3) | _SCHEDULER_CLOCK


def _bytes(field: str) -> int:
    return int(field.split()[0]) * 1024
