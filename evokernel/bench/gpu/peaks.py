"""Owns the measurement of what a GPU can do at most: bytes, matrix products and launches a second.

Bytes are moved by kernels of ours and by torch's, the better of the two counts; matrix products are
torch's, of random values, since zeros are faster than any data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from evokernel.bench.gpu import placing
from evokernel.bench.gpu.driver import Driver
from evokernel.compilers import Artefact, Compiler, KernelSource, architecture
from evokernel.errors import CompilerMissing, ConfigError
from evokernel.jit import CudaModule
from evokernel.jit import device as loading

THREADS, WORDS = 512, 4
"""Of a block, and 16-byte words that each thread has in flight: a block's tile is 32 KiB."""
RESIDENT = 4
"""Blocks per multiprocessor where all data stay in the L2 cache and each goes over them often."""
LEAST_S = 5e-4
"""Shortest stretch between two events: launches in it weigh under 1 %."""
LAUNCHES = 500
_LEAST_MEMORY = 8 << 30
"""Devices with less get smaller matrix products."""
PRECISIONS = {
    "fp32": ("float32", False, (0, 0), 4096),
    "tf32": ("float32", True, (8, 0), 8192),
    "bf16": ("bfloat16", False, (8, 0), 8192),
    "fp16": ("float16", False, (7, 0), 8192),
}
"""By precision of a task: torch's type, whether TF32 is allowed, the least capability, the size."""

SOURCE = r"""
// Tiles of 32 KiB; in every pass a block takes others than in the one before, past the L1 cache.
#define TILE(pass) (((blockIdx.x + 7LL * (pass)) % gridDim.x) * TILE_WORDS)
#define TILE_WORDS (THREADS * WORDS)

extern "C" __global__ void __launch_bounds__(THREADS)
read_all(const uint4* __restrict__ data, long long words, int passes, uint4* sink) {
  unsigned int sum = 0;
  for (int pass = 0; pass < passes; ++pass)
    for (long long at = TILE(pass); at < words; at += (long long)gridDim.x * TILE_WORDS) {
      uint4 part[WORDS];
#pragma unroll
      for (int i = 0; i < WORDS; ++i) part[i] = __ldcg(data + at + i * THREADS + threadIdx.x);
#pragma unroll
      for (int i = 0; i < WORDS; ++i) sum ^= part[i].x ^ part[i].y ^ part[i].z ^ part[i].w;
    }
  if (sum == 0x5eed5eedu) sink->x = sum;  // so that nothing that was read is left out
}

extern "C" __global__ void __launch_bounds__(THREADS)
fill_all(uint4* __restrict__ data, long long words, int passes, int value) {
  for (int pass = 0; pass < passes; ++pass)
    for (long long at = TILE(pass); at < words; at += (long long)gridDim.x * TILE_WORDS)
#pragma unroll
      for (int i = 0; i < WORDS; ++i)
        data[at + i * THREADS + threadIdx.x] = make_uint4(value + pass, value, value, value);
}

extern "C" __global__ void __launch_bounds__(THREADS)
copy_all(const uint4* __restrict__ from, uint4* __restrict__ to, long long words, int passes) {
  for (int pass = 0; pass < passes; ++pass)
    for (long long at = TILE(pass); at < words; at += (long long)gridDim.x * TILE_WORDS) {
      uint4 part[WORDS];
#pragma unroll
      for (int i = 0; i < WORDS; ++i) part[i] = __ldcg(from + at + i * THREADS + threadIdx.x);
#pragma unroll
      for (int i = 0; i < WORDS; ++i) to[at + i * THREADS + threadIdx.x] = part[i];
    }
}

extern "C" __global__ void nothing() {}
"""


class GpuPeaks:
    """The measuring kernels, built and loaded, on torch's current GPU.

    Args:
        compiler: Builds them, or answers from its cache. Where none can be built or loaded, torch's
            own kernels measure alone; `note` says why.
        index: The GPU, as torch numbers it.
    """

    def __init__(self, compiler: Compiler, index: int) -> None:
        self._device = torch.device("cuda", index)
        self._known: Any = torch.cuda.get_device_properties(index)
        torch.zeros(1, device=self._device)  # makes the context
        self._driver = Driver()
        self._pause: Callable[[int], None] = torch.cuda._sleep
        self._start, self._end = self._driver.event(), self._driver.event()
        self._module, self.note = self._built(compiler)

    def bandwidth(self, working_set: int, seconds: float) -> tuple[float, float, float]:
        """Best GB/s of copy, read and fill.

        Args:
            working_set: Bytes that one pass touches; for a copy both sides together.
            seconds: Time for each of the three.
        """
        tile = THREADS * WORDS * 16
        size = max(2 * tile, working_set // (2 * tile) * 2 * tile)
        data = torch.zeros(size // 4, device=self._device)
        half = data.numel() // 2
        near, far = data[:half], data[half:]
        copies: list[Callable[[], Any]] = [lambda: far.copy_(near)]
        reads: list[Callable[[], Any]] = [lambda: torch.sum(data)]
        fills: list[Callable[[], Any]] = [lambda: data.fill_(1.0)]
        passes = 1
        if self._module is not None:
            launch, words, passes = self._shaped(size)
            blocks = max(1, launch // 2) if passes == 1 else launch
            module, sink = self._module, torch.zeros(4, device=self._device)
            copies += [lambda: module.copy_all[blocks, THREADS](near, far, words // 2, passes)]
            reads += [lambda: module.read_all[launch, THREADS](data, words, passes, sink)]
            fills += [lambda: module.fill_all[launch, THREADS](data, words, passes, 1)]
        found = [self._best(kind, seconds, size, passes) for kind in (copies, reads, fills)]
        return found[0], found[1], found[2]

    def matrix(self, precision: str, seconds: float) -> float | None:
        """Best GFLOP/s of a square matrix product; None where the device lacks the precision."""
        dtype, is_tf32, least, size = PRECISIONS[precision]
        if (self._known.major, self._known.minor) < least:
            return None
        if self._known.total_memory < _LEAST_MEMORY:
            size //= 2
        with placing.precision(is_tf32):
            shape = {"device": self._device, "dtype": getattr(torch, dtype)}
            a, b = torch.randn(size, size, **shape), torch.randn(size, size, **shape)
            out = torch.empty(size, size, **shape)
            took = self._least(lambda: torch.matmul(a, b, out=out), seconds)
        return 2e-9 * size**3 / took

    def launch_s(self) -> float:
        """Seconds that the host takes to launch a kernel that does nothing, in a long row."""
        one = torch.zeros(1, device=self._device)
        launch: Callable[[], Any] = one.zero_
        if self._module is not None:
            launch = self._module.nothing[1, 32]
        least = 1.0
        for _ in range(5):
            self._driver.synchronize()
            began = time.perf_counter()
            for _ in range(LAUNCHES):
                launch()
            least = min(least, (time.perf_counter() - began) / LAUNCHES)
        self._driver.synchronize()
        return least

    def _shaped(self, size: int) -> tuple[int, int, int]:
        """Blocks, words and passes: inside the L2 cache, few blocks that go over it many times."""
        tiles = size // (THREADS * WORDS * 16)
        if size > self._known.L2_cache_size:
            return tiles, size // 16, 1
        blocks = min(tiles, RESIDENT * self._known.multi_processor_count)
        return blocks, size // 16, max(2, (1 << 30) // size)

    def _best(
        self, kinds: list[Callable[[], Any]], seconds: float, size: int, passes: int
    ) -> float:
        """The best rate of torch's kernel, which makes one pass, and of ours."""
        share = seconds / len(kinds)
        rates = [1e-9 * size / self._least(kinds[0], share)]
        rates += [1e-9 * size * passes / self._least(kind, share) for kind in kinds[1:]]
        return max(rates)

    def _least(self, work: Callable[[], Any], seconds: float) -> float:
        """Least device seconds of a launch, over stretches of at least `LEAST_S`."""
        count, least = 1, float("inf")
        work()
        until = time.monotonic() + seconds
        rounds = 0
        while rounds < 4 or time.monotonic() < until:
            took = self._stretch(work, count)
            if took >= LEAST_S:
                least, rounds = min(least, took / count), rounds + 1
            else:
                count = max(count + 1, min(4 * count, round(1.5 * count * LEAST_S / took)))
        return least

    def _stretch(self, work: Callable[[], Any], count: int) -> float:
        stream = torch.cuda.current_stream(self._device).cuda_stream
        self._driver.synchronize()
        self._pause(100_000)  # so that launches wait in a row
        self._driver.record(self._start, stream)
        for _ in range(count):
            work()
        self._driver.record(self._end, stream)
        self._driver.synchronize()
        return max(1e-9 * self._driver.elapsed_ns(self._start, self._end), 1e-9)

    def _built(self, compiler: Compiler) -> tuple[CudaModule | None, str]:
        if why := loading.missing():
            return None, why
        flags = (f"-DTHREADS={THREADS}", f"-DWORDS={WORDS}")
        arch = architecture.of((self._known.major, self._known.minor))
        kernel = KernelSource(
            backend="cuda", source=SOURCE, flags=flags, name="peaks.cu", arch=arch
        )
        try:
            built = compiler.build(kernel)
        except (CompilerMissing, ConfigError) as error:
            return None, str(error)
        if not isinstance(built, Artefact):
            return None, f"the measuring kernels do not build: {built.diagnostics[0].message}"
        return CudaModule(kernel, built), ""
