// Owns vectors of floats and their mathematics for generated kernels.
//
// C++17 with GCC's vector extensions (g++ >= 12 or clang++); AVX-512, AVX2+FMA, or four lanes of
// whatever else the compiler targets. `header.py` copies the sections that a kernel uses into its
// source, all in an anonymous namespace, the scalar ones in `namespace scalar` inside it.
//
// Nothing here relies on fast-math flags or survives them. NaN propagates, infinities and
// overflow come out as in torch. Errors are measured against fp64 over all exponents by
// tests/test_vectormath.py; functions stay within 4 ulp unless their comment says otherwise.
// Polynomials are our own minimax fits (Lawson's iteration on Chebyshev nodes, coefficients
// rounded to float one by one with the others refitted); each comment gives its relative error.

// section core
#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__) && !defined(__clang__)
#define AVX2_BUILTINS  // g++ has them without <immintrin.h>, which takes a second to compile
#endif

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));

// One float per lane; a plain float stands for the same number in every lane.
struct V {
  Floats v;
  V() = default;
  V(Floats lanes) : v(lanes) {}
  V(float number) : v(number - Floats{}) {}  // minus zero keeps the sign of -0.0
};

// One truth value per lane, all bits set or none.
struct M {
  Ints v;
  M() = default;
  M(Ints lanes) : v(lanes) {}
  template <class T, class = std::enable_if_t<std::is_same_v<T, bool>>>
  M(T truth) : v(Ints{} - static_cast<int32_t>(truth)) {}
};

inline V operator+(V a, V b) { return a.v + b.v; }
inline V operator-(V a, V b) { return a.v - b.v; }
inline V operator*(V a, V b) { return a.v * b.v; }
inline V operator/(V a, V b) { return a.v / b.v; }
inline V operator-(V a) { return -a.v; }
inline M operator<(V a, V b) { return a.v < b.v; }
inline M operator<=(V a, V b) { return a.v <= b.v; }
inline M operator>(V a, V b) { return a.v > b.v; }
inline M operator>=(V a, V b) { return a.v >= b.v; }
inline M operator==(V a, V b) { return a.v == b.v; }
inline M operator!=(V a, V b) { return a.v != b.v; }
inline M operator&(M a, M b) { return a.v & b.v; }
inline M operator|(M a, M b) { return a.v | b.v; }
inline M operator^(M a, M b) { return a.v ^ b.v; }
inline M operator!(M a) { return ~a.v; }

inline Ints bits(V a) { return (Ints)a.v; }
inline V from_bits(Ints a) { return (Floats)a; }

#if defined(__AVX512F__)
inline V fma(V a, V b, V c) { return (Floats)_mm512_fmadd_ps(a.v, b.v, c.v); }
inline V sqrt(V a) { return (Floats)_mm512_sqrt_ps(a.v); }
inline V select(M m, V a, V b) {
  const __m512i truth = (__m512i)m.v;
  return (Floats)_mm512_mask_blend_ps(_mm512_test_epi32_mask(truth, truth), b.v, a.v);
}
#elif defined(AVX2_BUILTINS)
inline V fma(V a, V b, V c) { return __builtin_ia32_vfmaddps256(a.v, b.v, c.v); }
inline V sqrt(V a) { return __builtin_ia32_sqrtps256(a.v); }
inline V select(M m, V a, V b) { return __builtin_ia32_blendvps256(b.v, a.v, (Floats)m.v); }
#else
inline V fma(V a, V b, V c) { return a.v * b.v + c.v; }
inline V sqrt(V a) {
  for (int i = 0; i < LANES; ++i) a.v[i] = __builtin_sqrtf(a.v[i]);
  return a;
}
inline V select(M m, V a, V b) { return m.v ? a.v : b.v; }
#endif
// The larger (smaller) one; `b` if either is NaN. One instruction on x86.
inline V fast_max(V a, V b) { return a.v > b.v ? a.v : b.v; }
inline V fast_min(V a, V b) { return a.v < b.v ? a.v : b.v; }
inline V load(const float* p) {
  V a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
inline void store(float* p, V a) { __builtin_memcpy(p, &a, sizeof a); }
inline M select(M m, M a, M b) { return (m.v & a.v) | (~m.v & b.v); }

inline V abs(V a) { return from_bits(bits(a) & 0x7fffffff); }
inline V copy_sign(V size, V sign) {
  return from_bits((bits(size) & 0x7fffffff) | (bits(sign) & INT32_MIN));
}
inline M isnan(V a) { return a != a; }
inline M isinf(V a) { return abs(a) == __builtin_inff(); }
inline V to_float(M m) { return select(m, 1.0f, 0.0f); }
inline V reciprocal(V a) { return 1.0f / a; }
inline V rsqrt(V a) { return 1.0f / sqrt(a); }
// NaN if either is NaN.
inline V maximum(V a, V b) { return select(isnan(a), a, fast_max(a, b)); }
inline V minimum(V a, V b) { return select(isnan(a), a, fast_min(a, b)); }
// NaN if `a` is; the bound must not be.
inline V clamp_min(V a, V bound) { return fast_max(bound, a); }
inline V clamp_max(V a, V bound) { return fast_min(bound, a); }
inline V sign(V a) { return to_float(a > 0.0f) - to_float(a < 0.0f); }

// section rest: needs core
// The first n lanes, 0 <= n <= LANES.
inline M first(int64_t n) {
  Ints lane;
  for (int i = 0; i < LANES; ++i) lane[i] = i;
  return lane < static_cast<int32_t>(n);
}
// Reads n floats and no more; zeros in the other lanes.
inline V load_first(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
#elif defined(AVX2_BUILTINS)
  return __builtin_ia32_maskloadps256((const Floats*)p, first(n).v);
#else
  V a(0.0f);
  __builtin_memcpy(&a, p, n * sizeof(float));
  return a;
#endif
}
// Writes the first n lanes and no more.
inline void store_first(float* p, V a, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), a.v);
#elif defined(AVX2_BUILTINS)
  __builtin_ia32_maskstoreps256((Floats*)p, first(n).v, a.v);
#else
  __builtin_memcpy(p, &a, n * sizeof(float));
#endif
}

// section inside: needs core: for load_inside
// Lane i gets p[i * STEP] if 0 <= k + i < size, else 0, and reads nothing then; only n lanes count.
template <int STEP>
inline V load_inside(const float* p, int64_t k, int64_t size, int64_t n) {
  if (STEP == 1 && k >= 0 && k + LANES <= size && n == LANES) return load(p);
  V a(0.0f);
  for (int64_t i = k < 0 ? -k : 0; i < n && k + i < size; ++i) a.v[i] = p[i * STEP];
  return a;
}

// section streaming: needs core
// Writes past the caches; `p` must be aligned to the vector.
inline void stream(float* p, V a) {
#if defined(__clang__)
  __builtin_nontemporal_store(a.v, (Floats*)p);
#elif defined(__AVX512F__)
  _mm512_stream_ps(p, a.v);
#elif defined(AVX2_BUILTINS)
  __builtin_ia32_movntps256(p, a.v);
#else
  store(p, a);
#endif
}
// Must follow the last `stream` of a thread before others read what it wrote.
inline void stream_fence() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

// section booleans: needs core: for bool
typedef uint8_t Bytes __attribute__((vector_size(LANES)));
// Compilers take conversions of these widths apart, lane by lane; hence the instructions by name.
inline M widened(Bytes bytes) {
#if defined(__AVX512F__)
  return (Ints)_mm512_cvtepu8_epi32((__m128i)bytes) != 0;
#elif defined(AVX2_BUILTINS)
  typedef char Wide __attribute__((vector_size(16)));
  typedef long long Pair __attribute__((vector_size(16)));
  long long all;
  __builtin_memcpy(&all, &bytes, sizeof all);
  return (Ints)__builtin_ia32_pmovzxbd256((Wide)(Pair){all, 0}) != 0;
#else
  return __builtin_convertvector(bytes, Ints) != 0;
#endif
}
inline Bytes narrowed(M m) {
#if defined(__AVX512F__)
  return (Bytes)_mm512_cvtepi32_epi8((__m512i)(m.v & 1));
#elif defined(AVX2_BUILTINS)
  typedef int Half __attribute__((vector_size(16)));
  const Ints ones = m.v & 1;
  const Half low = __builtin_shufflevector(ones, ones, 0, 1, 2, 3);
  const Half high = __builtin_shufflevector(ones, ones, 4, 5, 6, 7);
  const auto words = __builtin_ia32_packssdw128(low, high);
  const auto all = __builtin_ia32_packsswb128(words, words);
  Bytes bytes;
  __builtin_memcpy(&bytes, &all, sizeof bytes);
  return bytes;
#else
  return __builtin_convertvector(m.v & 1, Bytes);
#endif
}
inline M load_mask_first(const bool* p, int64_t n) {
  Bytes bytes{};
  __builtin_memcpy(&bytes, p, n);
  return widened(bytes);
}
inline M load_mask(const bool* p) { return load_mask_first(p, LANES); }
inline void store_first(bool* p, M m, int64_t n) {
  const Bytes bytes = narrowed(m);
  __builtin_memcpy(p, &bytes, n);
}
inline void store(bool* p, M m) { store_first(p, m, LANES); }

// section lanes: needs core
// Calls a function of the C library lane by lane.
template <class F>
inline V each_lane(V a, F function) {
  for (int i = 0; i < LANES; ++i) a.v[i] = function(a.v[i]);
  return a;
}
template <class F>
inline V each_lane(V a, V b, F function) {
  for (int i = 0; i < LANES; ++i) a.v[i] = function(a.v[i], b.v[i]);
  return a;
}

// section moves: needs core
// Lane i gets lane i + STEP, from the front again behind the last one.
template <int STEP, int... I>
inline V turned(V a, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a.v, a.v, ((I + STEP) % LANES)...);
}
// Lane i gets lane i - STEP of `a`; the first STEP lanes are those of `front`.
template <int STEP, int... I>
inline V moved_up(V a, V front, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(front.v, a.v, (I < STEP ? I : LANES + I - STEP)...);
}
using Lanes = std::make_integer_sequence<int, LANES>;

// section backwards: needs moves, rest
// Lane i gets p[-i], and the other way round.
template <int... I>
inline V reversed(V a, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a.v, a.v, (LANES - 1 - I)...);
}
inline V load_back(const float* p) { return reversed(load(p - (LANES - 1)), Lanes{}); }
inline void store_back(float* p, V a) { store(p - (LANES - 1), reversed(a, Lanes{})); }
// The first n lanes, and no more is read or written.
inline V load_back_first(const float* p, int64_t n) {
  V a(0.0f);
  for (int64_t i = 0; i < n; ++i) a.v[i] = p[-i];
  return a;
}
inline void store_back_first(float* p, V a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[-i] = a.v[i];
}

// section apart: needs moves, rest: for load_apart
// Lane i gets p[i * STEP]; only n lanes count, and nothing behind the last one is read.
// Every second one of 2 LANES - 1 floats; the second vector begins with the last lane of the first.
template <int... I>
inline V every_second(V a, V b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a.v, b.v, (I < LANES / 2 ? 2 * I : 2 * I + 1)...);
}
template <int STEP, int... I>
inline V gathered(const float* p, std::integer_sequence<int, I...>) {
  return Floats{p[I * STEP]...};
}
template <int STEP>
inline V load_apart(const float* p, int64_t n) {
  if (n == LANES) {
    if constexpr (STEP == 2) {
      return every_second(load(p), load(p + LANES - 1), Lanes{});
    } else {
      return gathered<STEP>(p, Lanes{});
    }
  }
  V a(0.0f);
  for (int64_t i = 0; i < n; ++i) a.v[i] = p[i * STEP];
  return a;
}

// section doubles: needs moves
// One double per lane, for sums that take in more than a float can keep.
typedef float HalfFloats __attribute__((vector_size(LANES * 2)));
typedef double HalfDoubles __attribute__((vector_size(LANES * 4)));
struct D {
  HalfDoubles low, high;
};
template <int START, int... I>
inline HalfDoubles widened_half(V a, std::integer_sequence<int, I...>) {
  const HalfFloats half = __builtin_shufflevector(a.v, a.v, (START + I)...);
  return __builtin_convertvector(half, HalfDoubles);
}
using HalfLanes = std::make_integer_sequence<int, LANES / 2>;
inline D widen(V a) {
  return {widened_half<0>(a, HalfLanes{}), widened_half<LANES / 2>(a, HalfLanes{})};
}
template <int... I>
inline V joined(HalfFloats low, HalfFloats high, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(low, high, I...);
}
inline V narrow(D a) {
  const HalfFloats low = __builtin_convertvector(a.low, HalfFloats);
  return joined(low, __builtin_convertvector(a.high, HalfFloats), Lanes{});
}
inline D load_wide(const double* p) {
  D a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
inline void store_wide(double* p, D a) { __builtin_memcpy(p, &a, sizeof a); }
inline D operator+(D a, V b) {
  const D wide = widen(b);
  return {a.low + wide.low, a.high + wide.high};
}
inline D operator*(D a, V b) {
  const D wide = widen(b);
  return {a.low * wide.low, a.high * wide.high};
}

// section places: needs core
// One whole number below 2^31 per lane: where an extremum is.
inline Ints load_places(const int32_t* p) {
  Ints a;
  __builtin_memcpy(&a, p, sizeof a);
  return a;
}
inline void store_places(int32_t* p, Ints a) { __builtin_memcpy(p, &a, sizeof a); }
inline Ints select_places(M m, Ints a, Ints b) { return (m.v & a) | (~m.v & b); }
inline Ints same_place(int64_t number) { return Ints{} + static_cast<int32_t>(number); }
inline Ints places_from(int64_t number) {
  Ints a = same_place(number);
  for (int i = 0; i < LANES; ++i) a[i] += i;
  return a;
}
// Whether `a` comes before `b` as a maximum or minimum: NaN first of all.
inline M above(V a, V b) { return (a > b) | (isnan(a) & !isnan(b)); }
inline M below(V a, V b) { return (a < b) | (isnan(a) & !isnan(b)); }
// The better one of each lane, and its place; what was there first stays.
inline void keep_above(V& best, Ints& at, V other, Ints place) {
  const M is = above(other, best);
  best = select(is, other, best), at = select_places(is, place, at);
}
inline void keep_below(V& best, Ints& at, V other, Ints place) {
  const M is = below(other, best);
  best = select(is, other, best), at = select_places(is, place, at);
}
// The place of the best of `number` vectors; of equal ones, the first place.
template <class F>
inline int32_t best_place(const V* best, const Ints* at, int number, F before) {
  float found = best[0].v[0];
  int32_t place = at[0][0];
  for (int u = 0; u < number; ++u) {
    for (int i = 0; i < LANES; ++i) {
      const float other = best[u].v[i];
      const int32_t its = at[u][i];
      const bool is_tie = !before(other, found) && !before(found, other);
      if (before(other, found) || (is_tie && its < place)) found = other, place = its;
    }
  }
  return place;
}
inline int32_t place_above(const V* best, const Ints* at, int number) {
  return best_place(best, at, number, [](float a, float b) { return a > b || (a != a && b == b); });
}
inline int32_t place_below(const V* best, const Ints* at, int number) {
  return best_place(best, at, number, [](float a, float b) { return a < b || (a != a && b == b); });
}

// section reduction: needs moves
// All lanes to one number, in a fixed order: halves against each other.
template <int WIDTH = LANES / 2, class F>
inline float fold_lanes(V a, F combine) {
  if constexpr (WIDTH == 0) {
    return a.v[0];
  } else {
    return fold_lanes<WIDTH / 2>(combine(a, turned<WIDTH>(a, Lanes{})), combine);
  }
}
inline float reduce_sum(V a) {
  return fold_lanes(a, [](V x, V y) { return x + y; });
}
inline float reduce_prod(V a) {
  return fold_lanes(a, [](V x, V y) { return x * y; });
}
inline float reduce_max(V a) {
  return fold_lanes(a, [](V x, V y) { return maximum(x, y); });
}
inline float reduce_min(V a) {
  return fold_lanes(a, [](V x, V y) { return minimum(x, y); });
}
// NaN may be lost.
inline float reduce_fmax(V a) {
  return fold_lanes(a, [](V x, V y) { return fast_max(x, y); });
}
inline float reduce_fmin(V a) {
  return fold_lanes(a, [](V x, V y) { return fast_min(x, y); });
}
inline bool reduce_any(M m) {
  int32_t found = 0;
  for (int i = 0; i < LANES; ++i) found |= m.v[i];
  return found != 0;
}
inline bool reduce_all(M m) { return !reduce_any(!m); }

// section prefix: needs moves
// Running reductions over the lanes: lane i holds lanes 0 to i together, in log2(LANES) steps.
template <int STEP = 1, class F>
inline V scan_lanes(V a, float neutral, F combine) {
  if constexpr (STEP == LANES) {
    return a;
  } else {
    return scan_lanes<2 * STEP>(combine(moved_up<STEP>(a, neutral, Lanes{}), a), neutral, combine);
  }
}
inline V scan_sum(V a) {
  return scan_lanes(a, 0.0f, [](V x, V y) { return x + y; });
}
inline V scan_max(V a) {
  const float least = -__builtin_inff();
  return scan_lanes(a, least, [](V x, V y) { return maximum(x, y); });
}
inline V scan_min(V a) {
  const float most = __builtin_inff();
  return scan_lanes(a, most, [](V x, V y) { return minimum(x, y); });
}
inline float last(V a) { return a.v[LANES - 1]; }
// Products one after the other: in another order, what underflows in between meets an infinity.
inline V running_product(double& carry, V a) {
  for (int i = 0; i < LANES; ++i) a.v[i] = static_cast<float>(carry *= a.v[i]);
  return a;
}

// section rounding: needs lanes
#if defined(__AVX512F__)
inline V round(V a) { return (Floats)_mm512_roundscale_ps(a.v, 0x08); }
inline V floor(V a) { return (Floats)_mm512_roundscale_ps(a.v, 0x09); }
inline V ceil(V a) { return (Floats)_mm512_roundscale_ps(a.v, 0x0a); }
inline V trunc(V a) { return (Floats)_mm512_roundscale_ps(a.v, 0x0b); }
#elif defined(AVX2_BUILTINS)
inline V round(V a) { return __builtin_ia32_roundps256(a.v, 0x08); }
inline V floor(V a) { return __builtin_ia32_roundps256(a.v, 0x09); }
inline V ceil(V a) { return __builtin_ia32_roundps256(a.v, 0x0a); }
inline V trunc(V a) { return __builtin_ia32_roundps256(a.v, 0x0b); }
#else
inline V round(V a) { return each_lane(a, [](float x) { return __builtin_nearbyintf(x); }); }
inline V floor(V a) { return each_lane(a, [](float x) { return __builtin_floorf(x); }); }
inline V ceil(V a) { return each_lane(a, [](float x) { return __builtin_ceilf(x); }); }
inline V trunc(V a) { return each_lane(a, [](float x) { return __builtin_truncf(x); }); }
#endif

// section power: needs core
// exp(x) = 2^n exp(r), |r| <= ln(2) / 2: the whole number n and the rest r of x.
struct Power {
  Ints n;
  V r;
};
inline Power split_power(V x) {
  const V shift = 12582912.0f;  // 1.5 * 2^23: the sum's last bits are the nearest whole number
  const V sum = fma(x, 1.44269504f, shift);
  const V n = sum - shift;
  // ln(2) in two parts; the first has 9 bits, so that its product with n is exact.
  const V r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
  return {bits(sum) - bits(shift), r};
}
// 2^n for a normal result, -126 <= n <= 127.
inline V power_of_two(Ints n) { return from_bits((n + 127) << 23); }
// exp(r) - 1 on |r| <= ln(2) / 2; 1.4e-8. Here and below, polynomials are split into halves that do
// not wait for each other: the processor looks only a few vectors ahead.
inline V expm1_rest(V r) {
  const V square = r * r;
  const V low = fma(r, 0.166665465f, 0.49999997f);
  const V high = fma(square, 0.00138706504f, fma(r, 0.00836625881f, 0.0416674353f));
  return fma(square, fma(high, square, low), r);
}

// section exp: needs power
inline V exp(V x) {
  x = clamp_max(clamp_min(x, -104.0f), 89.0f);  // 0 and infinity lie inside
  const Power power = split_power(x);
  const V p = 1.0f + expm1_rest(power.r);
  // Two factors reach infinity and the denormals, with one rounding.
  const Ints half = power.n >> 1;
  return (p * power_of_two(half)) * power_of_two(power.n - half);
}
// exp(x) for -87 <= x <= 88, or NaN.
inline V exp_inside(V x) {
  const Power power = split_power(x);
  return (1.0f + expm1_rest(power.r)) * power_of_two(power.n);
}

// section exp_short: needs power
// For results that count for nothing near the ends of the range: below 1.2e-38 they are 0, above
// 2.4e38 infinite.
inline V exp_short(V x) {
  const Power power = split_power(clamp_max(clamp_min(x, -88.0f), 89.0f));
  return (1.0f + expm1_rest(power.r)) * power_of_two(power.n);  // 2^-127 is 0, 2^128 infinite
}

// section exp2: needs power
inline V exp2(V x) {
  x = clamp_max(clamp_min(x, -151.0f), 129.0f);
  const V shift = 12582912.0f;
  const V sum = x + shift;
  const V p = 1.0f + expm1_rest((x - (sum - shift)) * 0.693147181f);
  const Ints n = bits(sum) - bits(shift);
  const Ints half = n >> 1;
  return (p * power_of_two(half)) * power_of_two(n - half);
}

// section expm1: needs power
inline V expm1(V x) {
  x = clamp_max(clamp_min(x, -20.0f), 89.0f);  // -1 and infinity lie inside
  const Power power = split_power(x);
  const V scale = power_of_two(power.n - 1);  // half of it: 2^128 would be infinite too early
  return 2.0f * fma(scale, expm1_rest(power.r), scale - 0.5f);
}

// section log: needs core
// log(x) for positive, normal, finite x; adds `extra` to the exponent.
inline V log_inside(V x, V extra) {
  const Ints exponent = (bits(x) - 0x3f3504f3) >> 23;  // of x / sqrt(1/2)
  const V f = from_bits(bits(x) - (exponent << 23)) - 1.0f;
  const V e = V(__builtin_convertvector(exponent, Floats)) + extra;
  // log(1 + f) = f - f^2 / 2 + f^3 p(f) on sqrt(1/2) <= 1 + f <= sqrt(2); 5.9e-9.
  const V square = f * f;
  const V p01 = fma(f, -0.250008196f, 0.333333313f);
  const V p23 = fma(f, -0.166234091f, 0.200012416f);
  const V p45 = fma(f, -0.131596103f, 0.1420158f);
  const V p67 = fma(f, -0.0763643533f, 0.127622157f);
  const V p = fma(square * square, fma(square, p67, p45), fma(square, p23, p01));
  const V low = fma(e, -2.12194440e-4f, fma(square, -0.5f, square * f * p));
  return fma(e, 0.693359375f, f + low);
}
inline V log(V x) {
  const float infinity = __builtin_inff();
  const M small = x < 1.17549435e-38f;
  const V y = log_inside(select(small, x * 8388608.0f, x), select(small, -23.0f, 0.0f));
  const V low = select(x == 0.0f, -infinity, __builtin_nanf(""));
  return select(x <= 0.0f, low, select(x < infinity, y, x));
}

// section log2: needs log
inline V log2(V x) { return log(x) * 1.44269504f; }
inline V log10(V x) { return log(x) * 0.434294482f; }

// section log1p: needs log
inline V log1p(V x) {
  const V u = 1.0f + x;
  const V lost = x - (u - 1.0f);
  const M inside = (u > 0.0f) & (u < __builtin_inff());
  return log(u) + select(inside, lost / u, 0.0f);
}

// section sigmoid: needs exp
inline V sigmoid(V x) { return 1.0f / (1.0f + exp(-x)); }

// section silu: needs exp
inline V silu(V x) { return x / (1.0f + exp(-x)); }

// section sigmoid_short: needs exp_short
inline V sigmoid_short(V x) { return 1.0f / (1.0f + exp_short(-x)); }

// section silu_short: needs exp_short
inline V silu_short(V x) { return x / (1.0f + exp_short(-x)); }

// section tanh: needs expm1
// tanh(t) = (e^2t - 1) / (e^2t + 1), in terms of e^2t - 1 because t may be small.
inline V tanh(V x) {
  const V size = clamp_max(abs(x), 10.0f);
  const V e = expm1(size + size);
  return copy_sign(e / (e + 2.0f), x);
}

// section erf: needs exp
inline V erf(V x) {
  const V size = clamp_max(abs(x), 4.0f);
  const V square = size * size;
  const V fourth = square * square;
  // erf(t) = t + t p(t^2) on 0 <= t <= 1; 1.5e-9.
  const V p01 = fma(square, -0.37612626f, 0.128379166f);
  const V p23 = fma(square, -0.0268533472f, 0.112835787f);
  const V p45 = fma(square, -0.00079978531f, 0.0051871622f);
  const V p = fma(fourth, fma(fourth, fma(fourth, 7.80690316e-05f, p45), p23), p01);
  const V near = fma(size, p, size);
  // erf(t) = 1 - exp(q(t)) on 1 <= t <= 3.95; 1.1e-9, and 1 from there on.
  const V q01 = fma(size, -1.12708914f, -0.000341521023f);
  const V q23 = fma(size, -0.103106454f, -0.63814503f);
  const V q45 = fma(size, -0.0029475803f, 0.0218378436f);
  const V q = fma(fourth, fma(square, 0.000186368517f, q45), fma(square, q23, q01));
  const V far = 1.0f - exp_inside(q);
  return copy_sign(select(size < 1.0f, near, far), x);
}

// section gelu: needs exp
// x times the normal distribution: 0.5 x (2 - e) on the right and 0.5 x e on the left, where
// e = erfc(|x| / sqrt(2)). 2 ulp on the right; on the left 3e-6 of the result or 6e-9, whichever
// is more, and 0 below -6. (torch forms 1 + erf, whose cancellation costs up to 2.6e-7 there.)
inline V gelu(V x) {
  const V size = abs(x);
  const V square = size * size;
  const V fourth = square * square;
  // log(e) = t q(t) on 0 <= t <= 6; 1.2e-8 below 1, 1.7e-7 below 6. Beyond it is not used.
  const V q01 = fma(size, -0.318308502f, -0.797884643f);
  const V q23 = fma(size, 0.00479129795f, -0.036341399f);
  const V q45 = fma(size, -0.000220120128f, 3.37065685e-05f);
  const V q67 = fma(size, -1.09682514e-05f, 6.50958682e-05f);
  const V q89 = fma(size, -6.98116764e-08f, 1.15017554e-06f);
  const V high = fma(fourth, fma(square, 1.87634952e-09f, q89), fma(square, q67, q45));
  const V q = fma(fourth, high, fma(square, q23, q01));
  const V e = select(size < 6.0f, exp_inside(size * q), 0.0f);
  return 0.5f * x * select(x < 0.0f, e, 2.0f - e);
}

// section gelu_short: needs core
// x (1 / 2 + h), h = y p(y^2) / q(y^2) on |y| <= 5.4. Off by 4e-7 at most on |x| < 1.5, elsewhere
// by 1.5e-6 (torch's 1 + erf: 6e-7): small results on the left lose relative accuracy. Fitted as
// above; p is 3e-7 too large, so that h reaches 1 / 2.
inline V gelu_short(V x) {
  const V y = clamp_max(clamp_min(x, -5.4f), 5.4f);
  const V square = y * y;
  const V fourth = square * square;
  const V p01 = fma(square, 0.0343565382f, 0.398942262f);
  const V p23 = fma(square, 0.000174738088f, 0.00471353671f);
  const V p45 = fma(square, 2.28031833e-08f, 6.46526632e-06f);
  const V q01 = fma(square, 0.252783924f, 1.0f);
  const V q23 = fma(square, 0.00191724987f, 0.0289485324f);
  const V q45 = fma(square, 1.20749087e-06f, 7.59333561e-05f);
  const V p = fma(fourth, fma(fourth, p45, p23), p01);
  const V q = fma(fourth, fma(fourth, q45, q23), q01);
  const V h = clamp_max(clamp_min(y * p / q, -0.5f), 0.5f);
  return x * (0.5f + h);
}

// section gelu_tanh: needs exp
// x (1 + tanh(z)) / 2 = x / (1 + exp(-2 z)), z = sqrt(2 / pi) (x + 0.044715 x^3). Rounding z
// counts more the larger it is: 20 ulp at -4, where 1 + tanh(z) itself would have cancelled.
inline V gelu_tanh(V x) {
  const V z = x * fma(x * x, -0.0713548163f, -1.59576912f);
  return x / (1.0f + exp(z));
}

// section gelu_tanh_short: needs exp_short
inline V gelu_tanh_short(V x) {
  const V z = x * fma(x * x, -0.0713548163f, -1.59576912f);
  return x / (1.0f + exp_short(z));
}

// section mish: needs exp
// x tanh(log(1 + e)) = x n / (n + 2), n = e (e + 2), e = exp(x).
inline V mish(V x) {
  const V e = exp(clamp_max(x, 20.0f));
  const V n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

// section softplus: needs exp
inline V softplus(V x) {
  const V e = exp(-abs(x));
  const V square = e * e;
  const V fourth = square * square;
  // log(1 + e) = e + e^2 p(e) on 0 <= e <= 1; 5.3e-9.
  const V p01 = fma(e, 0.333304644f, -0.499999315f);
  const V p23 = fma(e, 0.196921214f, -0.249580204f);
  const V p45 = fma(e, 0.106613614f, -0.153449759f);
  const V p67 = fma(e, 0.0200882591f, -0.0574602671f);
  const V high = fma(fourth, -0.00329100713f, fma(square, p67, p45));
  const V p = fma(fourth, high, fma(square, p23, p01));
  return clamp_min(x, 0.0f) + fma(square, p, e);
}

// section trigonometry: needs lanes
inline V sin(V a) { return each_lane(a, [](float x) { return __builtin_sinf(x); }); }
inline V cos(V a) { return each_lane(a, [](float x) { return __builtin_cosf(x); }); }
inline V tan(V a) { return each_lane(a, [](float x) { return __builtin_tanf(x); }); }
inline V asin(V a) { return each_lane(a, [](float x) { return __builtin_asinf(x); }); }
inline V acos(V a) { return each_lane(a, [](float x) { return __builtin_acosf(x); }); }
inline V atan(V a) { return each_lane(a, [](float x) { return __builtin_atanf(x); }); }
inline V sinh(V a) { return each_lane(a, [](float x) { return __builtin_sinhf(x); }); }
inline V cosh(V a) { return each_lane(a, [](float x) { return __builtin_coshf(x); }); }

// section rare: needs lanes
inline V pow(V a, V b) {
  return each_lane(a, b, [](float x, float y) { return __builtin_powf(x, y); });
}
inline V erfc(V a) { return each_lane(a, [](float x) { return __builtin_erfcf(x); }); }
inline V fmod(V a, V b) {
  return each_lane(a, b, [](float x, float y) { return __builtin_fmodf(x, y); });
}
// With the sign of the divisor.
inline V remainder(V a, V b) {
  return each_lane(a, b, [](float x, float y) {
    const float rest = __builtin_fmodf(x, y);
    return rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
  });
}

// scalar section maximum
// NaN if either is NaN.
template <class T>
inline T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
inline T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}

// scalar section clamp
// NaN if `a` is; the bound must not be.
template <class T>
inline T clamp_min(T a, T bound) {
  return a < bound ? bound : a;
}
template <class T>
inline T clamp_max(T a, T bound) {
  return a > bound ? bound : a;
}

// scalar section within
inline bool within(int64_t k, int64_t size) { return k >= 0 && k < size; }

// scalar section range
// The first column c >= 0 with k + c * step >= bound.
inline int64_t first_from(int64_t k, int64_t step, int64_t bound) {
  return k >= bound ? 0 : (bound - k + step - 1) / step;
}
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// scalar section order
// NaN comes first of all, as a maximum and as a minimum; what was there first stays.
template <class T, class P>
inline void keep_above(T& best, P& at, T other, int64_t place) {
  if (other > best || (other != other && best == best)) best = other, at = static_cast<P>(place);
}
template <class T, class P>
inline void keep_below(T& best, P& at, T other, int64_t place) {
  if (other < best || (other != other && best == best)) best = other, at = static_cast<P>(place);
}

// scalar section fast
// `b` if either is NaN.
template <class T>
inline T fast_max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
inline T fast_min(T a, T b) {
  return a < b ? a : b;
}

// scalar section sign
template <class T>
inline T sign(T a) {
  return static_cast<T>((a > 0) - (a < 0));
}

// scalar section rsqrt
template <class T>
inline T rsqrt(T a) {
  return 1 / std::sqrt(a);
}

// scalar section remainder
// With the sign of the divisor.
template <class T>
inline T remainder(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// scalar section sigmoid
template <class T>
inline T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

// scalar section silu
template <class T>
inline T silu(T x) {
  return x / (1 + std::exp(-x));
}

// scalar section gelu
template <class T>
inline T gelu(T x) {
  return T(0.5) * x * (1 + std::erf(x * T(0.70710678118654752)));
}

// scalar section gelu_tanh
template <class T>
inline T gelu_tanh(T x) {
  const T z = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (1 + std::tanh(z));
}

// scalar section softplus
template <class T>
inline T softplus(T x) {
  return (x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x)));
}

// scalar section mish
template <class T>
inline T mish(T x) {
  return x * std::tanh(std::log1p(std::exp(x)));
}
