"""Owns `DeviceFacts`: what this processor is, what it can do at most, and the roofline's floor."""

import os
from collections.abc import Callable
from pathlib import Path

from evokernel.bench import Say, processor, remembered, silent
from evokernel.bench.disturbance import Disturbance, device_lock, wait_for_quiet
from evokernel.bench.peaks import Peaks
from evokernel.bench.roofline import Rates, Roofline, better
from evokernel.compilers import Compiler

FORMAT = 3
"""Raised when the measuring kernel or its use changes, so that older facts are measured again."""
CPU = "cpu"
"""Name of the one processor device of a host, for its lock."""

SLICE_S = 0.05
"""Time for each rate at each working set; five sets of three and the arithmetic make a second."""
MOST_BYTES = 1 << 30
LOCK_S = 600.0
QUIET_S = 5.0
AGAIN_S = 600.0
"""How long facts from a busy machine are believed."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_L2_BYTES, _L3_BYTES = 1 << 20, 32 << 20
"""Sizes that are taken where the system does not tell."""


TOO_LOW = "measured on a busy machine: too low"
"""Said of peaks that other programs have lowered."""


class DeviceFacts(Roofline):
    """One processor with a number of threads, its caches and its measured peaks."""

    threads: int
    """Threads that were measured, and that both sides of a comparison get."""
    l2_bytes: int
    """Second-level cache of one core."""
    l3_bytes: int
    """Last-level cache that a core can reach."""
    compiler: str
    """Identity of the compiler that built the measuring kernel."""
    region_s: float = 0.0
    """Least time of a parallel region that does nothing, seconds."""
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """Short name of processor, threads and compiler, e.g. `cpu-amd-epyc-2t-1f2e3d4c`."""
        key = remembered.digest(self.name, self.threads, self.compiler)[:8]
        return f"cpu-{remembered.slug(self.name)}-{self.threads}t-{key}"

    @property
    def flush_bytes(self) -> int:
        """How much to read and write so that nothing useful stays in the last-level cache."""
        return self.l3_bytes + self.l3_bytes // 2

    def in_words(self) -> str:
        """Name, threads and peaks for a listing."""
        inside, outside = self.rates[0], self.rates[-1]
        return (
            f"{self.name}, {self.threads} threads, {inside.best:.0f} GB/s in cache, "
            f"{outside.best:.0f} GB/s from memory, {self.gflops:.0f} GFLOP/s"
            f"{'' if self.quiet else f' ({TOO_LOW})'}"
        )


def device_facts(
    cache: Path,
    threads: int,
    compiler: Compiler,
    say: Say = silent,
    settle: Callable[[], None] | None = None,
) -> DeviceFacts:
    """The facts of this machine, from the cache folder or measured now (2 to 3 seconds).

    Args:
        cache: Folder that keeps them.
        threads: Threads that a kernel may use.
        compiler: Builds the measuring kernel.
        say: Told when it is measured.
        settle: Waits for processes of the caller's own that are busy; called before measuring.

    Raises:
        CompilerMissing: The measuring kernel cannot be built.
        WorkerError: The device lock stayed taken.
    """
    path = _path(cache, threads, compiler)
    found = _known(path)
    if found is not None and _is_believed(found, path):
        return found
    say("measuring memory and arithmetic rates of this machine")
    if settle is not None:
        settle()
    with device_lock(CPU, LOCK_S):
        found = _known(path)  # whoever had the lock before may have measured them
        if found is not None and _is_believed(found, path):
            return found
        return measure_again(cache, threads, compiler, found)


def _known(path: Path) -> DeviceFacts | None:
    found = remembered.read(path, DeviceFacts)
    if found is not None and found.format != FORMAT:
        return None  # another kernel measured it: not to be compared with what this one finds
    return found


def _is_believed(found: DeviceFacts, path: Path) -> bool:
    return found.quiet or remembered.is_recent(path, AGAIN_S)


def measure_again(
    cache: Path, threads: int, compiler: Compiler, known: DeviceFacts | None = None
) -> DeviceFacts:
    """Measure the peaks now, keep the better of both looks, and write them to the cache folder.

    The caller holds the device lock.
    """
    peaks = Peaks(compiler)
    l2_bytes, l3_bytes = _cache_bytes()
    noise: Disturbance | None = wait_for_quiet(QUIET_S)
    rates = tuple(
        _rates(peaks, size, threads, noise is None)
        for size in _working_sets(l2_bytes * threads, l3_bytes, _memory_bytes())
    )
    gflops = peaks.multiply_add(threads, 2 * SLICE_S)
    if noise is not None:
        gflops = max(gflops, threads * peaks.multiply_add(1, SLICE_S))
    region_s = peaks.region(threads, SLICE_S / 5)
    facts = DeviceFacts(
        name=processor.name(),
        threads=threads,
        l2_bytes=l2_bytes,
        l3_bytes=l3_bytes,
        memory_bytes=_memory_bytes(),
        compiler=compiler.identity(),
        rates=rates if known is None else better(rates, known.rates),
        gflops=max(gflops, known.gflops if known else 0.0),
        region_s=min(region_s, known.region_s) if known else region_s,
        quiet=noise is None,
    )
    remembered.write(_path(cache, threads, compiler), facts)
    return facts


def _rates(peaks: Peaks, size: int, threads: int, is_quiet: bool) -> Rates:
    """Rates with all threads; on a busy machine those of one thread may be better."""
    found = peaks.bandwidth(size, threads, SLICE_S)
    if not is_quiet:
        found = tuple(map(max, found, peaks.bandwidth(size, 1, SLICE_S)))
    copy, read, fill = found
    return Rates(working_set=size, copy_rate=copy, read_rate=read, fill_rate=fill)


def _working_sets(l2_bytes: int, l3_bytes: int, memory_bytes: int) -> tuple[int, ...]:
    """Inside the second level, inside the last, about as large, and far beyond."""
    largest = min(8 * l3_bytes, MOST_BYTES, memory_bytes // 8)
    sizes = {l2_bytes // 2, l3_bytes // 4, l3_bytes // 2, l3_bytes, 2 * l3_bytes, largest}
    return tuple(sorted(size for size in sizes if size <= largest))


def _cache_bytes() -> tuple[int, int]:
    """Sizes of the second-level and the last-level cache of a core."""
    found: dict[int, int] = {}
    for folder in sorted(_CACHES.glob("index*")):
        try:
            kind = (folder / "type").read_text().strip()
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue  # some hypervisors hide a level
        if kind != "Instruction":
            found[level] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
    l2_bytes = found.get(2, _L2_BYTES)
    return l2_bytes, max(found.get(3, _L3_BYTES), 2 * l2_bytes)


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _path(cache: Path, threads: int, compiler: Compiler) -> Path:
    digest = remembered.digest(processor.name(), threads, compiler.identity())
    return cache / "devices" / f"cpu-{threads}t-{digest}.json"
