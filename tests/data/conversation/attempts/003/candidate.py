import torch

from evokernel import jit

KERNEL = jit.cpp_module(r"""
#include <cmath>
#include <cstdint>
#include <immintrin.h>

static inline float sum_of_squares(const float* from, int64_t width) {
  __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
    const __m256 p = _mm256_loadu_ps(from + i), q = _mm256_loadu_ps(from + i + 8);
    const __m256 r = _mm256_loadu_ps(from + i + 16), s = _mm256_loadu_ps(from + i + 24);
    a = _mm256_fmadd_ps(p, p, a);
    b = _mm256_fmadd_ps(q, q, b);
    c = _mm256_fmadd_ps(r, r, c);
    d = _mm256_fmadd_ps(s, s, d);
  }
  float lanes[8], sum = 0.0f;
  _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)));
  for (int k = 0; k < 8; k++) sum += lanes[k];
  for (; i < width; i++) sum += from[i] * from[i];
  return sum;
}

extern "C" void rms_norm(const float* x, const float* weight, float* out,
                         int64_t rows, int64_t width, double eps) {
  #pragma omp parallel
  {
    #pragma omp for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
      const float* from = x + row * width;
      float* to = out + row * width;
      const float mean = sum_of_squares(from, width) / (float)width;
      const float scale = 1.0f / std::sqrt(mean + (float)eps);
      // A prefetch never faults, so that the last row may ask for what lies behind it.
      const char* ahead = (const char*)(from + width);
      int64_t i = 0;
      if (((uintptr_t)to & 31) == 0) {
        const __m256 s = _mm256_set1_ps(scale);
        for (; i + 16 <= width; i += 16) {
          _mm_prefetch(ahead + 4 * i, _MM_HINT_T0);
          const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(from + i), s);
          const __m256 w = _mm256_mul_ps(_mm256_loadu_ps(from + i + 8), s);
          _mm256_stream_ps(to + i, _mm256_mul_ps(v, _mm256_loadu_ps(weight + i)));
          _mm256_stream_ps(to + i + 8, _mm256_mul_ps(w, _mm256_loadu_ps(weight + i + 8)));
        }
      }
      for (; i < width; i++) to[i] = from[i] * scale * weight[i];
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
