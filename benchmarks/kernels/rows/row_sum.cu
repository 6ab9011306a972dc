// The sum of each row, one block a row.
__device__ inline float total(float v) {
  __shared__ float parts[8];
  for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(0xffffffffu, v, k);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[threadIdx.x % 8];
  for (int k = 4; k; k >>= 1) v += __shfl_xor_sync(0xffffffffu, v, k);
  return v;
}

extern "C" __global__ void __launch_bounds__(256)
row_sum(const float* __restrict__ x, float* __restrict__ out, long long rows, int columns) {
  const float4* row = reinterpret_cast<const float4*>(x + (long long)blockIdx.x * columns);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns / 4; i += 256) {
    const float4 v = row[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  sum = total(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
