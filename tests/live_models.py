"""Live models for tests, and a kernel that fits a part of one."""

import torch
from torch import nn


class Mixer(nn.Module):
    """Two blocks, of which each begins with the norm that `KERNEL` is for."""

    def __init__(self, rows: int = 16, columns: int = 32) -> None:
        super().__init__()
        blocks = (nn.Sequential(nn.LayerNorm(columns), nn.Linear(columns, columns)) for _ in "ab")
        self.blocks = nn.ModuleList(blocks)
        self.last = nn.Softmax(-1)
        self.example = torch.randn(rows, columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


KERNEL = '''
import torch
from torch import nn

from evokernel import jit

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void norm(const float* x, const float* weight, const float* bias, float* out,
                     int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
        const float* in = x + row * columns;
        double mean = 0, spread = 0;
        for (int64_t i = 0; i < columns; ++i) mean += in[i];
        mean /= columns;
        for (int64_t i = 0; i < columns; ++i) spread += (in[i] - mean) * (in[i] - mean);
        const double scale = 1 / std::sqrt(spread / columns + 1e-5);
        for (int64_t i = 0; i < columns; ++i)
            out[row * columns + i] = (in[i] - mean) * scale * weight[i] + bias[i];
    }
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32))
        self.bias = nn.Parameter(torch.zeros(32))
        self.kernel = jit.cpp_module(SOURCE)

    def forward(self, x):
        out = torch.empty_like(x)
        self.kernel.norm(x, self.weight, self.bias, out, x.shape[0], x.shape[1])
        return out
'''
"""Judged by a fake, which says that it takes a millisecond; built and called for real."""
