"""`1.5 x + 0.25` in CUDA: 16 bytes a thread and access, four accesses in flight."""

import torch
from torch import nn

from evokernel.jit import cuda_module

SOURCE = r"""
#define THREADS 256
#define EACH 4

__device__ inline float one(float x) { return fmaf(x, 1.5f, 0.25f); }

extern "C" __global__ void __launch_bounds__(THREADS)
scale(const float4* __restrict__ x, float4* __restrict__ out, long long count) {
  const long long first = (long long)blockIdx.x * THREADS * EACH + threadIdx.x;
  float4 part[EACH];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const long long at = first + i * THREADS;
    if (at < count) part[i] = x[at];
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const long long at = first + i * THREADS;
    if (at < count) {
      const float4 v = part[i];
      out[at] = make_float4(one(v.x), one(v.y), one(v.z), one(v.w));
    }
  }
}
"""
THREADS, EACH = 256, 4

module = cuda_module(SOURCE)


class ModelNew(nn.Module):
    """As the reference; the number of elements is a multiple of four."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale and shift every element."""
        out = torch.empty_like(x)
        count = x.numel() // 4
        blocks = -(-count // (THREADS * EACH))
        module.scale[blocks, THREADS](x, out, count)
        return out
