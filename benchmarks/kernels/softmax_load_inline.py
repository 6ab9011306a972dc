"""The kernel of `softmax_jit.py` as an extension that torch's `load_inline` builds."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <cstdint>

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
      out[i] = std::exp(in[i] - top);
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
