"""Owns headers that kernels include by habit and that NVRTC cannot read as they are.

NVRTC knows no C++ standard library, and CUB's umbrella header draws in its host side. What stands
in for them is short and gives the same names; what they lack is an error that names it.
"""

_INTEGERS = """#pragma once
using int8_t = signed char; using int16_t = signed short; using int32_t = signed int;
using int64_t = signed long long; using uint8_t = unsigned char; using uint16_t = unsigned short;
using uint32_t = unsigned int; using uint64_t = unsigned long long;
using intptr_t = int64_t; using uintptr_t = uint64_t;
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::intptr_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::uintptr_t;
}
#ifndef INT32_MAX
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull
#define SIZE_MAX UINT64_MAX
#endif
"""
_SIZES = """#pragma once
using size_t = decltype(sizeof(0)); using ptrdiff_t = decltype((char*)0 - (char*)0);
namespace std { using ::size_t; using ::ptrdiff_t; using nullptr_t = decltype(nullptr); }
#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
"""
_LIMITS = """#pragma once
#ifndef INT_MAX
#define CHAR_BIT 8
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LONG_MIN (-9223372036854775807l - 1)
#define LONG_MAX 9223372036854775807l
#define LLONG_MIN (-9223372036854775807ll - 1)
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
#endif
"""
_FLOATS = """#pragma once
#ifndef FLT_MAX
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define FLT_EPSILON 1.19209289550781250e-7f
#define FLT_MIN 1.17549435082228751e-38f
#define FLT_MAX 3.40282346638528860e+38f
#define DBL_MANT_DIG 53
#define DBL_DIG 15
#define DBL_EPSILON 2.22044604925031308e-16
#define DBL_MIN 2.22507385850720138e-308
#define DBL_MAX 1.79769313486231571e+308
#endif
"""
_MATHS = """#pragma once
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000ll)
#endif
#ifndef M_PI
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
"""
_ASSERTION = """#pragma once
#ifndef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : __trap())
#endif
#endif
"""
_NOTHING = "#pragma once\n"  # printf is built in
_CUB = """#pragma once
#include <cub/config.cuh>
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/thread/thread_load.cuh>
#include <cub/thread/thread_operators.cuh>
#include <cub/thread/thread_reduce.cuh>
#include <cub/thread/thread_scan.cuh>
#include <cub/thread/thread_store.cuh>
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_load.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cub/warp/warp_store.cuh>
"""

HEADERS = {
    "cstdint": _INTEGERS,
    "stdint.h": _INTEGERS,
    "cstddef": _SIZES,
    "stddef.h": _SIZES,
    "climits": _LIMITS,
    "limits.h": _LIMITS,
    "cfloat": _FLOATS,
    "float.h": _FLOATS,
    "cmath": _MATHS,
    "math.h": _MATHS,
    "cassert": _ASSERTION,
    "assert.h": _ASSERTION,
    "cstdio": _NOTHING,
    "stdio.h": _NOTHING,
    "cub/cub.cuh": _CUB,
}
"""Text by the name that a kernel includes."""
