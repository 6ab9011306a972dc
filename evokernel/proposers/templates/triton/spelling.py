"""Owns how dtypes, numbers and what reductions begin with are spelt in Triton."""

from __future__ import annotations

import math

from evokernel.proposers.templates.expressions import Number
from evokernel.proposers.templates.literals import literal as c_literal

TYPES = {
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "float32": "tl.float32",
    "float64": "tl.float64",
    "bool": "tl.int1",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "int16": "tl.int16",
    "int8": "tl.int8",
    "uint8": "tl.uint8",
}
"""Triton's types of the dtypes that programs may hold."""

_POINTERS = {
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float32": "*fp32",
    "float64": "*fp64",
    "bool": "*i1",
    "int64": "*i64",
    "int32": "*i32",
    "int16": "*i16",
    "int8": "*i8",
    "uint8": "*u8",
}

HALF = frozenset({"float16", "bfloat16"})
"""Dtypes that tensors may have and arithmetic never has."""


def pointer(dtype: str) -> str:
    """A tensor of a dtype as `LAUNCHES` has it."""
    return _POINTERS[dtype]


def held(dtype: str) -> str:
    """The dtype in which a kernel computes with values of a dtype."""
    return "float32" if dtype in HALF else dtype


def literal(number: Number, dtype: str) -> str:
    """The number as Triton writes it, exactly the value that torch rounds it to."""
    if dtype == "bool":
        return "True" if number else "False"
    if not dtype.startswith(("float", "bfloat")):
        return str(int(number))
    value = float(number)
    if math.isnan(value):
        return 'float("nan")'
    if math.isinf(value):
        return 'float("inf")' if value > 0 else '-float("inf")'
    if held(dtype) == "float64":
        return repr(value)
    text = c_literal(number, "float32").removesuffix("f")
    if "INFINITY" in text:
        return 'float("inf")' if value > 0 else '-float("inf")'
    return text


def identity(op: str, dtype: str) -> str:
    """What a reduction or scan of nothing gives."""
    if op in ("sum", "any"):
        return literal(0, dtype)
    if op in ("prod", "all"):
        return literal(1, dtype)
    sign = -1 if op in ("max", "fmax", "argmax") else 1
    if dtype.startswith(("float", "bfloat")):
        return literal(sign * math.inf, dtype)
    if dtype == "bool":
        return literal(sign > 0, dtype)
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return str(0 if sign < 0 else 2**bits - 1)
    return str(-(2 ** (bits - 1)) if sign < 0 else 2 ** (bits - 1) - 1)
