"""Owns how operators, dtypes and numbers are spelt in CUDA C++."""

from __future__ import annotations

from evokernel.proposers.templates.literals import identity as cpp_identity

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bfloat16": "nv_bfloat16",
    "bool": "bool",
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
}
"""Types of elements as they lie in memory; values are never half precision."""

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "&&",
    "or": "||",
    "xor": "!=",
}
_CUDA = """sqrt rsqrt exp exp2 expm1 log log2 log10 log1p tanh erf erfc sin cos tan asin acos atan
sinh cosh floor ceil trunc isnan isinf"""
_OWN = """sigmoid gelu gelu_tanh silu mish softplus sign exp_short log_short reciprocal_short
sigmoid_short silu_short gelu_short gelu_tanh_short mish_short tanh_short"""

OPERATORS = {
    **{op: f"{{0}} {sign} {{1}}" for op, sign in _INFIX.items()},
    **{op: f"{op}({{0}})" for op in _CUDA.split()},
    **{op: f"gpu::{op}({{0}})" for op in _OWN.split()},
    **{op: f"gpu::{op}({{0}}, {{1}})" for op in ("maximum", "minimum", "clamp_min", "clamp_max")},
    "div_short": "gpu::div_short({0}, {1})",
    "remainder": "gpu::remainder({0}, {1})",
    "fmod": "fmod({0}, {1})",
    "pow": "pow({0}, {1})",
    "abs": "abs({0})",
    "neg": "-{0}",
    "not": "!{0}",
    "reciprocal": "{one} / {0}",
    "round": "rint({0})",
    "where": "{0} ? {1} : {2}",
    "copy": "{0}",
    "cast": "static_cast<{t}>({0})",
}
"""CUDA C++ of each operator of `templates.operators`, with the same placeholders."""

SHORT = {
    "div": "div_short",
    "exp": "exp_short",
    "log": "log_short",
    "reciprocal": "reciprocal_short",
    "sigmoid": "sigmoid_short",
    "silu": "silu_short",
    "gelu": "gelu_short",
    "gelu_tanh": "gelu_tanh_short",
    "mish": "mish_short",
    "tanh": "tanh_short",
}
"""Operators of float32 with a form that takes fewer instructions."""

COMBINE = {
    "sum": "gpu::Sum",
    "prod": "gpu::Product",
    "max": "gpu::Max",
    "min": "gpu::Min",
    "fmax": "gpu::FastMax",
    "fmin": "gpu::FastMin",
    "any": "gpu::Any",
    "all": "gpu::All",
    "argmax": "gpu::Highest",
    "argmin": "gpu::Lowest",
}
"""What combines two partial results of a reduction or scan."""

_INTEGERS = {
    "int64": ("(-9223372036854775807LL - 1)", "9223372036854775807LL"),
    "int32": ("(-2147483647 - 1)", "2147483647"),
    "int16": ("-32768", "32767"),
    "int8": ("-128", "127"),
    "uint8": ("0", "255"),
}
"""Least and greatest number."""


def identity(op: str, dtype: str) -> str:
    """What a reduction or scan of nothing gives."""
    if op in ("max", "fmax", "min", "fmin") and dtype in _INTEGERS:
        return _INTEGERS[dtype]["min" in op]
    if op in ("max", "min", "fmax", "fmin") and dtype == "bool":
        return "true" if "min" in op else "false"
    return cpp_identity(op, dtype)
