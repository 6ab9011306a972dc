"""The kernel of `softmax_jit.py` as an extension that torch's `load_inline` builds."""

from torch import nn
from torch.utils.cpp_extension import load_inline

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

torch::Tensor softmax(torch::Tensor x) {
  torch::Tensor y = torch::empty_like(x);
  const int64_t rows = x.size(0), columns = x.size(1);
  const float* source = x.data_ptr<float>();
  float* target = y.data_ptr<float>();
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = source + row * columns;
    float* out = target + row * columns;
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
  return y;
}
"""

built = load_inline(
    name="softmax_inline",
    cpp_sources=SOURCE,
    functions=["softmax"],
    extra_cflags=["-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"],
)


class ModelNew(nn.Module):
    """Takes the place of the reference."""

    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        """Return the softmax of each row."""
        return built.softmax(x)
