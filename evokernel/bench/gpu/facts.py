"""Owns `GpuFacts`: what this GPU is, what it can do at most, and the roofline's floor."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Self

from evokernel.bench import Say, remembered, silent
from evokernel.bench.gpu.lock import gpu_lock, lock_name
from evokernel.bench.gpu.monitor import Monitor, between
from evokernel.bench.gpu.nvml import opened
from evokernel.bench.roofline import Rates, Roofline, better
from evokernel.compilers import Compiler, architecture
from evokernel.errors import CompilerMissing, DeviceMissing
from evokernel.task import Precision

FORMAT = 1
"""Raised when the measuring kernels or their use change, so that older facts are measured again."""
SLICE_S = 0.04
"""Time for each rate at each working set, and for each precision."""
LARGE = (256 << 20, 1 << 30)
LOCK_S = 600.0
AGAIN_S = 600.0
"""How long facts from a disturbed device are believed."""


class GpuFacts(Roofline):
    """One GPU, its versions and its measured peaks."""

    uuid: str
    """The device's own name, the same in every process."""
    index: int
    """As torch numbers it in this process; not a property of the device."""
    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    shared_bytes: int
    """Most shared memory that a block can ask for."""
    registers: int
    """Of a multiprocessor."""
    sm_mhz: int | None
    """Highest clock of the multiprocessors."""
    memory_mhz: int | None
    driver: str
    """Version of the driver."""
    driver_cuda: tuple[int, int]
    """CUDA version that the driver knows."""
    runtime: str
    """CUDA version that torch was built for."""
    torch: str
    compiler: str
    """Identity of the compiler that built the measuring kernels; empty where only torch's were."""
    matrix: dict[str, float]
    """Best rate of a matrix product by precision, GFLOP/s; without those that it lacks."""
    launch_s: float
    """Seconds that the host takes to launch a kernel that does nothing."""
    precision: Precision = "fp32"
    """Whose arithmetic roof holds."""
    note: str = ""
    """Why the measurement is less than it could be."""
    format: int = FORMAT

    @property
    def arch(self) -> str:
        """The fullest architecture that it runs, e.g. `sm_90a`."""
        return architecture.of(self.capability)

    @property
    def fingerprint(self) -> str:
        """Short name of device, driver and versions, e.g. `cuda-nvidia-h200-1f2e3d4c`."""
        parts = (self.name, self.capability, self.multiprocessors, self.l2_bytes, self.driver)
        key = remembered.digest(*parts, self.runtime, self.torch, self.compiler)[:8]
        return f"cuda-{remembered.slug(self.name)}-{key}"

    @property
    def flush_bytes(self) -> int:
        """Twice the L2 cache: what is read before each timed call."""
        return 2 * self.l2_bytes

    @property
    def region_s(self) -> float:
        """What one launch takes of the host, the counterpart of a parallel region."""
        return self.launch_s

    def at(self, precision: Precision) -> Self:
        """The same device with the arithmetic roof of another precision."""
        return self.model_copy(update={"precision": precision})

    def compute_floor_ms(self, flops: int) -> float:
        """Time that the arithmetic takes at least at the precision's peak, milliseconds."""
        return 1e-6 * flops / self.matrix.get(self.precision, self.gflops)

    def in_words(self) -> str:
        """Name, versions and peaks for a listing."""
        inside, outside = self.rates[0], self.rates[-1]
        matrix = ", ".join(f"{name} {1e-3 * rate:.0f}" for name, rate in self.matrix.items())
        return (
            f"{self.name} ({self.arch}, {self.multiprocessors} multiprocessors, "
            f"{self.l2_bytes >> 20} MiB L2), driver {self.driver}, {inside.best:.0f} GB/s in L2, "
            f"{outside.best:.0f} GB/s from memory (copy {outside.copy_rate:.0f}), matrix products "
            f"in TFLOP/s: {matrix}"
            f"{'' if self.quiet else ' (measured while it was disturbed: too low)'}"
        )


def gpu_facts(cache: Path, index: int, compiler: Compiler, say: Say = silent) -> GpuFacts:
    """The facts of a GPU, from the cache folder or measured now (about five seconds).

    Args:
        cache: Folder that keeps them.
        index: The GPU, as torch numbers it in this process; a context is made on it.
        compiler: Builds the measuring kernels.
        say: Told when it is measured.

    Raises:
        DeviceMissing: The GPU cannot be used.
        WorkerError: The device's lock stayed taken.
    """
    path = _path(cache, index, compiler)
    found = _read(path)
    if found is not None and (found.quiet or remembered.is_recent(path, AGAIN_S)):
        return found.model_copy(update={"index": index})
    say("measuring memory and arithmetic rates of this GPU")
    with gpu_lock(lock_name(index), LOCK_S):
        return measure_again(cache, index, compiler, found)


def measure_again(
    cache: Path, index: int, compiler: Compiler, known: GpuFacts | None = None
) -> GpuFacts:
    """Measure the peaks now, keep the better of both looks, and write them to the cache folder.

    The caller holds the device's lock.
    """
    import torch

    from evokernel.bench.gpu.peaks import PRECISIONS, GpuPeaks

    with torch.cuda.device(index):
        peaks = GpuPeaks(compiler, index)
        monitor = Monitor(index)
        peaks.matrix("fp32", SLICE_S)  # brings the clocks up
        before = monitor.read()
        rates = tuple(_rates(size, peaks.bandwidth(size, SLICE_S)) for size in _working_sets(index))
        products = {name: peaks.matrix(name, SLICE_S) for name in PRECISIONS}
        launch_s = peaks.launch_s()
        seen = between(before, monitor.read(), ())
        torch.cuda.empty_cache()
    fixed = _fixed(index, "" if peaks.note else _identity(compiler))
    matrix = {name: rate for name, rate in products.items() if rate is not None}
    if known is not None:
        rates = better(rates, known.rates)
        matrix = {name: max(rate, known.matrix.get(name, 0.0)) for name, rate in matrix.items()}
        launch_s = min(launch_s, known.launch_s)
    facts = GpuFacts(
        **fixed,
        rates=rates,
        matrix=matrix,
        gflops=matrix["fp32"],
        launch_s=launch_s,
        quiet=seen.is_calm,
        note=peaks.note or monitor.note,
        precision=known.precision if known else "fp32",
    )
    remembered.write(_path(cache, index, compiler), facts)
    return facts


def _rates(size: int, found: tuple[float, float, float]) -> Rates:
    copy, read, fill = found
    return Rates(working_set=size, copy_rate=copy, read_rate=read, fill_rate=fill)


def working_sets(l2_bytes: int, memory_bytes: int) -> tuple[int, ...]:
    """Inside the L2 cache, twice as large, and far beyond."""
    sizes = {l2_bytes // 4, l2_bytes // 2, 2 * l2_bytes, *LARGE}
    return tuple(sorted(size for size in sizes if size <= memory_bytes // 8))


def _working_sets(index: int) -> tuple[int, ...]:
    import torch

    known: Any = torch.cuda.get_device_properties(index)
    return working_sets(known.L2_cache_size, known.total_memory)


def _fixed(index: int, compiler: str) -> dict[str, Any]:
    """What need not be measured."""
    import torch

    from evokernel.bench.gpu.driver import Driver

    known: Any = torch.cuda.get_device_properties(index)
    driver = Driver().version
    most: tuple[int | None, int | None] = (None, None)
    named = f"CUDA {driver[0]}.{driver[1]}"
    with contextlib.suppress(DeviceMissing):  # then the driver is known by its CUDA version alone
        most, named = opened().most_mhz(f"GPU-{known.uuid}"), opened().driver
    return {
        "name": known.name,
        "uuid": f"GPU-{known.uuid}",
        "index": index,
        "capability": (known.major, known.minor),
        "multiprocessors": known.multi_processor_count,
        "l2_bytes": known.L2_cache_size,
        "memory_bytes": known.total_memory,
        "shared_bytes": known.shared_memory_per_block_optin,
        "registers": known.regs_per_multiprocessor,
        "sm_mhz": most[0],
        "memory_mhz": most[1],
        "driver": named,
        "driver_cuda": driver,
        "runtime": torch.version.cuda or "",
        "torch": torch.__version__,
        "compiler": compiler,
    }


def _path(cache: Path, index: int, compiler: Compiler) -> Path:
    """By everything that decides what would be measured, asked without a context."""
    from importlib.metadata import version

    versions = [version("torch"), _identity(compiler)]
    with contextlib.suppress(DeviceMissing):
        versions.append(opened().driver)
    return cache / "devices" / f"{lock_name(index)}-{remembered.digest(*versions)}.json"


def _identity(compiler: Compiler) -> str:
    try:
        return compiler.identity()
    except CompilerMissing:
        return ""


def _read(path: Path) -> GpuFacts | None:
    found = remembered.read(path, GpuFacts)
    return found if found is not None and found.format == FORMAT else None
