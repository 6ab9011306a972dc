"""Owns the rules for losses."""

from __future__ import annotations

from collections.abc import Callable

from evokernel.opgraph import Node
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.lower_reductions import Rows, rows_of
from evokernel.proposers.templates.scope import Rule, Scope, number

_NONE, _MEAN, _SUM = 0, 1, 2


def _reduced(scope: Scope, node: Node, loss: int, shape: tuple[int, ...]) -> int:
    """The loss of every element, their mean or their sum, as `reduction` says."""
    how = int(number(node, "reduction", _MEAN))
    if how == _NONE:
        return loss
    rows = Rows(scope, loss, shape, range(len(shape)))
    total = rows.mean(loss, "loss") if how == _MEAN else rows.reduce("sum", loss, "loss_sum")
    return scope.symbols.reshape(total, ())


def _elementwise(formula: Callable[[Scope, Node, int, int], int]) -> Rule:
    """A loss of every prediction and its target."""

    def rule(scope: Scope, node: Node) -> int:
        x, target = (scope.tensor(node, name) for name in node.argnames[:2])
        shape = scope.shape(node, node.argnames[0])
        return _reduced(scope, node, formula(scope, node, x, target), shape)

    return rule


def _mse(scope: Scope, node: Node, x: int, target: int) -> int:
    error = scope.symbols.apply("sub", x, target, hint="error")
    return scope.symbols.apply("mul", error, error)


def _l1(scope: Scope, node: Node, x: int, target: int) -> int:
    return scope.symbols.apply("abs", scope.symbols.apply("sub", x, target, hint="error"))


def _bent(scope: Scope, node: Node, x: int, target: int, limit: float) -> tuple[int, int, int]:
    """Size of the error, half its square, and whether it is below the limit."""
    apply = scope.symbols.apply
    error = apply("sub", x, target, hint="error")
    size = apply("abs", error)
    half = scope.symbols.number(0.5, scope.symbols.dtype(x))
    within = apply("lt", size, scope.symbols.number(limit, scope.symbols.dtype(x)))
    return size, apply("mul", apply("mul", half, error), error), within


def _huber(scope: Scope, node: Node, x: int, target: int) -> int:
    """error^2 / 2 up to delta, then delta (|error| - delta / 2)."""
    apply, delta = scope.symbols.apply, number(node, "delta", 1.0)
    size, half_square, within = _bent(scope, node, x, target, delta)
    slope, bend = (scope.symbols.number(v, scope.symbols.dtype(x)) for v in (delta, delta / 2))
    return apply("where", within, half_square, apply("mul", slope, apply("sub", size, bend)))


def _smooth_l1(scope: Scope, node: Node, x: int, target: int) -> int:
    """error^2 / (2 beta) up to beta, then |error| - beta / 2."""
    apply, beta = scope.symbols.apply, number(node, "beta", 1.0)
    if beta == 0:
        return _l1(scope, node, x, target)
    size, half_square, within = _bent(scope, node, x, target, beta)
    width, bend = (scope.symbols.number(v, scope.symbols.dtype(x)) for v in (beta, beta / 2))
    return apply("where", within, apply("div", half_square, width), apply("sub", size, bend))


def _kl_div(scope: Scope, node: Node, x: int, target: int) -> int:
    """Target (log(target) - x), 0 where the target is; `log_target` has it as a logarithm."""
    apply, dtype = scope.symbols.apply, scope.symbols.dtype(x)
    if node.argument("log_target"):
        return apply("mul", apply("exp", target), apply("sub", target, x))
    zero = scope.symbols.number(0.0, dtype)
    entropy = apply("mul", target, apply("log", target))
    entropy = apply("where", apply("eq", target, zero), zero, entropy, hint="entropy")
    return apply("sub", entropy, apply("mul", target, x))


def _bce(scope: Scope, node: Node, x: int, target: int) -> int:
    """-target log(x) - (1 - target) log(1 - x), the logarithms bounded by -100 as in torch."""
    apply, dtype = scope.symbols.apply, scope.symbols.dtype(x)
    _refuse(node, scope, "weight")
    least, one = (scope.symbols.number(v, dtype) for v in (-100.0, 1.0))
    yes = apply("clamp_min", apply("log", x), least)
    no = apply("clamp_min", apply("log1p", apply("neg", x)), least)
    return apply("sub", apply("mul", apply("sub", target, one), no), apply("mul", target, yes))


def _bce_logits(scope: Scope, node: Node, x: int, target: int) -> int:
    """(1 - target) x + log(1 + exp(-x))."""
    apply = scope.symbols.apply
    _refuse(node, scope, "weight", "pos_weight")
    one = scope.symbols.number(1.0, scope.symbols.dtype(x))
    soft = apply("softplus", apply("neg", x))
    return apply("add", apply("mul", apply("sub", one, target), x), soft)


def _refuse(node: Node, scope: Scope, *names: str) -> None:
    for name in names:
        if scope.has(node, name):
            raise Unsupported(f"`{node.op}` with `{name}` is not covered")


def _cross_entropy(scope: Scope, node: Node) -> int:
    shape, target = scope.shape(node, "self"), scope.shape(node, "target")
    rows = _classes(scope, node)
    if target == shape:
        return _soft_cross_entropy(scope, node, rows)
    return _Classes(scope, node, rows).loss(number(node, "label_smoothing"))


def _soft_cross_entropy(scope: Scope, node: Node, rows: Rows) -> int:
    """Targets are probabilities: -sum(target log_softmax(x)) per row, averaged over the rows."""
    _refuse(node, scope, "weight")
    if number(node, "label_smoothing"):
        raise Unsupported("`cross_entropy` of smoothed probabilities is not covered")
    product = rows.apply("mul", scope.tensor(node, "target"), rows.log_softmax())
    loss = rows.apply("neg", rows.reduce("sum", product, "row_sum"), hint="row_loss")
    return _reduced(
        scope, node, scope.symbols.reshape(loss, _batch(scope, node)), _batch(scope, node)
    )


def _nll(scope: Scope, node: Node) -> int:
    rows = _classes(scope, node)
    return _Classes(scope, node, rows).nll(rows.x)


def _classes(scope: Scope, node: Node) -> Rows:
    """Rows of classes, which must be the last dimension."""
    rank = len(scope.shape(node, "self"))
    if rank > 2:
        raise Unsupported(
            f"`{node.op}` over dim 1 of {rank} is not covered, only over the last one"
        )
    return rows_of(scope, node, "self", (rank - 1,))


def _batch(scope: Scope, node: Node) -> tuple[int, ...]:
    return scope.shape(node, "self")[:-1]


def _triplet(scope: Scope, node: Node) -> int:
    """max(margin + |anchor - positive| - |anchor - negative|, 0), in the Euclidean norm."""
    if number(node, "p", 2.0) != 2 or node.argument("swap"):
        raise Unsupported(
            "`triplet_margin_loss` with `p` other than 2 or with `swap` is not covered"
        )
    shape = scope.shape(node, "anchor")
    rows = rows_of(scope, node, "anchor", (len(shape) - 1,))
    eps = rows.number(number(node, "eps", 1e-6))

    def distance(name: str) -> int:
        apart = rows.apply("add", rows.apply("sub", rows.x, scope.tensor(node, name)), eps)
        squares = rows.reduce("sum", rows.apply("mul", apart, apart), f"{name}_squares")
        return rows.apply("sqrt", squares, hint=f"{name}_distance")

    gap = rows.apply("sub", distance("positive"), distance("negative"))
    wide = rows.apply("add", gap, rows.number(number(node, "margin", 1.0)))
    loss = rows.apply("clamp_min", wide, rows.number(0.0), hint="row_loss")
    return _reduced(scope, node, scope.symbols.reshape(loss, shape[:-1]), shape[:-1])


class _Classes:
    """Losses whose target is the number of a class per row."""

    def __init__(self, scope: Scope, node: Node, rows: Rows) -> None:
        self._scope, self._node, self._rows = scope, node, rows
        self._apply = scope.symbols.apply
        self._target = scope.raw(node, "target")
        ignored = scope.symbols.number(
            int(number(node, "ignore_index", -100)), scope.symbols.dtype(self._target)
        )
        self._counts = self._apply("ne", self._target, ignored, hint="counts")

    def nll(self, log_probability: int) -> int:
        """Minus the target's log-probability, weighted by class, over the rows that count."""
        picked = self._scope.symbols.pick(log_probability, self._target)
        return self._averaged(self._apply("neg", picked))

    def loss(self, smoothing: float) -> int:
        """Cross-entropy; smoothing moves some of the target to all classes alike."""
        if not smoothing:
            return self.nll(self._rows.log_softmax())
        _refuse(self._node, self._scope, "weight")
        symbols, rows = self._scope.symbols, self._rows
        logs = rows.log_softmax()
        hit = self._apply("neg", symbols.pick(logs, self._target))
        every = rows.apply("neg", rows.mean(logs, "mean_log"))
        every = symbols.reshape(every, symbols.shape(self._target))
        parts = [
            self._apply("mul", part, rows.number(share))
            for part, share in ((hit, 1 - smoothing), (every, smoothing))
        ]
        return self._averaged(self._apply("add", *parts))

    def _averaged(self, loss: int) -> int:
        weight = self._weight()
        loss = self._apply("mul", loss, weight)
        zero = self._rows.number(0.0)
        loss = self._apply("where", self._counts, loss, zero, hint="row_loss")
        how = int(number(self._node, "reduction", _MEAN))
        if how == _NONE:
            return loss
        total = self._total(loss, "loss_sum")
        if how == _SUM:
            return total
        present = self._apply("where", self._counts, weight, zero, hint="row_weight")
        return self._apply("div", total, self._total(present, "weight_sum"))

    def _weight(self) -> int:
        if not self._scope.has(self._node, "weight"):
            return self._rows.number(1.0)
        weight = self._scope.tensor(self._node, "weight")
        shape = (*self._scope.symbols.shape(self._target), *self._scope.symbols.shape(weight))
        return self._scope.symbols.pick(self._scope.symbols.expand(weight, shape), self._target)

    def _total(self, symbol: int, hint: str) -> int:
        axes = range(len(self._scope.symbols.shape(self._target)))
        return self._scope.symbols.reduce("sum", symbol, axes, hint) if axes else symbol


LOSSES: dict[str, Rule] = {
    "mse_loss": _elementwise(_mse),
    "l1_loss": _elementwise(_l1),
    "huber_loss": _elementwise(_huber),
    "smooth_l1_loss": _elementwise(_smooth_l1),
    "kl_div": _elementwise(_kl_div),
    "binary_cross_entropy": _elementwise(_bce),
    "binary_cross_entropy_with_logits": _elementwise(_bce_logits),
    "cross_entropy_loss": _cross_entropy,
    "triplet_margin_loss": _triplet,
    "nll_loss": _nll,
    "nll_loss_nd": _nll,
}
"""Losses; `reduction` is torch's number: 0 none, 1 mean, 2 sum."""
