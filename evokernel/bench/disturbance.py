"""Owns the question whether a measurement was disturbed: the device lock, and the signs of others.

What is read, and what each sign sees:

- involuntary context switches of the worker: another task was given its core;
- `/proc/<pid>/task/*/schedstat`: nanoseconds in which a thread of the worker waited for a core;
- `/proc/pressure/cpu`: the same for all tasks of the machine, where the other is not told;
- `/proc/stat` steal: the hypervisor gave the core to another virtual machine;
- `/proc/stat` busy time that is not ours: others shared caches and memory, even with cores free;
- `cpu.stat` throttling: the quota of our control group ran out.

The kernel counts busy and stolen time in ticks of usually 10 ms, so that those two speak about
windows of many repetitions, the others about single ones.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evokernel.errors import WorkerError
from evokernel.frozen import Frozen

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
POLL_S = 0.02
QUIET_CORES = 0.15


class Signs(Frozen):
    """Counters of the machine at one moment; only differences mean something."""

    clock: float
    """Monotonic clock, seconds."""
    stalled_s: float | None
    """Time in which some task waited for a core, seconds; None where the kernel does not tell."""
    stolen_s: float
    """Time that the hypervisor took, all cores added, seconds."""
    busy_s: float
    """Time in which any task ran, all cores added, seconds."""
    own_s: float
    """The part of `busy_s` that is ours: this process and its workers."""
    throttled_s: float
    """Time in which our control group was held back, seconds."""


class Disturbance(Frozen):
    """What happened between two readings."""

    seconds: float
    """Length of the window."""
    stalled_s: float
    """Waiting for a core, seconds; 0 where unknown."""
    stolen_s: float
    """Taken by the hypervisor, seconds."""
    foreign_s: float
    """Core time of others, seconds."""
    throttled_s: float
    """Held back by a quota, seconds."""

    @property
    def foreign_cores(self) -> float:
        """How many cores others kept busy on average."""
        return self.foreign_s / self.seconds if self.seconds > 0 else 0.0

    def in_words(self) -> str:
        """The signs as a phrase for a status's reason."""
        return (
            f"within {self.seconds:.1f} s others used {self.foreign_cores:.2f} cores, tasks waited "
            f"{1e3 * self.stalled_s:.0f} ms for a core, the hypervisor took "
            f"{1e3 * self.stolen_s:.0f} ms and a quota {1e3 * self.throttled_s:.0f} ms"
        )


def read(workers_s: float = 0.0) -> Signs:
    """Read the counters now; `workers_s` is the processor time of our workers so far, seconds."""
    busy, stolen = _machine()
    return Signs(
        clock=time.monotonic(),
        stalled_s=stalled_seconds(),
        stolen_s=stolen,
        busy_s=busy,
        own_s=time.process_time() + workers_s,
        throttled_s=_throttled(),
    )


def stalled_seconds() -> float | None:
    """Time in which some task waited for a core since boot, or None where the kernel hides it."""
    try:
        line = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
    except OSError:
        return None  # built without pressure counters, or switched off at boot
    return int(line.rsplit("total=", 1)[1]) * 1e-6


def waited_seconds(pids: Iterable[int]) -> float:
    """Time that the threads of these processes waited for a core, added up.

    Where the kernel does not count it, the pressure of the whole machine stands in; where it does
    not tell that either, 0.
    """
    found = [_thread_wait(path) for pid in pids for path in _threads(pid)]
    counted = [wait for wait in found if wait is not None]
    return sum(counted) if counted else stalled_seconds() or 0.0


def between(before: Signs, after: Signs) -> Disturbance:
    """The difference of two readings that counted the same workers."""
    stalled = 0.0
    if before.stalled_s is not None and after.stalled_s is not None:
        stalled = after.stalled_s - before.stalled_s
    foreign = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return Disturbance(
        seconds=after.clock - before.clock,
        stalled_s=max(0.0, stalled),
        stolen_s=max(0.0, after.stolen_s - before.stolen_s),
        foreign_s=max(0.0, foreign),
        throttled_s=max(0.0, after.throttled_s - before.throttled_s),
    )


def wait_for_quiet(
    limit_s: float, cores: float = QUIET_CORES, window_s: float = 0.1
) -> Disturbance | None:
    """Wait until others leave the machine alone for one window; our workers must be idle.

    Args:
        limit_s: How long to wait at most, seconds.
        cores: Foreign core time per second that still counts as quiet. Ticks are coarse: one
            tick in a window of 0.1 s reads as 0.1 cores.
        window_s: Length of a window, seconds.

    Returns:
        None when it is quiet, else what the last window showed when the time was up.
    """
    deadline = time.monotonic() + limit_s
    while True:
        before = read()
        time.sleep(window_s)
        seen = between(before, read())
        if seen.foreign_cores <= cores and seen.stolen_s <= cores * window_s:
            return None
        if time.monotonic() >= deadline:
            return seen


def runtime_folder() -> Path:
    """The user's folder for locks, made when it is missing.

    The environment has no say in it: all processes of a user must meet at the same file.
    """
    session = Path(f"/run/user/{os.getuid()}")
    root = session if os.access(session, os.W_OK) else Path("/tmp")
    folder = root / f"evokernel-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextmanager
def device_lock(device: str, limit_s: float, folder: Path | None = None) -> Iterator[float]:
    """Hold the one lock of a physical device; timed sections of all processes take turns.

    The operating system releases it when the holder dies, however it dies: no lock goes stale.

    Args:
        device: Name of the device: `cpu`, or a GPU's (see `gpu.lock`).
        limit_s: How long to wait for the holder before us, seconds.
        folder: Where the lock file lies; None is the user's runtime folder.

    Yields:
        Seconds that were waited.

    Raises:
        WorkerError: The lock stayed taken.
    """
    name = re.sub(r"[^A-Za-z0-9.-]", "-", device)
    path = (folder or runtime_folder()) / f"device-{name}.lock"
    started = time.monotonic()
    with open(path, opener=_opener) as file:
        while not _try_lock(file.fileno()):
            if time.monotonic() - started > limit_s:
                raise WorkerError(
                    f"the lock of device `{device}` (`{path}`) stayed taken for {limit_s:.0f} s by "
                    "another EvoKernel process; wait for that process, or end it"
                )
            time.sleep(POLL_S)
        yield time.monotonic() - started


def _opener(path: str, flags: int) -> int:
    """Make the file only where it is missing: others' files may be opened but not made anew."""
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _machine() -> tuple[float, float]:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(f) for f in fields[:8])
    return (user + nice + system + irq + softirq) * TICK_S, steal * TICK_S


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []  # it has ended


def _thread_wait(thread: Path) -> float | None:
    """Seconds; None where the kernel does not count or the thread has ended."""
    try:
        _, waited_ns, slices = (thread / "schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return int(waited_ns) * 1e-9 if int(slices) else None


def _throttled() -> float:
    for path in ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"):
        try:
            pairs = dict(line.split() for line in Path(path).read_text().splitlines())
        except OSError:
            continue
        if "throttled_usec" in pairs:
            return int(pairs["throttled_usec"]) * 1e-6
        return int(pairs.get("throttled_time", 0)) * 1e-9
    return 0.0
