"""Owns the checks of the machine: cores, counters, signs of others, device lock."""

import os
import re
import shutil
from pathlib import Path

from evokernel.bench.counters import offered
from evokernel.bench.device import CPU
from evokernel.bench.disturbance import device_lock, runtime_folder, stalled_seconds
from evokernel.bench.processor import name
from evokernel.doctor.finding import Facts, Finding, Settings
from evokernel.errors import WorkerError

LITTLE_BYTES = 2 << 30
"""Free memory below which there is a warning: torch and the sizes of the built-in tasks, for a
candidate, its reference in fp64 and the baselines, take between one and two gigabytes (ours)."""
FINE_CLOCKS = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"}
"""Clock sources that are read without a system call."""


def processor(settings: Settings) -> Finding:
    """Which processor, how many cores may be used, how much memory is free."""
    cores, usable = os.cpu_count() or 1, len(os.sched_getaffinity(0))
    free, total = _memory()
    load = os.getloadavg()[0]
    is_little = free < LITTLE_BYTES
    return Finding(
        name="processor",
        state="warning" if is_little else "ok",
        found=f"{name()}, {usable} of {cores} cores usable, load {load:.1f}, "
        f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB memory free",
        advice="end other programs before a run, or choose smaller tasks" if is_little else "",
        facts={
            "model": name(),
            "cores": cores,
            "usable_cores": usable,
            "load": load,
            "memory_bytes": total,
            "free_memory_bytes": free,
        },
    )


def counters(settings: Settings) -> Finding:
    """What profiles can look at: event counters, samples of what is executed, built libraries."""
    level = _read("/proc/sys/kernel/perf_event_paranoid")
    refusal, samples = offered()
    reads = shutil.which("objdump") is not None
    facts: Facts = {
        "perf_event_paranoid": None if level is None else int(level),
        "error": refusal,
        "samples": samples,
        "objdump": reads,
    }
    others = f"samples {'can' if samples else 'cannot'} be taken, built libraries "
    others += "can be read" if reads else "cannot be read without `objdump`"
    if refusal:
        is_forbidden = "not permitted" in refusal
        return Finding(
            name="counters",
            state="missing",
            found=f"{refusal}; {others}",
            advice=_PERMIT if is_forbidden else _NO_COUNTERS,
            facts=facts,
        )
    found = f"hardware counters can be read; {others}"
    return Finding(name="counters", state="ok", found=found, facts=facts)


_PERMIT = (
    "`sysctl kernel.perf_event_paranoid=2` (in a container also `--cap-add PERFMON`) permits them; "
    "until then profiles use times, samples and the built library"
)
_NO_COUNTERS = (
    "as usual on virtual machines: profiles use times, samples and the built library instead"
)


def timing(settings: Settings) -> Finding:
    """Whether the system tells when others disturb a measurement, and how time is read."""
    clock = _read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    signs = {
        "schedstat": _counts_waiting(),
        "pressure": stalled_seconds() is not None,
        "steal": Path("/proc/stat").exists(),
        "throttling": any(map(os.path.exists, _CPU_STATS)),
    }
    gone = [name for name, is_there in signs.items() if not is_there]
    # Waiting threads and stolen time decide about repetitions; the others only add detail.
    is_blind = not (signs["schedstat"] or signs["pressure"])
    is_coarse = clock is not None and clock not in FINE_CLOCKS
    return Finding(
        name="timing",
        state="warning" if is_blind or is_coarse else "ok",
        found=f"clock {clock or 'unknown'}; disturbances are read from "
        + ", ".join(name for name, is_there in signs.items() if is_there)
        + (f", not from {', '.join(gone)}" if gone else ""),
        advice=_BLIND if is_blind else _COARSE if is_coarse else "",
        facts={"clock": clock, **signs},
    )


_CPU_STATS = ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat")
_BLIND = (
    "measure on a machine that does nothing else: the kernel tells neither schedstat "
    "(`sysctl kernel.sched_schedstats=1`) nor pressure (boot with `psi=1`)"
)
_COARSE = "reading this clock is slow; very short kernels are timed less well (boot with `tsc`)"


def lock(settings: Settings) -> Finding:
    """Whether the lock by which measurements take turns can be had."""
    try:
        folder = runtime_folder()
        with device_lock(CPU, 0.0, folder):
            is_free = True
    except OSError as error:
        return Finding(
            name="lock",
            state="missing",
            found=f"`{error.filename}` cannot be written: {error.strerror}",
            advice="make it a folder of this user; measurements of all processes meet there",
            facts={"folder": str(error.filename), "is_free": None},
        )
    except WorkerError:
        is_free = False
    return Finding(
        name="lock",
        state="ok",
        found=f"`{folder}`, {'free' if is_free else 'held by a measurement that goes on now'}",
        facts={"folder": str(folder), "is_free": is_free},
    )


def _memory() -> tuple[int, int]:
    """Bytes that can still be had, and bytes in all."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo") or "", re.MULTILINE))
    total = int(found.get("MemTotal", 0)) << 10
    return int(found.get("MemAvailable", 0)) << 10, total


def _counts_waiting() -> bool:
    """Whether the kernel counts the slices of this thread (the third figure)."""
    fields = (_read("/proc/thread-self/schedstat") or "").split()
    return len(fields) == 3 and int(fields[2]) > 0


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
