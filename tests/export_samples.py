"""A small task with two workloads, and a kernel for it, to be exported and verified."""

TASK = '''"""Scale and shift of every row."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, factor=2.0):
        super().__init__()
        self.factor = factor
        self.shift = nn.Parameter(torch.randn(width))

    def forward(self, x, offset=1):
        return x * self.factor + self.shift + offset


def get_inputs():
    return [torch.randn(64, 32), 1]


def get_init_inputs():
    return [32]


def get_workloads():
    return [{"name": "small", "inputs": lambda: [torch.randn(3, 32), 1], "hidden": True}]
'''

KERNEL = '''# median_ms: 2.5
import torch

from evokernel import jit

CPP = r"""
#include <cstdint>
extern "C" void affine(const float* x, const float* shift, float* out, int64_t rows, int64_t cols,
                       float factor, float offset) {
  #pragma omp parallel for
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++)
      out[r * cols + c] = x[r * cols + c] * factor + shift[c] + offset;
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, width, factor=2.0):
        super().__init__()
        self.factor = factor
        self.shift = torch.nn.Parameter(torch.randn(width))
        self.kernels = jit.cpp_module(CPP)

    def forward(self, x, offset=1):
        out = torch.empty_like(x)
        self.kernels.affine(x, self.shift, out, *x.shape, self.factor, float(offset))
        return out
'''

CPP = KERNEL.partition('r"""')[2].partition('"""')[0]
