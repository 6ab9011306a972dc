"""Owns the rules for reductions, softmax and scans, and `Rows`, which other rules build on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evokernel.opgraph import Node
from evokernel.proposers.templates.expressions import Reduction, Unsupported
from evokernel.proposers.templates.scope import Result, Rule, Scope, integers, number


class Rows:
    """Some axes of a tensor as rows: reductions over them, and what is made from their results.

    Rules write the definition that is stable in floating point; a template may know a shorter way.
    """

    def __init__(
        self, scope: Scope, symbol: int, shape: tuple[int, ...], dims: Sequence[int]
    ) -> None:
        self._symbols = scope.symbols
        self._dims = tuple(d for d in dims if shape[d] != 1)
        self._kept = tuple(1 if axis in dims else size for axis, size in enumerate(shape))
        self.x = scope.symbols.expand(symbol, shape)
        self.dtype = scope.symbols.dtype(symbol)
        self.length = math.prod(shape[d] for d in dims)

    def number(self, value: float) -> int:
        """A constant of the rows' dtype."""
        return self._symbols.number(value, self.dtype)

    def reduce(self, op: Reduction, symbol: int, hint: str, dtype: str = "") -> int:
        """One number per row, with the reduced axes kept as ones; one element is itself."""
        if not self._dims:
            return symbol
        reduced = self._symbols.reduce(op, symbol, self._dims, hint, dtype)
        return self._symbols.reshape(reduced, self._kept)

    def apply(self, op: str, *args: int, hint: str = "") -> int:
        """A pointwise operator; numbers per row are broadcast."""
        return self._symbols.apply(op, *args, hint=hint)

    def mean(self, symbol: int, hint: str, freedom: float | None = None) -> int:
        """The sum over a row divided by its length, or by `freedom`."""
        total = self.reduce("sum", symbol, f"{hint}_sum")
        divisor = self.length if freedom is None else max(freedom, 0)
        return self.apply("div", total, self.number(divisor), hint=hint)

    def centred(self) -> int:
        """The distance from the row's mean."""
        return self.apply("sub", self.x, self.mean(self.x, "mean"), hint="centred")

    def variance(self, correction: float) -> int:
        """The mean squared distance from the mean, in two passes."""
        centred = self.centred()
        square = self.apply("mul", centred, centred)
        return self.mean(square, "variance", self.length - correction)

    def shifted(self) -> int:
        """The distance from the row's maximum, so that no exponential overflows.

        NaN may drop out of the maximum: it comes back with the sum of the exponentials.
        """
        return self.apply("sub", self.x, self.reduce("fmax", self.x, "row_max"), hint="shifted")

    def exponentials(self) -> tuple[int, int]:
        """exp(x - max) and its sum per row."""
        exps = self.apply("exp", self.shifted(), hint="exps")
        return exps, self.reduce("sum", exps, "exp_sum")

    def log_softmax(self) -> int:
        """X - max - log(sum(exp(x - max)))."""
        _, total = self.exponentials()
        return self.apply("sub", self.shifted(), self.apply("log", total, hint="log_sum"))


def rows_of(scope: Scope, node: Node, name: str, dims: Sequence[int]) -> Rows:
    """The tensor argument as rows along `dims`."""
    dtype = node.outputs[0].dtype
    symbol = scope.raw(node, name)
    if dtype != "bool":
        symbol = scope.symbols.cast(symbol, dtype)
    return Rows(scope, symbol, scope.shape(node, name), dims)


def shaped(scope: Scope, node: Node, symbol: int) -> int:
    """A number per row in the shape that the call returns, with or without the reduced axes."""
    return scope.symbols.reshape(symbol, node.outputs[0].shape)


def _reduction(op: Reduction) -> Rule:
    def rule(scope: Scope, node: Node) -> int:
        dims = integers(node, "dim") if node.argument("dim") is not None else ()
        if not dims:
            dims = tuple(range(len(scope.shape(node, "self"))))
        rows = rows_of(scope, node, "self", dims)
        return shaped(scope, node, rows.reduce(op, rows.x, node.op))

    return rule


def _along(op: Reduction) -> Rule:
    """`max` and `min` along a dimension: the values, and where they are."""

    def rule(scope: Scope, node: Node) -> Result:
        values = _reduction(op)(scope, node)
        return values, _place(scope, node, op, 1)  # type: ignore[return-value]

    return rule


def _position(op: Reduction) -> Rule:
    """`argmax` and `argmin`, over all elements where no dimension is given."""
    return lambda scope, node: _place(scope, node, op, 0)


def _place(scope: Scope, node: Node, op: Reduction, output: int) -> int:
    """Where along the dimension the first extremum is; NaN counts as one."""
    shape, spec = scope.shape(node, "self"), node.outputs[output]
    dims = integers(node, "dim") if node.argument("dim") is not None else range(len(shape))
    rows = Rows(scope, scope.raw(node, "self"), shape, dims)
    if rows.length == 1:
        return scope.symbols.number(0, "int64")
    where: Reduction = "argmax" if op == "max" else "argmin"
    found = rows.reduce(where, rows.x, where, "int64")
    return scope.symbols.reshape(found, spec.shape)


def _truth(op: Reduction) -> Rule:
    def rule(scope: Scope, node: Node) -> int:
        rows = rows_of(scope, node, "self", integers(node, "dim"))
        truth = scope.symbols.cast(rows.x, "bool")
        return shaped(scope, node, rows.reduce(op, truth, node.op))

    return rule


def _mean(scope: Scope, node: Node) -> int:
    rows = rows_of(scope, node, "self", integers(node, "dim"))
    return shaped(scope, node, rows.mean(rows.x, "mean"))


def _spread(scope: Scope, node: Node) -> Result:
    """`var`, `std`, and the same together with the mean."""
    rows = rows_of(scope, node, "self", integers(node, "dim"))
    spread = rows.variance(number(node, "correction", 1))
    if node.op.startswith("std"):
        spread = rows.apply("sqrt", spread)
    if node.op.endswith("_mean"):
        return shaped(scope, node, spread), shaped(scope, node, rows.mean(rows.x, "mean"))
    return shaped(scope, node, spread)


def _norm(scope: Scope, node: Node) -> int:
    rows = rows_of(scope, node, "self", integers(node, "dim"))
    order = number(node, "ord", 2)
    size = rows.apply("abs", rows.x)
    if math.isinf(order):
        norm = rows.reduce("max" if order > 0 else "min", size, "norm")
    elif order == 1:
        norm = rows.reduce("sum", size, "norm")
    elif order == 2:
        squares = rows.reduce("sum", rows.apply("mul", rows.x, rows.x), "square_sum")
        norm = rows.apply("sqrt", squares)
    else:
        raise Unsupported(f"`norm` of order {order} is not covered")
    return shaped(scope, node, norm)


def _logsumexp(scope: Scope, node: Node) -> int:
    rows = rows_of(scope, node, "self", integers(node, "dim"))
    peak = rows.reduce("fmax", rows.x, "row_max")
    # An infinite maximum would make inf - inf; torch shifts by zero then.
    finite = rows.apply("where", rows.apply("isinf", peak), rows.number(0), peak, hint="shift")
    exps = rows.apply("exp", rows.apply("sub", rows.x, finite), hint="exps")
    total = rows.reduce("sum", exps, "exp_sum")
    return shaped(scope, node, rows.apply("add", rows.apply("log", total), finite))


def _softmax(scope: Scope, node: Node) -> int:
    rows = rows_of(scope, node, "self", integers(node, "dim"))
    exps, total = rows.exponentials()
    return rows.apply("mul", exps, rows.apply("reciprocal", total, hint="scale"))


def _log_softmax(scope: Scope, node: Node) -> int:
    return rows_of(scope, node, "self", integers(node, "dim")).log_softmax()


def _scan(op: Reduction) -> Rule:
    def rule(scope: Scope, node: Node) -> Result:
        dim, shape = int(number(node, "dim")), scope.shape(node, "self")
        result = scope.symbols.expand(scope.tensor(node, "self"), shape)
        if shape and shape[dim] != 1:
            result = scope.symbols.scan(op, result, dim, node.op)
        return result if len(node.outputs) == 1 else (result, None)

    return rule


REDUCTIONS: dict[str, Rule] = {
    "sum": _reduction("sum"),
    "prod": _reduction("prod"),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "max": _along("max"),
    "min": _along("min"),
    "argmax": _position("max"),
    "argmin": _position("min"),
    "any": _truth("any"),
    "all": _truth("all"),
    "mean": _mean,
    **{op: _spread for op in ("var", "std", "var_mean", "std_mean")},
    "linalg_vector_norm": _norm,
    "logsumexp": _logsumexp,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    "cummax": _scan("max"),
    "cummin": _scan("min"),
}
"""Operators that need whole rows, taken apart into row reductions and pointwise operators."""
