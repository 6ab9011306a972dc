"""Kernels that are slow for one reason each, with the tasks that they are for."""

from evokernel.attempt import Candidate

_TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x{more}):
        {body}
        return x


def get_inputs():
    return [{inputs}]
"""

_KERNEL = '''
import torch
from torch import nn

from evokernel import jit

KERNEL = jit.cpp_module(r"""
#include <algorithm>
#include <cstdint>
{code}
""")


class ModelNew(nn.Module):
    def forward(self, x{more}):
        y = torch.empty({shape})
        {call}
        return y
'''


def _task(inputs: str, body: str, more: str = "") -> str:
    return _TASK.format(inputs=inputs, body=body, more=more)


def _kernel(
    code: str, call: str = "KERNEL.run(x, y, x.numel())", shape: str = "x.shape", more: str = ""
) -> Candidate:
    source = _KERNEL.format(code=code, call=call, shape=shape, more=more)
    return Candidate(source=source, backend="cpp")


AFFINE = "x = 2 * x + 1"
LARGE = "torch.randn(2048, 1024)"

COMPUTE = (
    _task("torch.randn(256, 1024)", "for _ in range(60):\n            x = 0.9 * x + 0.1"),
    _kernel(
        """
extern "C" void run(const float* x, float* y, int64_t n) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; i += 64) {
    float v[64];
    for (int k = 0; k < 64; ++k) v[k] = x[i + k];
    for (int round = 0; round < 60; ++round)
      for (int k = 0; k < 64; ++k) v[k] = 0.9f * v[k] + 0.1f;
    for (int k = 0; k < 64; ++k) y[i + k] = v[k];
  }
}"""
    ),
)
"""120 operations an element, in registers."""

MEMORY = (
    _task(LARGE, AFFINE),
    _kernel(
        """
extern "C" void run(const float* x, float* y, int64_t n) {
#pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i] + 1;
}"""
    ),
)
"""One sweep that adds nothing to what has to be moved."""

LAUNCH = (
    _task("torch.randn(64, 1024)", AFFINE),
    _kernel(
        """
extern "C" void run(const float* x, float* y, int64_t n) {
#pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i] + 1;
}""",
        call="for r in range(64):\n            KERNEL.run(x[r], y[r], 1024)",
    ),
)
"""A launch, and a parallel region, for every row of 1024 elements."""

CONTENTION = (
    _task("torch.randn(16, 16384)", "x = x.sum(-1)"),
    _kernel(
        """
extern "C" void run(const float* x, float* y, int64_t rows, int64_t columns) {
  volatile float* sums = y;
#pragma omp parallel for schedule(static, 1)
  for (int64_t r = 0; r < rows; ++r) {
    sums[r] = 0;
    for (int64_t c = 0; c < columns; ++c) sums[r] = sums[r] + x[r * columns + c];
  }
}""",
        call="KERNEL.run(x, y, *x.shape)",
        shape="x.shape[0]",
    ),
)
"""False sharing: threads take turns at writing one cache line."""

SPILLS = (
    _task("torch.randn(512, 256), torch.randn(256, 320)", "x = x @ w", more=", w"),
    _kernel(
        """
typedef float Vector __attribute__((vector_size(32), aligned(4)));

extern "C" void run(const float* x, const float* w, float* y, int64_t rows, int64_t depth) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    Vector sums[40] = {};
    for (int64_t k = 0; k < depth; ++k) {
      const float v = x[r * depth + k];
      const Vector* line = reinterpret_cast<const Vector*>(w + k * 320);
#pragma GCC unroll 40
      for (int j = 0; j < 40; ++j) sums[j] += v * line[j];
    }
    for (int j = 0; j < 40; ++j) reinterpret_cast<Vector*>(y + r * 320)[j] = sums[j];
  }
}""",
        call="KERNEL.run(x, w, y, *x.shape)",
        shape="x.shape[0], 320",
        more=", w",
    ),
)
"""A register tile of 40 vectors, which no processor has registers for."""

SERIAL = (
    _task(LARGE, AFFINE),
    _kernel(
        """
extern "C" void run(const float* x, float* y, int64_t n) {
  for (int round = 0; round < 4; ++round) {
    const volatile float* in = x;
    for (int64_t i = 0; i < n; ++i) y[i] = 2 * in[i] + 1;
  }
}"""
    ),
)
"""One thread, one element at a time, four times over."""

PLANTED = {
    "compute": COMPUTE,
    "memory": MEMORY,
    "launch": LAUNCH,
    "contention": CONTENTION,
    "spills": SPILLS,
    "serial": SERIAL,
}
