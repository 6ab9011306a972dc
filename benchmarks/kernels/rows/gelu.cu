// gelu(x) = x (1 + erf(x / sqrt 2)) / 2, four numbers an access.
extern "C" __global__ void __launch_bounds__(256)
gelu(const float* __restrict__ x, float* __restrict__ out, long long rows, int columns) {
  const long long count = rows * columns / 4;
  const float4* from = reinterpret_cast<const float4*>(x);
  float4* to = reinterpret_cast<float4*>(out);
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    float4 v = from[i];
    v.x *= 0.5f * (1.0f + erff(v.x * 0.70710678f));
    v.y *= 0.5f * (1.0f + erff(v.y * 0.70710678f));
    v.z *= 0.5f * (1.0f + erff(v.z * 0.70710678f));
    v.w *= 0.5f * (1.0f + erff(v.w * 0.70710678f));
    to[i] = v;
  }
}
