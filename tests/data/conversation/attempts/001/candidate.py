import torch

from evokernel import jit

KERNEL = jit.cpp_module(r"""
#include <cmath>
#include <cstdint>

extern "C" void rms_norm(const float* x, const float* weight, float* out,
                         int64_t rows, int64_t width, double eps) {
  #pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const float* from = x + row * width;
    float* to = out + row * width;
    float sum = 0.0f;
    #pragma omp simd reduction(+:sum)
    for (int64_t i = 0; i < width; i++) sum += from[i] * from[i];
    const float mean = sum / (float)width;
    const float scale = 1.0f / std::sqrt(mean + (float)eps);
    #pragma omp simd
    for (int64_t i = 0; i < width; i++) to[i] = from[i] * scale * weight[i];
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
