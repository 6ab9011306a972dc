"""Softmax over the last dimension in C++ with OpenMP, built through `evokernel.jit`."""

import torch
from torch import nn

from evokernel.jit import cpp_module

SOURCE = r"""
#include <cmath>
#include <cstdint>

// exp(x) for x <= 0, in a form that compilers turn into vectors: 2^n times a polynomial of the rest
// (its coefficients are those of the Taylor series). 2^n is applied in two steps, since results may
// be denormal.
inline float power(int n) {
  union { int32_t bits; float value; } made{(n + 127) << 23};
  return made.value;
}

inline float exponential(float x) {
  const float bounded = x > -104.0f ? x : -104.0f;
  const float n = std::nearbyint(bounded * 1.44269504f);
  const float r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int whole = static_cast<int>(n), half = whole / 2;
  const float result = p * power(half) * power(whole - half);
  return x != x ? x : result;
}

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
      out[i] = exponential(in[i] - top);
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
