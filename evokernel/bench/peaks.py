"""Owns the measurement of what this processor can do at most: bytes and multiply-adds a second.

A small C++ kernel does it, so that the roofline rests on what the same compiler reaches here, not
on a data sheet or a table of names.
"""

import ctypes

from evokernel.compilers import Artefact, Compiler, KernelSource
from evokernel.errors import CompilerMissing

KINDS = ("copy", "read", "fill")

SOURCE = r"""
#include <omp.h>
#include <sys/mman.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

struct Span {
  char* data;
  int64_t bytes;
};

// The piece of one thread, in whole cache lines.
Span piece(char* base, int64_t bytes) {
  const int64_t lines = bytes / 64, count = omp_get_num_threads(), me = omp_get_thread_num();
  const int64_t from = lines * me / count, to = lines * (me + 1) / count;
  return {base + from * 64, (to - from) * 64};
}

uint64_t sink;

// Eight vector registers of partial sums, so that no addition waits for the one before.
void read_all(Span span) {
  constexpr int kLanes = 32;
  const uint64_t* words = reinterpret_cast<const uint64_t*>(span.data);
  const int64_t count = span.bytes / 8 / kLanes * kLanes;
  uint64_t part[kLanes] = {};
  for (int64_t i = 0; i < count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) part[lane] += words[i + lane];
  uint64_t sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += part[lane];
#pragma omp atomic
  sink += sum;
}

void fill_all(Span span, int value) {
  if (value & 1) {
    std::memset(span.data, value, span.bytes);
    return;
  }
  uint64_t* words = reinterpret_cast<uint64_t*>(span.data);
  const int64_t count = span.bytes / 8;
  for (int64_t i = 0; i < count; ++i) words[i] = value;
}

void copy_all(Span from, Span to, int round) {
  if (round & 1) {
    std::memcpy(to.data, from.data, from.bytes);
    return;
  }
  const uint64_t* in = reinterpret_cast<const uint64_t*>(from.data);
  uint64_t* out = reinterpret_cast<uint64_t*>(to.data);
  const int64_t count = from.bytes / 8;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = in[i];
}

}  // namespace

// Best GB/s (1e9 bytes) over rounds of at least a millisecond. kind: 0 copy, 1 read, 2 fill.
// `bytes` is the working set: all that one pass touches, for a copy both sides together.
extern "C" double evokernel_bandwidth(int kind, int64_t bytes, int threads, double seconds) {
  const int64_t page = 2 << 20, room = (bytes + page - 1) / page * page;
  char* base = static_cast<char*>(std::aligned_alloc(page, room));
  if (!base) return 0.0;
  madvise(base, room, MADV_HUGEPAGE);
  const int64_t half = bytes / 2 / 64 * 64;
  double best = 0.0, passes = 1.0;
#pragma omp parallel num_threads(threads)
  std::memset(piece(base, room).data, 1, piece(base, room).bytes);
  const double until = now() + seconds;
  for (int round = 0; round < 4 || now() < until; ++round) {
    const int count = static_cast<int>(passes);
    const double start = now();
#pragma omp parallel num_threads(threads)
    for (int pass = 0; pass < count; ++pass) {
      if (kind == 0) copy_all(piece(base, half), piece(base + half, half), round);
      if (kind == 1) read_all(piece(base, bytes));
      if (kind == 2) fill_all(piece(base, bytes), round);
    }
    const double took = std::max(now() - start, 1e-9);
    best = std::max(best, 1e-9 * bytes * count / took);
    passes = std::min(std::max(passes * 2e-3 / took, 1.0), 1e6);
  }
  std::free(base);
  return best;
}

// Least seconds of a parallel region that does nothing: waking and waiting for all threads.
extern "C" double evokernel_region(int threads, double seconds) {
  constexpr int kRegions = 50;
  double least = 1.0;
  const double until = now() + seconds;
  for (int round = 0; round < 4 || now() < until; ++round) {
    const double start = now();
    for (int region = 0; region < kRegions; ++region) {
#pragma omp parallel num_threads(threads)
      asm volatile("" ::: "memory");
    }
    least = std::min(least, (now() - start) / kRegions);
  }
  return least;
}

// Vectors by name: what a compiler makes of a loop over floats differs from one processor to the
// next, down to one float at a time.
#if defined(__AVX512F__)
typedef float Vector __attribute__((vector_size(64)));
#elif defined(__AVX__)
typedef float Vector __attribute__((vector_size(32)));
#else
typedef float Vector __attribute__((vector_size(16)));
#endif

// Twelve chains hide the latency of each, and fit into sixteen registers beside their operands.
#define EVOKERNEL_CHAINS(DO) \
  DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

// Best GFLOP/s of independent float multiply-adds; each counts two.
extern "C" double evokernel_multiply_add(int threads, double seconds) {
  constexpr int kLanes = 12 * sizeof(Vector) / sizeof(float);
  constexpr int kSteps = 1000000;  // some milliseconds, beside which waking threads is nothing
  double best = 0.0;
  const double until = now() + seconds;
  for (int round = 0; round < 4 || now() < until; ++round) {
    const double start = now();
#pragma omp parallel num_threads(threads)
    {
      const Vector factor = Vector{} + (0.999f + 1e-6f * round), term = Vector{} + 1e-3f;
#define BEGIN(i) Vector part##i = term * static_cast<float>(1 + i + round);
      EVOKERNEL_CHAINS(BEGIN)
#define STEP(i) part##i = part##i * factor + term;
      for (int step = 0; step < kSteps; ++step) {
        EVOKERNEL_CHAINS(STEP)
      }
      Vector all = {};
#define ADD(i) all += part##i;
      EVOKERNEL_CHAINS(ADD)
      uint64_t bits = static_cast<uint64_t>(1e6f * all[0]);
#pragma omp atomic
      sink += bits;
    }
    best = std::max(best, 2e-9 * kLanes * kSteps * threads / std::max(now() - start, 1e-9));
  }
  return best;
}
"""


class Peaks:
    """The measuring kernel, built and loaded.

    Args:
        compiler: Builds it, or answers from its cache.

    Raises:
        CompilerMissing: It cannot be built here.
    """

    def __init__(self, compiler: Compiler) -> None:
        built = compiler.build(KernelSource(backend="cpp", source=SOURCE, name="peaks.cpp"))
        if not isinstance(built, Artefact):
            raise CompilerMissing(
                "the kernel that measures this machine does not build "
                f"(`{built.diagnostics[0].message}`); expected a C++17 compiler with OpenMP, "
                "such as g++ 9 or newer"
            )
        self._library = ctypes.CDLL(built.path)
        self._library.evokernel_bandwidth.restype = ctypes.c_double
        self._library.evokernel_multiply_add.restype = ctypes.c_double
        self._library.evokernel_region.restype = ctypes.c_double

    def bandwidth(self, working_set: int, threads: int, seconds: float) -> tuple[float, ...]:
        """Best GB/s of copy, read and fill.

        Args:
            working_set: Bytes that one pass touches.
            threads: OpenMP threads.
            seconds: Time for each of the three.
        """
        call = self._library.evokernel_bandwidth
        return tuple(
            float(call(kind, ctypes.c_int64(working_set), threads, ctypes.c_double(seconds)))
            for kind in range(len(KINDS))
        )

    def region(self, threads: int, seconds: float) -> float:
        """Least seconds of a parallel region that does nothing."""
        return float(self._library.evokernel_region(threads, ctypes.c_double(seconds)))

    def multiply_add(self, threads: int, seconds: float) -> float:
        """Best GFLOP/s of float32 multiply-adds, two operations each."""
        return float(self._library.evokernel_multiply_add(threads, ctypes.c_double(seconds)))
