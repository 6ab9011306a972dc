// Owns the device functions of generated CUDA kernels: C++17, sm_80 and later, no headers.
//
// `header.py` copies the sections that a kernel uses into its source; a section that another one
// names comes along. NaN propagates as in torch; nothing relies on fast-math flags. Errors are
// those of CUDA's own functions (CUDA C++ Programming Guide, "Mathematical Functions Appendix").

// section words: Word
// A bit pattern that one instruction moves.
template <int BYTES> struct Word;
template <> struct Word<1> { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned int type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

// section packs: Pack
// N neighbouring elements, moved in words of up to 16 bytes.
template <class T, int N> struct Pack {
  static constexpr int WIDTH = sizeof(T) * N < 16 ? sizeof(T) * N : 16;
  static constexpr int COUNT = sizeof(T) * N / WIDTH;
  typedef typename gpu::Word<WIDTH>::type Bits;
  union {
    T at[N];
    Bits words[COUNT];
  };
};

// section load: load
template <int N, class T> __device__ __forceinline__ gpu::Pack<T, N> load(const T* from) {
  gpu::Pack<T, N> pack;
  typedef typename gpu::Pack<T, N>::Bits Bits;
#pragma unroll
  for (int i = 0; i < gpu::Pack<T, N>::COUNT; ++i) {
    pack.words[i] = __ldg(reinterpret_cast<const Bits*>(from) + i);
  }
  return pack;
}

// section load_once: load_once
// Read once: first to leave the caches.
template <int N, class T> __device__ __forceinline__ gpu::Pack<T, N> load_once(const T* from) {
  gpu::Pack<T, N> pack;
  typedef typename gpu::Pack<T, N>::Bits Bits;
#pragma unroll
  for (int i = 0; i < gpu::Pack<T, N>::COUNT; ++i) {
    pack.words[i] = __ldcs(reinterpret_cast<const Bits*>(from) + i);
  }
  return pack;
}

// section load_own: load_own
// From memory that this very kernel's predecessors wrote: not through the read-only path.
template <int N, class T> __device__ __forceinline__ gpu::Pack<T, N> load_own(const T* from) {
  gpu::Pack<T, N> pack;
  typedef typename gpu::Pack<T, N>::Bits Bits;
#pragma unroll
  for (int i = 0; i < gpu::Pack<T, N>::COUNT; ++i) {
    pack.words[i] = reinterpret_cast<const Bits*>(from)[i];
  }
  return pack;
}

// section store: store
template <int N, class T> __device__ __forceinline__ void store(T* to, gpu::Pack<T, N> pack) {
  typedef typename gpu::Pack<T, N>::Bits Bits;
#pragma unroll
  for (int i = 0; i < gpu::Pack<T, N>::COUNT; ++i) reinterpret_cast<Bits*>(to)[i] = pack.words[i];
}

// section store_once: store_once
// Not read again soon: first to leave the caches.
template <int N, class T> __device__ __forceinline__ void store_once(T* to, gpu::Pack<T, N> pack) {
  typedef typename gpu::Pack<T, N>::Bits Bits;
#pragma unroll
  for (int i = 0; i < gpu::Pack<T, N>::COUNT; ++i) {
    __stcs(reinterpret_cast<Bits*>(to) + i, pack.words[i]);
  }
}

// section half: half
// Half precision as it lies in memory; arithmetic is float's.
struct half {
  unsigned short bits;
};

// section nv_bfloat16: nv_bfloat16
struct nv_bfloat16 {
  unsigned short bits;
};

// section real: real
// An element as the number that is computed with.
template <class T> __device__ __forceinline__ T real(T x) { return x; }
#ifdef HALF
__device__ __forceinline__ float real(half x) {
  float number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(x.bits));
  return number;
}
#endif
#ifdef BFLOAT
__device__ __forceinline__ float real(nv_bfloat16 x) {
  return __uint_as_float(static_cast<unsigned int>(x.bits) << 16);
}
#endif

// section packed: packed
// Numbers as they lie in memory, rounded to the nearest.
template <class T> struct As {
  template <int N, class U> static __device__ __forceinline__ gpu::Pack<T, N> pack(const U (&x)[N]) {
    gpu::Pack<T, N> made;
#pragma unroll
    for (int i = 0; i < N; ++i) made.at[i] = static_cast<T>(x[i]);
    return made;
  }
};
#ifdef HALF
template <> struct As<half> {
  template <int N> static __device__ __forceinline__ gpu::Pack<half, N> pack(const float (&x)[N]) {
    gpu::Pack<half, N> made;
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) {
      unsigned int both;
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x[i + 1]), "f"(x[i]));
      made.at[i].bits = static_cast<unsigned short>(both);
      made.at[i + 1].bits = static_cast<unsigned short>(both >> 16);
    }
    if (N % 2) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(made.at[N - 1].bits) : "f"(x[N - 1]));
    return made;
  }
};
#endif
#ifdef BFLOAT
template <> struct As<nv_bfloat16> {
  template <int N>
  static __device__ __forceinline__ gpu::Pack<nv_bfloat16, N> pack(const float (&x)[N]) {
    gpu::Pack<nv_bfloat16, N> made;
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) {
      unsigned int both;
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x[i + 1]), "f"(x[i]));
      made.at[i].bits = static_cast<unsigned short>(both);
      made.at[i + 1].bits = static_cast<unsigned short>(both >> 16);
    }
    if (N % 2) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(made.at[N - 1].bits) : "f"(x[N - 1]));
    return made;
  }
};
#endif
template <class T, int N, class U>
__device__ __forceinline__ gpu::Pack<T, N> packed(const U (&x)[N]) {
  return As<T>::pack(x);
}

// section put: put
// One element.
template <class T, class U> __device__ __forceinline__ void put(T* to, U number) {
  const U one[1] = {number};
  *to = gpu::packed<T>(one).at[0];
}

// section maximum: maximum
// NaN if any is NaN.
template <class T> __device__ __forceinline__ T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
__device__ __forceinline__ float maximum(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}

// section minimum: minimum
template <class T> __device__ __forceinline__ T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
__device__ __forceinline__ float minimum(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}

// section fast_max: fast_max
// NaN may drop out.
template <class T> __device__ __forceinline__ T fast_max(T a, T b) { return a > b ? a : b; }
__device__ __forceinline__ float fast_max(float a, float b) { return fmaxf(a, b); }

// section fast_min: fast_min
template <class T> __device__ __forceinline__ T fast_min(T a, T b) { return a < b ? a : b; }
__device__ __forceinline__ float fast_min(float a, float b) { return fminf(a, b); }

// section clamp_min: clamp_min
// The bound is no NaN.
template <class T> __device__ __forceinline__ T clamp_min(T a, T bound) {
  return a < bound ? bound : a;
}

// section clamp_max: clamp_max
template <class T> __device__ __forceinline__ T clamp_max(T a, T bound) {
  return a > bound ? bound : a;
}

// section sign: sign
template <class T> __device__ __forceinline__ T sign(T x) {
  return static_cast<T>((x > T(0)) - (x < T(0)));
}

// section remainder: remainder
// With the sign of the divisor.
template <class T> __device__ __forceinline__ T remainder(T a, T b) {
  const T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
__device__ __forceinline__ float remainder(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}
__device__ __forceinline__ double remainder(double a, double b) {
  const double rest = fmod(a, b);
  return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

// section sigmoid: sigmoid
template <class T> __device__ __forceinline__ T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

// section silu: silu
template <class T> __device__ __forceinline__ T silu(T x) { return x / (T(1) + exp(-x)); }

// section softplus: softplus
// log(1 + exp(x)), which is x where exp(x) is infinite.
template <class T> __device__ __forceinline__ T softplus(T x) {
  return (x > T(0) ? x : x != x ? x : T(0)) + log1p(exp(-(x < T(0) ? -x : x)));
}

// section mish: mish
// x tanh(log(1 + exp(x))) = x n / (n + 2) with n = e (e + 2), e = exp(x).
template <class T> __device__ __forceinline__ T mish(T x) {
  const T e = exp(x < T(20) ? x : x != x ? x : T(20));
  const T n = e * (e + T(2));
  return x * (n / (n + T(2)));
}

// section gelu: gelu
template <class T> __device__ __forceinline__ T gelu(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752)));
}

// section gelu_tanh: gelu_tanh
template <class T> __device__ __forceinline__ T gelu_tanh(T x) {
  const T inner = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + tanh(inner));
}

// section exp2_short: exp2_short
// One instruction; results below 1.2e-38 are 0.
__device__ __forceinline__ float exp2_short(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// section reciprocal_short: reciprocal_short
// One instruction, to 1 ulp; denormal numbers count as 0.
__device__ __forceinline__ float reciprocal_short(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

// section div_short: div_short
__device__ __forceinline__ float div_short(float a, float b) {
  return a * gpu::reciprocal_short(b);
}

// section exp_short: exp_short
// Relative error 2e-7 + 1e-7 |x|: the product with log2(e) is rounded once.
__device__ __forceinline__ float exp_short(float x) {
  return gpu::exp2_short(1.4426950408889634f * x);
}

// section log_short: log_short
// Absolute error 4e-7 between 0.5 and 2, elsewhere relative 3e-7.
__device__ __forceinline__ float log_short(float x) { return __logf(x); }

// section sigmoid_short: sigmoid_short
__device__ __forceinline__ float sigmoid_short(float x) {
  return gpu::reciprocal_short(1.0f + gpu::exp_short(-x));
}

// section silu_short: silu_short
// x / (1 + exp(-x)).
__device__ __forceinline__ float silu_short(float x) {
  return x * gpu::reciprocal_short(1.0f + gpu::exp_short(-x));
}

// section tanh_short: tanh_short
// 1 - 2 / (exp(2x) + 1), near zero the beginning of the series: relative error 3e-6.
__device__ __forceinline__ float tanh_short(float x) {
  const float far = 1.0f - 2.0f * gpu::reciprocal_short(gpu::exp_short(2.0f * x) + 1.0f);
  return fabsf(x) < 0.0625f ? x - x * x * x * 0.33333333f : far;
}

// section gelu_tanh_short: gelu_tanh_short
__device__ __forceinline__ float gelu_tanh_short(float x) {
  const float inner = 1.5957691216057308f * x * (1.0f + 0.044715f * x * x);
  return x * gpu::reciprocal_short(1.0f + gpu::exp_short(-inner));
}

// section gelu_short: gelu_short
// With a rational form of the complementary error function of relative error 1.2e-7 (Press et al.,
// Numerical Recipes, section 6.2); that of the exponential grows with its argument, to 3e-6.
__device__ __forceinline__ float gelu_short(float x) {
  const float a = fabsf(x) * 0.70710678118654752f, t = gpu::reciprocal_short(1.0f + 0.5f * a);
  float p = -0.82215223f + t * 0.17087277f;
  p = 1.48851587f + t * p;
  p = -1.13520398f + t * p;
  p = 0.27886807f + t * p;
  p = -0.18628806f + t * p;
  p = 0.09678418f + t * p;
  p = 0.37409196f + t * p;
  p = 1.00002368f + t * p;
  const float tail = 0.5f * t * gpu::exp_short(-a * a - 1.26551223f + t * p);
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

// section mish_short: mish_short
__device__ __forceinline__ float mish_short(float x) {
  const float e = gpu::exp_short(fminf(x, 20.0f));
  const float n = e * (e + 2.0f);
  return x * (n * gpu::reciprocal_short(n + 2.0f));
}

// section Sum: Sum
struct Sum {
  template <class V> __device__ __forceinline__ V operator()(V a, V b) const { return a + b; }
};

// section Product: Product
struct Product {
  template <class V> __device__ __forceinline__ V operator()(V a, V b) const { return a * b; }
};

// section Max: Max
struct Max {
  template <class V> __device__ __forceinline__ V operator()(V a, V b) const {
    return gpu::maximum(a, b);
  }
};

// section Min: Min
struct Min {
  template <class V> __device__ __forceinline__ V operator()(V a, V b) const {
    return gpu::minimum(a, b);
  }
};

// section FastMax: FastMax
struct FastMax {
  template <class V> __device__ __forceinline__ V operator()(V a, V b) const {
    return gpu::fast_max(a, b);
  }
};

// section FastMin: FastMin
struct FastMin {
  template <class V> __device__ __forceinline__ V operator()(V a, V b) const {
    return gpu::fast_min(a, b);
  }
};

// section Any: Any
struct Any {
  __device__ __forceinline__ bool operator()(bool a, bool b) const { return a || b; }
};

// section All: All
struct All {
  __device__ __forceinline__ bool operator()(bool a, bool b) const { return a && b; }
};

// section Place: Place
// An element and where it is; a place of -1 is none.
template <class T> struct Place {
  T best;
  int at;
};

// section Highest: Highest
// The first of the greatest, NaN being greater than all.
struct Highest {
  template <class T>
  __device__ __forceinline__ gpu::Place<T> operator()(gpu::Place<T> a, gpu::Place<T> b) const {
    const bool lost = a.best != a.best, other = b.best != b.best;
    const bool ties = lost && other || a.best == b.best;
    const bool first = ties ? a.at <= b.at : lost || !other && a.best > b.best;
    return a.at < 0 ? b : b.at < 0 ? a : first ? a : b;
  }
};

// section Lowest: Lowest
struct Lowest {
  template <class T>
  __device__ __forceinline__ gpu::Place<T> operator()(gpu::Place<T> a, gpu::Place<T> b) const {
    const bool lost = a.best != a.best, other = b.best != b.best;
    const bool ties = lost && other || a.best == b.best;
    const bool first = ties ? a.at <= b.at : lost || !other && a.best < b.best;
    return a.at < 0 ? b : b.at < 0 ? a : first ? a : b;
  }
};

// section Weighed: Weighed
// A maximum, and the sum of exponentials relative to it.
struct Weighed {
  float top, sum;
};

// section Weigh: Weigh
// Sums relative to different maxima; NaN stays in the sum.
struct Weigh {
  __device__ __forceinline__ gpu::Weighed operator()(gpu::Weighed a, gpu::Weighed b) const {
    const float top = fmaxf(a.top, b.top);
    const float left = a.top == top ? a.sum : a.sum * expf(a.top - top);
    const float right = b.top == top ? b.sum : b.sum * expf(b.top - top);
    return {top, left + right};
  }
};

// section Moments: Moments
// Count, mean and sum of squared deviations.
struct Moments {
  float count, mean, squares;
};

// section Merge: Merge
// The rule of parallel variance (Chan, Golub, LeVeque 1983).
struct Merge {
  __device__ __forceinline__ gpu::Moments operator()(gpu::Moments a, gpu::Moments b) const {
    const float count = a.count + b.count;
    const float apart = b.mean - a.mean, share = count > 0.0f ? b.count / count : 0.0f;
    const float mean = a.mean + apart * share;
    return {count, mean, a.squares + b.squares + apart * apart * (a.count * share)};
  }
};

// section weigh: weigh
// Takes in numbers, the greatest of which is `top`; sums at an infinite maximum are relative to 0.
template <int N>
__device__ __forceinline__ void weigh(gpu::Weighed& so_far, float top, const float (&x)[N]) {
  const float most = fmaxf(so_far.top, top), shift = isinf(most) ? 0.0f : most;
  float sum = so_far.top == most ? so_far.sum : so_far.sum * expf(so_far.top - most);
#pragma unroll
  for (int i = 0; i < N; ++i) sum += expf(x[i] - shift);
  so_far = {most, sum};
}

// section weigh_short: weigh_short
// The same with shorter exponentials.
template <int N>
__device__ __forceinline__ void weigh_short(gpu::Weighed& so_far, float top, const float (&x)[N]) {
  const float most = fmaxf(so_far.top, top), shift = isinf(most) ? 0.0f : most;
  float sum = so_far.top == most ? so_far.sum : so_far.sum * gpu::exp_short(so_far.top - most);
#pragma unroll
  for (int i = 0; i < N; ++i) sum += gpu::exp_short(x[i] - shift);
  so_far = {most, sum};
}

// section measure: measure
template <int N>
__device__ __forceinline__ void measure(gpu::Moments& so_far, const float (&x)[N]) {
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += x[i];
  const float mean = sum * (1.0f / N);
#pragma unroll
  for (int i = 0; i < N; ++i) squares += (x[i] - mean) * (x[i] - mean);
  so_far = gpu::Merge()(so_far, gpu::Moments{static_cast<float>(N), mean, squares});
}

// section across: across
// The same number, or record of numbers, of another lane of the warp.
template <class V> __device__ __forceinline__ V across(V value, int lanes) {
  constexpr int WORDS = (sizeof(V) + 3) / 4;
  union Lanes {
    V value;
    unsigned int words[WORDS];
    __device__ Lanes() {}
  } mine, other;
  mine.words[WORDS - 1] = 0;
  mine.value = value;
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    other.words[i] = __shfl_xor_sync(0xffffffffu, mine.words[i], lanes);
  }
  return other.value;
}

// section of_warp: of_warp
// The values of WIDTH neighbouring lanes combined; each of them has the result.
template <int WIDTH, class Combine, class V>
__device__ __forceinline__ V of_warp(V value, Combine combine) {
#pragma unroll
  for (int lanes = WIDTH / 2; lanes > 0; lanes /= 2) {
    const V other = gpu::across(value, lanes);
    // Lower lanes stand on the left on either side, so that both compute the same.
    value = threadIdx.x & lanes ? combine(other, value) : combine(value, other);
  }
  return value;
}

// section of_block: of_block
// The values of a block of THREADS combined in a fixed order; all threads have the result. `room`
// is shared memory for one value per warp, which nobody may still read.
template <int THREADS, class Combine, class V>
__device__ __forceinline__ V of_block(V value, Combine combine, V* room) {
  constexpr int WARPS = THREADS / 32;
  value = gpu::of_warp<32>(value, combine);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  return gpu::of_warp<WARPS>(room[threadIdx.x % WARPS], combine);
}

// section of_team: of_team
// The same for the threads of a row, which are part of a warp, a warp, or the whole block.
template <int THREADS, class Combine, class V>
__device__ __forceinline__ V of_team(V value, Combine combine, V* room) {
  if constexpr (THREADS <= 32) {
    return gpu::of_warp<THREADS>(value, combine);
  } else {
    return gpu::of_block<THREADS>(value, combine, room);
  }
}

// section before: before
// What stands before the thread in its team: `value` of all lower threads combined, and in `all` of
// all threads; `room` is shared memory for one value per warp. `start` is the identity.
template <int THREADS, int N, class Combine, class V>
__device__ __forceinline__ void before(V (&value)[N], V& carry, Combine combine, V start, V* room) {
  constexpr int WIDTH = THREADS < 32 ? THREADS : 32, WARPS = THREADS / WIDTH;
  const int lane = threadIdx.x % WIDTH, warp = THREADS > 32 ? threadIdx.x / 32 : 0;
#pragma unroll
  for (int lanes = 1; lanes < WIDTH; lanes *= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const V other = __shfl_up_sync(0xffffffffu, value[i], lanes, WIDTH);
      if (lane >= lanes) value[i] = combine(other, value[i]);
    }
  }
  V whole[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    whole[i] = __shfl_sync(0xffffffffu, value[i], WIDTH - 1, WIDTH);
    const V other = __shfl_up_sync(0xffffffffu, value[i], 1, WIDTH);
    value[i] = lane > 0 ? other : start;
  }
  if constexpr (WARPS > 1) {
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < N; ++i) room[i * WARPS + warp] = whole[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      // One warp's total per lane: each warp scans them for itself.
      V mine = lane < WARPS ? room[i * WARPS + lane] : start;
#pragma unroll
      for (int lanes = 1; lanes < WARPS; lanes *= 2) {
        const V other = __shfl_up_sync(0xffffffffu, mine, lanes);
        if (lane >= lanes) mine = combine(other, mine);
      }
      const V lower = __shfl_sync(0xffffffffu, mine, warp > 0 ? warp - 1 : 0);
      if (warp > 0) value[i] = combine(lower, value[i]);
      whole[i] = __shfl_sync(0xffffffffu, mine, WARPS - 1);
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    value[i] = combine(carry, value[i]);
    carry = combine(carry, whole[i]);
  }
}

// section copy16: copy16
// Sixteen bytes from global to shared memory, on the side; zeros where there is nothing to copy.
__device__ __forceinline__ void copy16(void* to, const void* from, bool there) {
  const unsigned int place = static_cast<unsigned int>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(place), "l"(from),
               "r"(there ? 16 : 0));
}

// section copy4: copy4
__device__ __forceinline__ void copy4(void* to, const void* from, bool there) {
  const unsigned int place = static_cast<unsigned int>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(place), "l"(from),
               "r"(there ? 4 : 0));
}

// section commit: commit
// Ends a group of copies.
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;\n" ::); }

// section wait: wait
// Waits until at most LATEST groups are on their way.
template <int LATEST> __device__ __forceinline__ void wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(LATEST));
}

// section matrices: matrices
// Four matrices of 8 x 8 halves; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void matrices(unsigned int (&parts)[4], const void* row) {
  const unsigned int place = static_cast<unsigned int>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"(place));
}

// section matrices_turned: matrices_turned
// The same, each matrix transposed.
__device__ __forceinline__ void matrices_turned(unsigned int (&parts)[4], const void* row) {
  const unsigned int place = static_cast<unsigned int>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"(place));
}

// section multiply_float16: multiply_float16
// Adds the product of 16 x 16 and 16 x 8 halves to 16 x 8 sums.
__device__ __forceinline__ void multiply_float16(float (&sum)[4], const unsigned int (&a)[4],
                                                 unsigned int b0, unsigned int b1) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// section multiply_bfloat16: multiply_bfloat16
__device__ __forceinline__ void multiply_bfloat16(float (&sum)[4], const unsigned int (&a)[4],
                                                  unsigned int b0, unsigned int b1) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
