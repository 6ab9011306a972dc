"""Softmax over the last dimension in C++ with OpenMP, built through `evokernel.jit`."""

import torch
from torch import nn

from evokernel.jit import cpp_module

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, float* y, int64_t rows, int64_t columns) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * columns;
    float* out = y + row * columns;
    float top = -INFINITY, sum = 0;
    bool is_nan = false;
    for (int64_t i = 0; i < columns; ++i) {
      is_nan |= in[i] != in[i];
      top = in[i] > top ? in[i] : top;
    }
    if (is_nan) top = NAN;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < columns; ++i) {
      out[i] = std::exp(in[i] - top);
      sum += out[i];
    }
    const float scale = 1 / sum;
    for (int64_t i = 0; i < columns; ++i) out[i] *= scale;
  }
}
"""

built = cpp_module(SOURCE)


class ModelNew(nn.Module):
    """Takes the place of the reference."""

    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        """Return the softmax of each row."""
        y = torch.empty_like(x)
        built.softmax(x, y, x.shape[0], x.shape[1])
        return y
