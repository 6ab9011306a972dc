import torch

from evokernel import jit

KERNEL = jit.cpp_module(r"""
#include <cmath>
#include <cstdint>
#include <immintrin.h>
#include <omp.h>

static inline float total(__m256 a, __m256 b) {
  float lanes[8], sum = 0.0f;
  _mm256_storeu_ps(lanes, _mm256_add_ps(a, b));
  for (int k = 0; k < 8; k++) sum += lanes[k];
  return sum;
}

// Writes one row (if `to` is given) and sums the squares of the next one (if `next` is given).
static inline float sweep(const float* from, const float* weight, float* to, float scale,
                          const float* next, int64_t width) {
  const bool streams = to && ((uintptr_t)to & 31) == 0;
  const __m256 s = _mm256_set1_ps(scale);
  __m256 a = _mm256_setzero_ps(), b = a;
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    if (next) {
      const __m256 p = _mm256_loadu_ps(next + i), q = _mm256_loadu_ps(next + i + 8);
      a = _mm256_fmadd_ps(p, p, a);
      b = _mm256_fmadd_ps(q, q, b);
    }
    if (to) {
      __m256 v = _mm256_mul_ps(_mm256_loadu_ps(from + i), s);
      __m256 w = _mm256_mul_ps(_mm256_loadu_ps(from + i + 8), s);
      v = _mm256_mul_ps(v, _mm256_loadu_ps(weight + i));
      w = _mm256_mul_ps(w, _mm256_loadu_ps(weight + i + 8));
      if (streams) {
        _mm256_stream_ps(to + i, v);
        _mm256_stream_ps(to + i + 8, w);
      } else {
        _mm256_storeu_ps(to + i, v);
        _mm256_storeu_ps(to + i + 8, w);
      }
    }
  }
  float sum = total(a, b);
  for (; i < width; i++) {
    if (next) sum += next[i] * next[i];
    if (to) to[i] = from[i] * scale * weight[i];
  }
  return sum;
}

extern "C" void rms_norm(const float* x, const float* weight, float* out,
                         int64_t rows, int64_t width, double eps) {
  #pragma omp parallel
  {
    const int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t begin = rows * me / team, end = rows * (me + 1) / team;
    if (begin < end) {
      float sum = sweep(nullptr, weight, nullptr, 0.0f, x + begin * width, width);
      for (int64_t row = begin; row < end; row++) {
        const float scale = 1.0f / std::sqrt(sum / (float)width + (float)eps);
        const float* next = row + 1 < end ? x + (row + 1) * width : nullptr;
        sum = sweep(x + row * width, weight, out + row * width, scale, next, width);
      }
    }
    _mm_sfence();  // streamed lines have to be visible before the threads part
  }
}
""")


class ModelNew(torch.nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = torch.nn.Parameter(1.0 + 0.2 * torch.randn(width))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        width = x.shape[-1]
        KERNEL.rms_norm(x, self.weight, out, x.numel() // width, width, self.eps)
        return out
