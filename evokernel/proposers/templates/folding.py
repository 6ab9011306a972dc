"""Owns arithmetic on constants while a graph is lowered."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from evokernel.proposers.templates.expressions import Number

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "abs": abs,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "exp": math.exp,
    "log": math.log,
    "maximum": max,
    "minimum": min,
    "cast": lambda x: x,
    "not": operator.not_,
}


def fold(op: str, numbers: Sequence[Number], dtype: str) -> Number | None:
    """The result on plain numbers; None where it is left to the kernel.

    Args:
        op: Name in `OPERATORS`.
        numbers: The arguments, as far as they are constants.
        dtype: Of the result.
    """
    function = _FUNCTIONS.get(op)
    if function is None or not numbers or any(math.isnan(n) for n in numbers):
        return None
    try:
        result = function(*numbers)
    except (ArithmeticError, ValueError, TypeError):
        return None  # Division by zero, overflow, missing arguments: the kernel follows IEEE.
    return bool(result) if dtype == "bool" else result
