"""Owns the rules for pointwise operators."""

from __future__ import annotations

import math

from evokernel.opgraph import Node, Ref
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.scope import Rule, Scope, number


def _same(op: str) -> Rule:
    """A unary operator of the same meaning, in the result's dtype."""

    def rule(scope: Scope, node: Node) -> int:
        return scope.symbols.apply(op, scope.tensor(node, node.argnames[0]))

    return rule


def _pair(op: str) -> Rule:
    """A binary operator of the same meaning; `alpha` scales the second argument."""

    def rule(scope: Scope, node: Node) -> int:
        left, right = (scope.tensor(node, name) for name in node.argnames[:2])
        alpha = number(node, "alpha", 1)
        if alpha != 1:
            scale = scope.symbols.number(alpha, node.outputs[0].dtype)
            right = scope.symbols.apply("mul", right, scale)
        return scope.symbols.apply(op, left, right)

    return rule


def _mul(scope: Scope, node: Node) -> int:
    left, right = (scope.tensor(node, name) for name in ("self", "other"))
    if node.outputs[0].dtype == "bool":
        return scope.symbols.apply("and", left, right)
    return scope.symbols.apply("mul", left, right)


def _div(scope: Scope, node: Node) -> int:
    rounding = node.argument("rounding_mode")
    quotient = scope.symbols.apply("div", scope.tensor(node, "self"), scope.tensor(node, "other"))
    if rounding is None:
        return quotient
    if rounding == "trunc" and node.outputs[0].dtype.startswith("float"):
        return scope.symbols.apply("trunc", quotient)
    raise Unsupported(f"`div` with rounding mode `{rounding}` is not covered")


def _compare(op: str) -> Rule:
    def rule(scope: Scope, node: Node) -> int:
        dtype = scope.common(node, "self", "other")
        left, right = (scope.tensor(node, name, dtype) for name in ("self", "other"))
        return scope.symbols.apply(op, left, right)

    return rule


def _logical(op: str) -> Rule:
    """Truth values of anything: not zero is true."""

    def rule(scope: Scope, node: Node) -> int:
        args = [scope.tensor(node, name, "bool") for name in node.argnames]
        return scope.symbols.apply(op, *args, dtype="bool")

    return rule


def _bitwise(op: str) -> Rule:
    def rule(scope: Scope, node: Node) -> int:
        if node.outputs[0].dtype != "bool":
            raise Unsupported(f"`{node.op}` of whole numbers is not covered")
        return _logical(op)(scope, node)  # type: ignore[return-value]

    return rule


def _test(op: str) -> Rule:
    """`isnan` and `isinf`, which keep their argument's dtype while they look at it."""

    def rule(scope: Scope, node: Node) -> int:
        return scope.symbols.apply(op, scope.raw(node, "self"))

    return rule


def _isfinite(scope: Scope, node: Node) -> int:
    apply, x = scope.symbols.apply, scope.raw(node, "self")
    limit = scope.symbols.number(math.inf, scope.symbols.dtype(x))
    return apply("lt", apply("abs", x), limit)


def _where(scope: Scope, node: Node) -> int:
    chosen = scope.tensor(node, "condition", "bool")
    return scope.symbols.apply(
        "where", chosen, scope.tensor(node, "self"), scope.tensor(node, "other")
    )


def _masked_fill(scope: Scope, node: Node) -> int:
    mask = scope.tensor(node, "mask", "bool")
    return scope.symbols.apply(
        "where", mask, scope.tensor(node, "value"), scope.tensor(node, "self")
    )


def _clamp(scope: Scope, node: Node) -> int:
    value = scope.tensor(node, "self")
    for name, bound, between in (("min", "clamp_min", "maximum"), ("max", "clamp_max", "minimum")):
        if not scope.has(node, name):
            continue
        limit = scope.tensor(node, name)
        fixed = not isinstance(node.argument(name), Ref) and not math.isnan(number(node, name))
        value = scope.symbols.apply(bound if fixed else between, value, limit)
    return value


def _relu(scope: Scope, node: Node) -> int:
    zero = scope.symbols.number(0, node.outputs[0].dtype)
    return scope.symbols.apply("clamp_min", scope.tensor(node, "self"), zero)


def _pow(scope: Scope, node: Node) -> int:
    exponent = node.argument("exponent")
    if isinstance(exponent, bool | int | float) and node.outputs[0].dtype.startswith("float"):
        return power(scope, scope.tensor(node, "self"), float(exponent))
    if node.argument("self") == 2:
        return scope.symbols.apply("exp2", scope.tensor(node, "exponent"))
    return scope.symbols.apply("pow", scope.tensor(node, "self"), scope.tensor(node, "exponent"))


def power(scope: Scope, x: int, exponent: float) -> int:
    """X to a constant power, by multiplications and roots where that is as exact as `pow`."""
    apply, dtype = scope.symbols.apply, scope.symbols.dtype(x)
    square = apply("mul", x, x) if exponent in (2, 3, 4, -2) else x
    short = {
        1.0: lambda: x,
        2.0: lambda: square,
        3.0: lambda: apply("mul", square, x),
        4.0: lambda: apply("mul", square, square),
        -1.0: lambda: apply("reciprocal", x),
        -2.0: lambda: apply("reciprocal", square),
        0.5: lambda: apply("sqrt", x),
        -0.5: lambda: apply("rsqrt", x),
    }
    if exponent in short:
        return short[exponent]()
    return apply("pow", x, scope.symbols.number(exponent, dtype))


def _gelu(scope: Scope, node: Node) -> int:
    tanh = node.argument("approximate") == "tanh"
    return scope.symbols.apply("gelu_tanh" if tanh else "gelu", scope.tensor(node, "self"))


def _to(scope: Scope, node: Node) -> int:
    return scope.symbols.cast(scope.raw(node, "self"), node.outputs[0].dtype)


_UNARY = """abs neg sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p tanh sigmoid erf erfc
sin cos tan asin acos atan sinh cosh silu mish floor ceil trunc sign"""

POINTWISE: dict[str, Rule] = {
    **{op: _same(op) for op in _UNARY.split()},
    **{op: _pair(op) for op in ("add", "sub", "maximum", "minimum", "remainder", "fmod")},
    **{op: _compare(op) for op in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{f"logical_{op}": _logical(op) for op in ("and", "or", "xor", "not")},
    **{f"bitwise_{op}": _bitwise(op) for op in ("and", "or", "xor", "not")},
    # What `a & b` and its like are traced as.
    **{f"__{op}": _bitwise(op) for op in ("and", "or", "xor")},
    "isnan": _test("isnan"),
    "isinf": _test("isinf"),
    "isfinite": _isfinite,
    "mul": _mul,
    "div": _div,
    "where": _where,
    "masked_fill": _masked_fill,
    "clamp": _clamp,
    "relu": _relu,
    "pow": _pow,
    "gelu": _gelu,
    "to": _to,
}
"""Operators with a counterpart in `OPERATORS`, or nearly so; activations are in
`lower_activations`."""
