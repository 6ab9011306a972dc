"""CUDA kernels that are slow for one reason each, and such as use memory that is not theirs."""

from typing import NamedTuple

import torch


class Planted(NamedTuple):
    """A candidate, its inputs, and what they take at least."""

    source: str
    inputs: list[object]
    min_bytes: int
    flops: int


_KERNEL = '''
import torch

from evokernel import jit

KERNEL = jit.cuda_module(r"""{code}""")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty({shape})
        {call}
        return y
'''


def _kernel(code: str, call: str, shape: str = "x.shape, device=x.device") -> str:
    return _KERNEL.format(code=code, call=call, shape=shape)


_AFFINE = """
extern "C" __global__ void affine(const float4* x, float4* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = x[i];
  v.x = 2 * v.x + 1; v.y = 2 * v.y + 1; v.z = 2 * v.z + 1; v.w = 2 * v.w + 1;
  y[i] = v;
}
"""

_ROUNDS = """
extern "C" __global__ void rounds(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a = x[i], b = a + 1, c = a + 2, d = a + 3;
  for (int k = 0; k < 2048; ++k) {
    a = 0.9f * a + 0.1f; b = 0.9f * b + 0.1f; c = 0.9f * c + 0.1f; d = 0.9f * d + 0.1f;
  }
  y[i] = a + b + c + d;
}
"""

_CHASE = """
extern "C" __global__ void chase(const int* next, int* y, int steps) {
  int at = threadIdx.x;
  for (int k = 0; k < steps; ++k) at = next[at];
  y[threadIdx.x] = at;
}
"""


def memory(n: int = 1 << 26) -> Planted:
    """One sweep, 16 bytes at a time."""
    call = "KERNEL.affine[(x.numel() // 4 + 255) // 256, 256](x, y, x.numel() // 4)"
    return Planted(_kernel(_AFFINE, call), [torch.randn(n)], 8 * n, 2 * n)


def compute(n: int = 1 << 22) -> Planted:
    """16384 operations an element, in registers."""
    call = "KERNEL.rounds[(x.numel() + 255) // 256, 256](x, y, x.numel())"
    return Planted(_kernel(_ROUNDS, call), [torch.randn(n)], 8 * n, 16384 * n)


def latency(n: int = 1 << 24, steps: int = 4096) -> Planted:
    """One block, in which every load waits for the one before."""
    call = f"KERNEL.chase[1, 32](x, y, {steps})"
    order = (torch.arange(n, dtype=torch.int64) * 1_664_525 + 1_013_904_223) % n
    source = _kernel(_CHASE, call, "32, dtype=torch.int32, device=x.device")
    return Planted(source, [order.int()], 32 * 4 * steps, 32 * steps)


def launch(rows: int = 128, columns: int = 1024) -> Planted:
    """A launch for every row of 1024 elements."""
    call = f"for r in range({rows}): KERNEL.affine[1, 256](x[r], y[r], {columns} // 4)"
    n = rows * columns
    return Planted(_kernel(_AFFINE, call), [torch.randn(rows, columns)], 8 * n, 2 * n)


PLANTED = {"memory": memory, "compute": compute, "latency": latency, "launch": launch}

BEYOND = _kernel(
    """
extern "C" __global__ void beyond(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i] = x[i < n ? i : 0];
}
""",
    "KERNEL.beyond[x.numel() // 256 + 1, 256](x, y, x.numel())",
)
"""Writes one element too many."""

RACE = _kernel(
    """
extern "C" __global__ void turned(const float* x, float* y, int n) {
  __shared__ float row[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  row[threadIdx.x] = i < n ? x[i] : 0;
  if (i < n) y[i] = row[255 - threadIdx.x];
}
""",
    "KERNEL.turned[(x.numel() + 255) // 256, 256](x, y, x.numel())",
)
"""Reads what other threads write, without a barrier between."""

CLEAN = _kernel(
    """
extern "C" __global__ void turned(const float* x, float* y, int n) {
  __shared__ float row[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  row[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) y[i] = row[255 - threadIdx.x];
}
""",
    "KERNEL.turned[(x.numel() + 255) // 256, 256](x, y, x.numel())",
)
"""The same with the barrier."""
