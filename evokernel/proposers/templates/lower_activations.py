"""Owns the rules for activations and small formulas that are made of pointwise operators."""

from __future__ import annotations

import math

from evokernel.opgraph import Node
from evokernel.proposers.templates.expressions import Number, Unsupported
from evokernel.proposers.templates.scope import Rule, Scope, number


class _Formula:
    """Arithmetic on symbols of one dtype, for rules that read like the definition they follow."""

    def __init__(self, scope: Scope, dtype: str) -> None:
        self._symbols, self._dtype = scope.symbols, dtype

    def __call__(self, op: str, *args: int | float) -> int:
        """An operator; Python floats are constants, whole numbers are symbols."""
        return self._symbols.apply(op, *(self._operand(a) for a in args))

    def _operand(self, value: int | float) -> int:
        return self.constant(value) if isinstance(value, float) else value

    def constant(self, value: Number) -> int:
        return self._symbols.number(value, self._dtype)

    def choose(self, op: str, left: int, right: float, yes: int | float, no: int | float) -> int:
        """`yes` where the comparison holds, else `no`."""
        chosen = self._symbols.apply(op, left, self.constant(right))
        return self._symbols.apply("where", chosen, self._operand(yes), self._operand(no))


def _begin(scope: Scope, node: Node) -> tuple[_Formula, int]:
    return _Formula(scope, node.outputs[0].dtype), scope.tensor(node, node.argnames[0])


def _leaky_relu(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    slope = float(number(node, "negative_slope", 0.01))
    return f.choose("gt", x, 0.0, x, f("mul", x, slope))


def _prelu(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    weight, shape = scope.raw(node, "weight"), scope.shape(node, "self")
    if scope.symbols.shape(weight) != (1,):
        weight = scope.symbols.reshape(weight, (shape[1], *(1,) * (len(shape) - 2)))
    return f.choose("gt", x, 0.0, x, f("mul", x, weight))


def _elu(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    alpha = float(number(node, "alpha", 1.0)) * float(number(node, "scale", 1.0))
    steep = f("mul", x, float(number(node, "input_scale", 1.0)))
    right = f("mul", x, float(number(node, "scale", 1.0)))
    return f.choose("gt", x, 0.0, right, f("mul", f("expm1", steep), alpha))


def _selu(scope: Scope, node: Node) -> int:
    # Klambauer et al. 2017, "Self-Normalizing Neural Networks", to double precision.
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    f, x = _begin(scope, node)
    return f.choose("gt", x, 0.0, f("mul", x, scale), f("mul", f("expm1", x), alpha * scale))


def _celu(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    alpha = float(number(node, "alpha", 1.0))
    return f.choose("gt", x, 0.0, x, f("mul", f("expm1", f("div", x, alpha)), alpha))


def _softplus(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    beta, threshold = float(number(node, "beta", 1.0)), float(number(node, "threshold", 20.0))
    steep = f("mul", x, beta) if beta != 1 else x
    soft = f("softplus", steep)
    return f.choose("gt", steep, threshold, x, f("div", soft, beta) if beta != 1 else soft)


def _log_sigmoid(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    return f("neg", f("softplus", f("neg", x)))


def _hardswish(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    return f("mul", x, f("mul", _gate(f, x), 1 / 6))


def _hardsigmoid(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    return f("mul", _gate(f, x), 1 / 6)


def _gate(f: _Formula, x: int) -> int:
    return f("clamp_max", f("clamp_min", f("add", x, 3.0), 0.0), 6.0)


def _softsign(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    return f("div", x, f("add", f("abs", x), 1.0))


def _tanhshrink(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    return f("sub", x, f("tanh", x))


def _hardshrink(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    limit = float(number(node, "lambd", 0.5))
    # Written so that NaN stays: it is not within the limits.
    return f.choose("le", f("abs", x), limit, 0.0, x)


def _softshrink(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    limit = float(number(node, "lambd", 0.5))
    outside = f.choose("gt", x, 0.0, f("sub", x, limit), f("add", x, limit))
    return f.choose("le", f("abs", x), limit, 0.0, outside)


def _threshold(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    return f.choose("le", x, float(number(node, "threshold")), float(number(node, "value")), x)


def _lerp(scope: Scope, node: Node) -> int:
    f, start = _begin(scope, node)
    step = f("sub", scope.tensor(node, "end"), start)
    return f("add", start, f("mul", scope.tensor(node, "weight"), step))


def _addc(op: str) -> Rule:
    def rule(scope: Scope, node: Node) -> int:
        f, x = _begin(scope, node)
        both = f(op, scope.tensor(node, "tensor1"), scope.tensor(node, "tensor2"))
        value = float(number(node, "value", 1.0))
        return f("add", x, both if value == 1 else f("mul", both, value))

    return rule


def _glu(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    axis = int(number(node, "dim", -1)) % len(scope.shape(node, "self"))
    half = scope.shape(node, "self")[axis] // 2
    left, right = (
        scope.symbols.view(x, lambda v, s=start: v.narrow(axis, s, half))  # type: ignore[misc]
        for start in (0, half)
    )
    return f("mul", left, f("sigmoid", right))


def _xlogy(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    return f.choose("eq", x, 0.0, 0.0, f("mul", x, f("log", scope.tensor(node, "other"))))


def _nan_to_num(scope: Scope, node: Node) -> int:
    f, x = _begin(scope, node)
    if node.outputs[0].dtype != "float32":
        raise Unsupported("`nan_to_num` of anything but float32 is not covered")
    most = 3.4028234663852886e38  # The largest float32.
    high, low = float(number(node, "posinf", most)), float(number(node, "neginf", -most))
    chosen = scope.symbols.apply("isnan", x)
    filled = f.choose("eq", x, math.inf, high, f.choose("eq", x, -math.inf, low, x))
    nan = f.constant(float(number(node, "nan", 0.0)))
    return scope.symbols.apply("where", chosen, nan, filled)


ACTIVATIONS: dict[str, Rule] = {
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "elu": _elu,
    "selu": _selu,
    "celu": _celu,
    "softplus": _softplus,
    "log_sigmoid": _log_sigmoid,
    "hardswish": _hardswish,
    "hardsigmoid": _hardsigmoid,
    "softsign": _softsign,
    "tanhshrink": _tanhshrink,
    "hardshrink": _hardshrink,
    "softshrink": _softshrink,
    "threshold": _threshold,
    "lerp": _lerp,
    "addcmul": _addc("mul"),
    "addcdiv": _addc("div"),
    "glu": _glu,
    "xlogy": _xlogy,
    "nan_to_num": _nan_to_num,
}
"""Operators that are taken apart into those of `OPERATORS`."""
