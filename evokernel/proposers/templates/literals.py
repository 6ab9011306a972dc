"""Owns how dtypes and numbers are spelt in C++."""

from __future__ import annotations

import math
import struct

from evokernel.proposers.templates.expressions import Number

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
}
"""C++ types of the dtypes that programs may hold."""


def literal(number: Number, dtype: str) -> str:
    """The number as C++ writes it, exactly the value that torch rounds it to."""
    if dtype == "bool":
        return "true" if number else "false"
    if dtype not in ("float32", "float64"):
        return str(int(number))
    value = float(number)
    if dtype == "float32" and math.isfinite(value):
        value = _as_float32(value)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = _shortest(value) if dtype == "float32" else repr(value)
    return f"{text}f" if dtype == "float32" else text


def _as_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _shortest(value: float) -> str:
    """The shortest decimal text that gives the same float32."""
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if _as_float32(float(text)) == value:
            break
    return repr(float(text))


def identity(op: str, dtype: str) -> str:
    """What a reduction or scan of nothing gives, as C++ writes it."""
    if op in ("sum", "any"):
        return literal(0, dtype)
    if op in ("prod", "all"):
        return literal(1, dtype)
    sign = -1 if op in ("max", "fmax") else 1
    if dtype in ("float32", "float64"):
        return literal(sign * math.inf, dtype)
    return f"std::numeric_limits<{C_TYPES[dtype]}>::{'min' if sign < 0 else 'max'}()"
