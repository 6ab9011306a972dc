"""Owns the operators of `Map` values in Triton: expressions, and the functions that they call."""

from __future__ import annotations

import re

from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.triton.spelling import TYPES

_EXPRESSIONS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "clamp_min": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "clamp_max": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "sqrt": "tl.sqrt_rn({0})",
    "rsqrt": "tl.rsqrt({0})",
    "reciprocal": "1.0 / {0}",
    "exp": "exact_exp({0})",
    "exp_short": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "expm1": "exact_expm1({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "log10": "libdevice.log10({0})",
    "log1p": "exact_log1p({0})",
    "pow": "libdevice.pow({0}, {1})",
    "tanh": "exact_tanh({0})",
    "sigmoid": "1.0 / (1.0 + exact_exp(-{0}))",
    "sigmoid_short": "1.0 / (1.0 + tl.exp(-{0}))",
    "silu": "{0} / (1.0 + exact_exp(-{0}))",
    "silu_short": "{0} / (1.0 + tl.exp(-{0}))",
    "erf": "tl.erf({0})",
    **{
        name: f"libdevice.{name}({{0}})"
        for name in ("erfc", "tan", "asin", "acos", "atan", "sinh", "cosh")
    },
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "gelu": "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))",
    "gelu_short": "short_gelu({0})",
    "gelu_tanh": "tanh_gelu({0})",
    "gelu_tanh_short": "short_tanh_gelu({0})",
    "mish": "exact_mish({0})",
    "softplus": "exact_softplus({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "trunc": "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))",
    "round": "libdevice.rint({0})",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0}))",
    "remainder": "signed_remainder({0}, {1})",
    "fmod": "libdevice.fmod({0}, {1})",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")',
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "where": "tl.where({0}, {1}, {2})",
}
"""By name, for floats; `{0}`, `{1}`, ... are names of values or literals."""

_OF_INTEGERS = {
    "maximum": "tl.maximum({0}, {1})",
    "minimum": "tl.minimum({0}, {1})",
    "clamp_min": "tl.maximum({0}, {1})",
    "clamp_max": "tl.minimum({0}, {1})",
    "sign": "({0} > 0).to({t}) - ({0} < 0).to({t})",
    "remainder": "whole_remainder({0}, {1})",
    "fmod": "{0} % {1}",
    "isnan": "{0} != {0}",
    "isinf": "{0} != {0}",
}
"""What is spelt otherwise for integers; Triton's `%` has the sign of the dividend, as C's."""

_UNCOVERED = frozenset({"exp2", "log2", "pow"})
"""Operators that integers do not have."""

_FUNCTIONS = {
    "exact_exp": '''
@triton.jit
def exact_exp(x):
    """The power of two, with what was lost when its exponent was rounded."""
    power = x * 1.4426950408889634
    lost = tl.fma(x, 1.4426950408889634, -power) + x * 1.925963033500471e-08
    whole = tl.exp2(power)
    return tl.where(tl.abs(power) < 128.0, tl.fma(whole, lost * 0.6931471805599453, whole), whole)
''',
    "exact_expm1": '''
@triton.jit
def exact_expm1(x):
    """A polynomial near zero, where the exponential is near one."""
    series = x * (1.984127e-04 + x * 2.4801587e-05)
    series = x * (0.16666667 + x * (0.041666668 + x * (0.008333334 + x * (0.0013888889 + series))))
    return tl.where(tl.abs(x) < 0.5, tl.fma(x * x, 0.5 + series, x), exact_exp(x) - 1.0)
''',
    "exact_log1p": '''
@triton.jit
def exact_log1p(x):
    """log(u) times x / (u - 1), u = 1 + x, in which the rounding of u cancels."""
    u = 1.0 + x
    near = tl.log(u) * (x / (u - 1.0))
    return tl.where(u == 1.0, x, tl.where(tl.abs(u) == float("inf"), tl.log(u), near))
''',
    "exact_tanh": '''
@triton.jit
def exact_tanh(x):
    """A polynomial near zero, else by the exponential of -2 |x|, which cannot overflow."""
    square = x * x
    series = square * (0.02186949 + square * (-0.00886324 + square * 0.00359213))
    series = square * (-0.33333334 + square * (0.13333334 + square * (-0.05396825 + series)))
    decay = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - decay) / (1.0 + decay)
    return tl.where(tl.abs(x) < 0.4, tl.fma(x, series, x), tl.where(x < 0, -far, far))
''',
    "exact_softplus": '''
@triton.jit
def exact_softplus(x):
    """log(1 + exp(x)) without overflow."""
    return tl.where(x > 0, x, 0.0) + exact_log1p(exact_exp(-tl.abs(x)))
''',
    "exact_mish": '''
@triton.jit
def exact_mish(x):
    """x tanh(log(1 + exp(x))) = x n / (n + 2) with n = e (e + 2), e = exp(x)."""
    e = exact_exp(tl.where(x > 20.0, 20.0, x))
    n = e * (e + 2.0)
    return tl.where(x > 20.0, x, x * (n / (n + 2.0)))
''',
    "short_gelu": '''
@triton.jit
def short_gelu(x):
    """x (1 / 2 + h), h = y p(y^2) / q(y^2) on |y| <= 5.4; off by 1.5e-6 at most."""
    y = tl.minimum(tl.maximum(x, -5.4), 5.4)
    s = y * y
    f = s * s
    p = tl.fma(f, 2.28031833e-08 * s + 6.46526632e-06, 0.000174738088 * s + 0.00471353671)
    p = tl.fma(f, p, 0.0343565382 * s + 0.398942262)
    q = tl.fma(f, 1.20749087e-06 * s + 7.59333561e-05, 0.00191724987 * s + 0.0289485324)
    q = tl.fma(f, q, 0.252783924 * s + 1.0)
    return x * (0.5 + tl.minimum(tl.maximum(y * p / q, -0.5), 0.5))
''',
    "tanh_gelu": '''
@triton.jit
def tanh_gelu(x):
    """x (1 + tanh(z)) / 2 = x / (1 + exp(-2 z)), z = sqrt(2 / pi) (x + 0.044715 x^3)."""
    return x / (1.0 + exact_exp(x * (-0.0713548163 * x * x - 1.59576912)))
''',
    "short_tanh_gelu": '''
@triton.jit
def short_tanh_gelu(x):
    """x (1 + tanh(z)) / 2 = x / (1 + exp(-2 z)), z = sqrt(2 / pi) (x + 0.044715 x^3)."""
    return x / (1.0 + tl.exp(x * (-0.0713548163 * x * x - 1.59576912)))
''',
    "signed_remainder": '''
@triton.jit
def signed_remainder(a, b):
    """With the sign of the divisor."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
''',
    "whole_remainder": '''
@triton.jit
def whole_remainder(a, b):
    """With the sign of the divisor."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
''',
    "larger": '''
@triton.jit
def larger(a, b):
    """NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "smaller": '''
@triton.jit
def smaller(a, b):
    """NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "times": '''
@triton.jit
def times(a, b):
    """The product."""
    return a * b
''',
    "above": '''
@triton.jit
def above(a, at, b, place):
    """The larger one and its place, NaN above all; of equal ones the first."""
    is_later = (b > a) | ((b != b) & (a == a))
    is_equal = (a == b) | ((a != a) & (b != b))
    takes = is_later | (is_equal & (place < at))
    return tl.where(takes, b, a), tl.where(takes, place, at)
''',
    "below": '''
@triton.jit
def below(a, at, b, place):
    """The smaller one and its place, NaN below all; of equal ones the first."""
    is_later = (b < a) | ((b != b) & (a == a))
    is_equal = (a == b) | ((a != a) & (b != b))
    takes = is_later | (is_equal & (place < at))
    return tl.where(takes, b, a), tl.where(takes, place, at)
''',
}
"""Functions of our own that a module carries where it calls them, in the order of their needs."""

_ORDER = tuple(_FUNCTIONS)


def expression(op: str, args: tuple[str, ...], dtype: str, of: str) -> str:
    """An operator applied to names or literals.

    Args:
        op: Name in `OPERATORS`; `cast` and `copy` are not expressions but types and shapes.
        args: The arguments.
        dtype: Of the result.
        of: Of the first argument that is no constant.

    Raises:
        Unsupported: Triton has no such function for the dtype.
    """
    is_float = of.startswith(("float", "bfloat"))
    text = _EXPRESSIONS.get(op, "") if is_float else _OF_INTEGERS.get(op, _EXPRESSIONS.get(op, ""))
    if not text or (not is_float and op in _UNCOVERED):
        raise Unsupported(f"`{op}` of {of} is not covered in Triton")
    if of == "float64":
        text = text.replace("exact_exp(", "tl.exp(").replace("tl.sqrt_rn", "tl.sqrt")
    return text.format(*args, t=TYPES[dtype])


def carried(text: str) -> str:
    """The functions of our own that a text calls, and those that they call."""
    wanted: set[str] = set()
    todo = [text]
    while todo:
        found = _called(todo.pop()) - wanted
        wanted |= found
        todo += [_FUNCTIONS[name] for name in found]
    return "\n".join(_FUNCTIONS[name] for name in _ORDER if name in wanted)


def _called(text: str) -> set[str]:
    return set(re.findall(r"\b\w+\b", text)) & set(_FUNCTIONS)
