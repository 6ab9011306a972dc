"""Owns the operators of `Map` values: what each means, and how it is written in C++."""

from __future__ import annotations

from typing import Literal

from evokernel.frozen import Frozen

Group = Literal["arithmetic", "comparison", "logic", "choice", "rounding", "function", "conversion"]


class Operator(Frozen):
    """One operator on single numbers; NaN, infinities and signed zeros follow torch."""

    arity: int
    """Number of arguments."""
    group: Group
    """`function` is dear (a call or a polynomial), everything else costs one or two
    instructions."""
    scalar: str
    """C++ of the scalar form; `{0}`, `{1}`, ... are the arguments, `{t}` the type of the result,
    `{one}` the number one."""
    vector: str = ""
    """C++ of the vector form; empty if there is none, then only the scalar form can express it."""


def _infix(symbol: str, group: Group = "arithmetic") -> Operator:
    text = f"{{0}} {symbol} {{1}}"
    return Operator(arity=2, group=group, scalar=text, vector=text)


def _own(name: str, arity: int = 1, group: Group = "function") -> Operator:
    call = f"{name}({', '.join(f'{{{i}}}' for i in range(arity))})"
    return Operator(arity=arity, group=group, scalar=f"scalar::{call}", vector=call)


def _libm(name: str, group: Group = "function", arity: int = 1) -> Operator:
    call = f"{name}({', '.join(f'{{{i}}}' for i in range(arity))})"
    return Operator(arity=arity, group=group, scalar=f"std::{call}", vector=call)


def _short(name: str, scalar: str) -> Operator:
    """A vector form that is shorter because it gives up the ends of the range."""
    return Operator(arity=1, group="function", scalar=scalar, vector=f"{name}_short({{0}})")


OPERATORS: dict[str, Operator] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _infix("/"),
    "neg": Operator(arity=1, group="arithmetic", scalar="-{0}", vector="-{0}"),
    "abs": _libm("abs", "arithmetic"),
    # Both arguments may be NaN, and NaN wins.
    "maximum": _own("maximum", 2, "arithmetic"),
    "minimum": _own("minimum", 2, "arithmetic"),
    # The second argument is a bound that is not NaN: one instruction instead of three.
    "clamp_min": _own("clamp_min", 2, "arithmetic"),
    "clamp_max": _own("clamp_max", 2, "arithmetic"),
    "sqrt": _libm("sqrt", "function"),
    "rsqrt": _own("rsqrt"),
    "reciprocal": Operator(arity=1, group="arithmetic", scalar="{one} / {0}", vector="{one} / {0}"),
    "exp": _libm("exp"),
    "exp2": _libm("exp2"),
    "expm1": _libm("expm1"),
    "log": _libm("log"),
    "log2": _libm("log2"),
    "log10": _libm("log10"),
    "log1p": _libm("log1p"),
    "pow": _libm("pow", arity=2),
    "tanh": _libm("tanh"),
    "sigmoid": _own("sigmoid"),
    "erf": _libm("erf"),
    "erfc": _libm("erfc"),
    **{name: _libm(name) for name in ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"]},
    "gelu": _own("gelu"),
    "gelu_tanh": _own("gelu_tanh"),
    "silu": _own("silu"),
    "mish": _own("mish"),
    # log(1 + exp(x)), without torch's `beta` and `threshold`.
    "softplus": _own("softplus"),
    "exp_short": _short("exp", "std::exp({0})"),
    "sigmoid_short": _short("sigmoid", "scalar::sigmoid({0})"),
    "silu_short": _short("silu", "scalar::silu({0})"),
    "gelu_short": _short("gelu", "scalar::gelu({0})"),
    "gelu_tanh_short": _short("gelu_tanh", "scalar::gelu_tanh({0})"),
    "floor": _libm("floor", "rounding"),
    "ceil": _libm("ceil", "rounding"),
    "trunc": _libm("trunc", "rounding"),
    # To the nearest even integer.
    "round": Operator(arity=1, group="rounding", scalar="std::nearbyint({0})", vector="round({0})"),
    "sign": _own("sign", 1, "arithmetic"),
    # Remainder with the sign of the divisor, and with the sign of the dividend.
    "remainder": _own("remainder", 2),
    "fmod": _libm("fmod", arity=2),
    "lt": _infix("<", "comparison"),
    "le": _infix("<=", "comparison"),
    "gt": _infix(">", "comparison"),
    "ge": _infix(">=", "comparison"),
    "eq": _infix("==", "comparison"),
    "ne": _infix("!=", "comparison"),
    "isnan": _libm("isnan", "comparison"),
    "isinf": _libm("isinf", "comparison"),
    "and": Operator(arity=2, group="logic", scalar="{0} && {1}", vector="{0} & {1}"),
    "or": Operator(arity=2, group="logic", scalar="{0} || {1}", vector="{0} | {1}"),
    "xor": Operator(arity=2, group="logic", scalar="{0} != {1}", vector="{0} ^ {1}"),
    "not": Operator(arity=1, group="logic", scalar="!{0}", vector="!{0}"),
    "where": Operator(
        arity=3, group="choice", scalar="{0} ? {1} : {2}", vector="select({0}, {1}, {2})"
    ),
    # One number per row, or one at all, written to every element.
    "copy": Operator(arity=1, group="conversion", scalar="{0}", vector="V({0})"),
    # To the value's own dtype.
    "cast": Operator(
        arity=1, group="conversion", scalar="static_cast<{t}>({0})", vector="to_float({0})"
    ),
}
"""By name; the result has the arguments' dtype except for comparisons, `isnan`, `isinf` (bool) and
`cast`."""
