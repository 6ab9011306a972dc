"""Owns the rules for pooling: reductions over windows that move over the last dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evokernel.opgraph import Node
from evokernel.proposers.templates.expressions import Reduction, Unsupported
from evokernel.proposers.templates.lower_reductions import Rows, shaped
from evokernel.proposers.templates.scope import Result, Rule, Scope, each, integers, number
from evokernel.proposers.templates.views import Frame, Guard


def _max_pool(rank: int) -> Rule:
    def rule(scope: Scope, node: Node) -> Result:
        frames = _frames(scope, node, rank, integers(node, "dilation") or (1,))
        result = _pooled(scope, node, "max", scope.raw(node, "self"), frames)
        return result if len(node.outputs) == 1 else (result, None)

    return rule


def _avg_pool(rank: int) -> Rule:
    def rule(scope: Scope, node: Node) -> int:
        frames, x = _frames(scope, node, rank, (1,)), scope.raw(node, "self")
        total = _pooled(scope, node, "sum", x, frames)
        return scope.symbols.apply("div", total, _divisor(scope, node, frames, x))

    return rule


def _frames(scope: Scope, node: Node, rank: int, dilation: tuple[int, ...]) -> tuple[Frame, ...]:
    """The windows of a pool over the last `rank` dimensions."""
    sizes = integers(node, "kernel_size")
    stride = integers(node, "stride") if node.argument("stride") is not None else ()
    found = [each(v, rank) for v in (sizes, stride or sizes, integers(node, "padding"), dilation)]
    lengths, counts = (
        shape[len(shape) - rank :] for shape in (scope.shape(node, "self"), node.outputs[0].shape)
    )
    return tuple(
        Frame(length=n, size=k, stride=s, padding=p, dilation=d, count=c)
        for n, k, s, p, d, c in zip(lengths, *found, counts, strict=True)
    )


def _pooled(scope: Scope, node: Node, op: Reduction, x: int, frames: Sequence[Frame]) -> int:
    """Every window to one number, in the result's shape."""
    windows = scope.symbols.view(x, lambda v: v.windows(frames))
    return _over_windows(scope, op, windows, frames, node.op)


def _over_windows(
    scope: Scope, op: Reduction, windows: int, frames: Sequence[Frame], hint: str
) -> int:
    rank = len(scope.symbols.shape(windows))
    within = [rank - len(frames) + n for n in range(len(frames))]
    guards = tuple(
        Guard(strides=_walk(rank, within[n] - len(frames), within[n], f), offset=-f.padding,
              size=f.length)
        for n, f in enumerate(frames)
        if f.leaves
    )  # fmt: skip
    dims = [d for d, f in zip(within, frames, strict=True)]
    return scope.symbols.reduce(op, windows, dims, hint, guards=guards, pools=True)


def _walk(rank: int, where: int, within: int, frame: Frame) -> tuple[int, ...]:
    strides = {where: frame.stride, within: frame.dilation}
    return tuple(strides.get(axis, 0) for axis in range(rank))


def _divisor(scope: Scope, node: Node, frames: Sequence[Frame], x: int) -> int:
    """What a sum is divided by: a number, or how many elements the window found."""
    dtype = scope.symbols.dtype(x)
    override = node.argument("divisor_override")
    if override is not None:
        return scope.symbols.number(int(number(node, "divisor_override")), dtype)
    everything = math.prod(f.size for f in frames)
    if not any(f.leaves for f in frames):
        return scope.symbols.number(everything, dtype)
    if node.argument("count_include_pad") is False:
        shape = scope.symbols.shape(x)
        ones = scope.symbols.filled(1, dtype, (*shape[: len(shape) - len(frames)],
                                               *(f.count for f in frames),
                                               *(f.size for f in frames)))  # fmt: skip
        return _over_windows(scope, "sum", ones, frames, "count")
    for f in frames:
        if (f.count - 1) * f.stride + f.size > f.length + 2 * f.padding:
            raise Unsupported(
                f"`{node.op}` with `ceil_mode`, whose last window reaches over the padding, is "
                "not covered"
            )
    return scope.symbols.number(everything, dtype)


def _adaptive(op: Reduction, rank: int) -> Rule:
    """Windows of equal size, as many as the result has elements."""

    def rule(scope: Scope, node: Node) -> Result:
        shape, result = scope.shape(node, "self"), node.outputs[0].shape
        lengths, counts = shape[len(shape) - rank :], result[len(result) - rank :]
        if any(n % c for n, c in zip(lengths, counts, strict=True)):
            raise Unsupported(
                f"`{node.op}` from {list(lengths)} to {list(counts)}, with windows of different "
                "sizes, is not covered"
            )
        x = scope.raw(node, "self")
        if all(c == 1 for c in counts):
            value = _whole(scope, node, op, x, rank)
        else:
            frames = [
                Frame(length=n, size=n // c, stride=n // c, padding=0, dilation=1, count=c)
                for n, c in zip(lengths, counts, strict=True)
            ]
            value = _pooled(scope, node, op, x, frames)
            if op == "sum":
                count = math.prod(lengths) // math.prod(counts)
                divisor = scope.symbols.number(count, scope.symbols.dtype(x))
                value = scope.symbols.apply("div", value, divisor)
        return value if len(node.outputs) == 1 else (value, None)

    return rule


def _whole(scope: Scope, node: Node, op: Reduction, x: int, rank: int) -> int:
    """One window of everything: a reduction over the last dimensions."""
    shape = scope.symbols.shape(x)
    rows = Rows(scope, x, shape, range(len(shape) - rank, len(shape)))
    value = rows.mean(rows.x, "mean") if op == "sum" else rows.reduce(op, rows.x, "max")
    return shaped(scope, node, value)


POOLS: dict[str, Rule] = {
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _max_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive("sum", n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive("max", n) for n in (1, 2, 3)},
}
"""Pools; the places of maxima are not covered."""
