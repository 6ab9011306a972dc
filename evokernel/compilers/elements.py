"""Owns the types of elements by their names in C, C++ and CUDA, as tensors name their dtypes."""

SCALARS = {
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    "void": "void",
    "_Float16": "float16",
    "__fp16": "float16",
    "__bf16": "bfloat16",
    "half": "float16",
    "__half": "float16",
    "nv_half": "float16",
    "nv_bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "size_t": "uint64",
    "ssize_t": "int64",
    "ptrdiff_t": "int64",
    "intptr_t": "int64",
    "uintptr_t": "uint64",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Element type by its name (LP64: `long` has 64 bits)."""

VECTORS = {
    "half2": ("float16", 4),
    "__half2": ("float16", 4),
    "nv_bfloat162": ("bfloat16", 4),
    "__nv_bfloat162": ("bfloat16", 4),
    "float2": ("float32", 8),
    "float4": ("float32", 16),
    "double2": ("float64", 16),
    "int2": ("int32", 8),
    "int4": ("int32", 16),
    "uint2": ("void", 8),
    "uint4": ("void", 16),
    "longlong2": ("int64", 16),
    "ulonglong2": ("void", 16),
}
"""CUDA's vectors: type of their elements, and bytes that the address must be a multiple of. The
unsigned ones carry the bits of anything."""

BY_POINTER_ONLY = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
"""What Python cannot pass by value."""
