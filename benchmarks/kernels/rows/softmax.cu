// The softmax of each row, one block a row, which is read three times (twice out of the cache).
__device__ inline float larger(float a, float b) { return a != a ? a : b > a || b != b ? b : a; }

__device__ inline float largest(float v) {
  __shared__ float parts[8];
  for (int k = 16; k; k >>= 1) v = larger(v, __shfl_xor_sync(0xffffffffu, v, k));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[threadIdx.x % 8];
  for (int k = 4; k; k >>= 1) v = larger(v, __shfl_xor_sync(0xffffffffu, v, k));
  return v;
}

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
softmax(const float* __restrict__ x, float* __restrict__ out, long long rows, int columns) {
  const float* row = x + (long long)blockIdx.x * columns;
  float* to = out + (long long)blockIdx.x * columns;
  float top = -INFINITY, sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 256) top = larger(top, row[i]);
  top = largest(top);
  for (int i = threadIdx.x; i < columns; i += 256) sum += expf(row[i] - top);
  sum = total(sum);
  for (int i = threadIdx.x; i < columns; i += 256) to[i] = expf(row[i] - top) / sum;
}
