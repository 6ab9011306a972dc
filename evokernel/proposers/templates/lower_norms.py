"""Owns the rules for normalisations."""

from __future__ import annotations

from evokernel.opgraph import Node
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.lower_reductions import Rows, rows_of, shaped
from evokernel.proposers.templates.scope import Result, Rule, Scope, integers, number


def _layer_norm(scope: Scope, node: Node) -> Result:
    rank = len(scope.shape(node, "input"))
    inner = len(integers(node, "normalized_shape"))
    rows = rows_of(scope, node, "input", tuple(range(rank - inner, rank)))
    return _affine(scope, node, rows, _standardised(rows, number(node, "eps")))


def _rms_norm(scope: Scope, node: Node) -> int:
    rank = len(scope.shape(node, "input"))
    inner = len(integers(node, "normalized_shape"))
    rows = rows_of(scope, node, "input", tuple(range(rank - inner, rank)))
    power = rows.mean(rows.apply("mul", rows.x, rows.x), "mean_square")
    spread = rows.apply("add", power, rows.number(number(node, "eps")))
    return _affine(
        scope, node, rows, rows.apply("mul", rows.x, rows.apply("rsqrt", spread, hint="inv_rms"))
    )


def _affine(scope: Scope, node: Node, rows: Rows, value: int) -> int:
    for op, name in (("mul", "weight"), ("add", "bias")):
        if scope.has(node, name):
            value = rows.apply(op, value, scope.tensor(node, name))
    return value


def _standardised(rows: Rows, eps: float) -> int:
    spread = rows.apply("add", rows.variance(0), rows.number(eps))
    return rows.apply("mul", rows.centred(), rows.apply("rsqrt", spread, hint="inv_std"))


def _group_norm(scope: Scope, node: Node) -> int:
    shape = scope.shape(node, "input")
    groups = int(number(node, "num_groups"))
    grouped = (shape[0], groups, shape[1] // groups, *shape[2:])
    x = scope.symbols.reshape(scope.tensor(node, "input"), grouped)
    rows = Rows(scope, x, grouped, range(2, len(grouped)))
    value = _standardised(rows, number(node, "eps"))
    for op, name in (("mul", "weight"), ("add", "bias")):
        if scope.has(node, name):
            inner = (groups, shape[1] // groups, *(1,) * len(shape[2:]))
            value = rows.apply(op, value, scope.symbols.reshape(scope.tensor(node, name), inner))
    return scope.symbols.reshape(value, shape)


def _instance_norm(scope: Scope, node: Node) -> int:
    if not node.argument("use_input_stats"):
        return _batch_norm(scope, node)
    rows = rows_of(scope, node, "input", range(2, len(scope.shape(node, "input"))))
    return _per_channel_affine(scope, node, rows.x, _standardised(rows, number(node, "eps")))


def _per_channel_affine(scope: Scope, node: Node, x: int, value: int) -> int:
    """Times the channel's weight, plus its bias; channels are dimension 1."""
    shape = scope.symbols.shape(x)
    channel = (shape[1], *(1,) * (len(shape) - 2))
    for op, name in (("mul", "weight"), ("add", "bias")):
        if scope.has(node, name):
            per_channel = scope.symbols.reshape(scope.tensor(node, name), channel)
            value = scope.symbols.apply(op, value, per_channel)
    return value


def _batch_norm(scope: Scope, node: Node) -> int:
    if not node.argument("training") and scope.has(node, "running_mean"):
        return _known_statistics(scope, node)
    if scope.has(node, "running_mean"):
        raise Unsupported("`batch_norm` that updates its running statistics is not covered")
    shape = scope.shape(node, "input")
    rows = rows_of(scope, node, "input", (0, *range(2, len(shape))))
    return _per_channel_affine(scope, node, rows.x, _standardised(rows, number(node, "eps")))


def _known_statistics(scope: Scope, node: Node) -> int:
    """With mean and variance from outside; the factor of a channel is made once."""
    shape = scope.shape(node, "input")
    channel = (shape[1], *(1,) * (len(shape) - 2))
    apply, dtype = scope.symbols.apply, node.outputs[0].dtype

    def per_channel(name: str) -> int:
        return scope.symbols.reshape(scope.tensor(node, name), channel)

    eps = scope.symbols.number(number(node, "eps"), dtype)
    scale = apply("rsqrt", apply("add", per_channel("running_var"), eps))
    if scope.has(node, "weight"):
        scale = apply("mul", scale, per_channel("weight"))
    centred = apply("sub", scope.tensor(node, "input"), per_channel("running_mean"))
    value = apply("mul", centred, scale)
    return apply("add", value, per_channel("bias")) if scope.has(node, "bias") else value


def _cosine_similarity(scope: Scope, node: Node) -> int:
    """sum(x1 x2) over the lengths of both, neither length taken below `eps`."""
    one, two = (rows_of(scope, node, name, integers(node, "dim")) for name in ("x1", "x2"))
    least = one.number(number(node, "eps"))
    product = one.reduce("sum", one.apply("mul", one.x, two.x), "product_sum")
    lengths = [
        r.apply(
            "clamp_min",
            r.apply("sqrt", r.reduce("sum", r.apply("mul", r.x, r.x), "squares")),
            least,
        )
        for r in (one, two)
    ]
    return shaped(scope, node, one.apply("div", product, one.apply("mul", *lengths)))


NORMS: dict[str, Rule] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "cosine_similarity": _cosine_similarity,
}
"""Normalisations, taken apart into row reductions and pointwise operators."""
