"""Owns the rules for operators that move no data: they change addresses only."""

from __future__ import annotations

from collections.abc import Callable

from evokernel.opgraph import Node, Ref
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.scope import Rule, Scope, integers, number
from evokernel.proposers.templates.symbols import Constant, Given, Window
from evokernel.proposers.templates.views import View


def _same(scope: Scope, node: Node) -> int:
    return scope.raw(node, node.argnames[0])


def _dropout(scope: Scope, node: Node) -> int:
    if node.argument("train") and number(node, "p") != 0:
        raise Unsupported("`dropout` in training mode is not covered")
    return scope.raw(node, "input")


def _reshape(scope: Scope, node: Node) -> int:
    return scope.symbols.reshape(scope.raw(node, "self"), node.outputs[0].shape)


def _expand(scope: Scope, node: Node) -> int:
    return scope.symbols.expand(scope.raw(node, "self"), node.outputs[0].shape)


def _broadcast(scope: Scope, node: Node) -> tuple[int, ...]:
    parts = zip(scope.all_of(node, "tensors"), node.outputs, strict=True)
    return tuple(scope.symbols.expand(symbol, out.shape) for symbol, out in parts)


def _permute(scope: Scope, node: Node) -> int:
    order = integers(node, "dims")
    return scope.symbols.view(scope.raw(node, "self"), lambda v: v.permute(order))


def _transpose(scope: Scope, node: Node) -> int:
    order = list(range(len(scope.shape(node, "self"))))
    one, two = (int(number(node, name)) for name in ("dim0", "dim1"))
    order[one], order[two] = order[two], order[one]
    return scope.symbols.view(scope.raw(node, "self"), lambda v: v.permute(order))


def _slice(scope: Scope, node: Node) -> int:
    axis, step = int(number(node, "dim")), int(number(node, "step", 1))
    size = scope.shape(node, "self")[axis]
    start = int(number(node, "start", 0))
    start = min(max(start + size if start < 0 else start, 0), size)
    length = node.outputs[0].shape[axis]
    return _narrow(scope, node, lambda v: v.narrow(axis, start, length, step))


def _narrowed(scope: Scope, node: Node) -> int:
    axis, length = int(number(node, "dim")), int(number(node, "length"))
    start = int(number(node, "start")) % scope.shape(node, "self")[axis]
    return _narrow(scope, node, lambda v: v.narrow(axis, start, length))


def _select(scope: Scope, node: Node) -> int:
    axis, shape = int(number(node, "dim")), scope.shape(node, "self")
    index = int(number(node, "index")) % shape[axis]
    return _narrow(scope, node, lambda v: _without(v.narrow(axis, index, 1), axis))


def _pieces(scope: Scope, node: Node) -> tuple[int, ...]:
    """`chunk` and `split`: each output begins where the one before it ends."""
    axis, start, parts = int(number(node, "dim")), 0, []
    for out in node.outputs:
        length = out.shape[axis]
        parts.append(_narrow(scope, node, _window(axis, start, length)))
        start += length
    return tuple(parts)


def _unbind(scope: Scope, node: Node) -> tuple[int, ...]:
    axis = int(number(node, "dim"))
    parts = []
    for index in range(len(node.outputs)):
        one = _window(axis, index, 1)
        parts.append(_narrow(scope, node, lambda v, one=one: _without(one(v), axis)))  # type: ignore[misc]
    return tuple(parts)


def _window(axis: int, start: int, length: int) -> Callable[[View], View]:
    return lambda v: v.narrow(axis, start, length)


def _without(view: View, axis: int) -> View:
    keep = [i for i in range(len(view.shape)) if i != axis]
    return view.permute(keep)


def _narrow(scope: Scope, node: Node, change: Callable[[View], View]) -> int:
    return scope.symbols.view(scope.raw(node, "self"), change)


def _flip(scope: Scope, node: Node) -> int:
    return scope.symbols.flip(scope.raw(node, "self"), integers(node, "dims"))


def _cat(scope: Scope, node: Node) -> int:
    """Tensors of zeros before and after another one: that one, padded."""
    axis, refs = int(number(node, "dim")), node.argument("tensors")
    parts = [scope.symbol(r) for r in refs if isinstance(r, Ref)] if isinstance(refs, tuple) else []
    filled = [n for n, part in enumerate(parts) if not _is_zero(scope, part)]
    if len(filled) != 1 or not isinstance(refs, tuple):
        raise Unsupported("`cat` of anything but one tensor and zeros is not covered")
    sizes = [scope.spec(r).shape[axis] for r in refs if isinstance(r, Ref)]
    (place,) = filled
    return _padded(scope, node, parts[place], {axis: (sum(sizes[:place]), sum(sizes[place + 1 :]))})


def _pad(scope: Scope, node: Node) -> int:
    """`pad` with zeros; the widths begin at the last dimension."""
    widths, rank = integers(node, "pad"), len(node.outputs[0].shape)
    fill = number(node, "value")
    if node.argument("mode") not in (None, "constant") or fill != 0:
        raise Unsupported("`pad` with anything but zeros is not covered")
    pairs = zip(widths[::2], widths[1::2], strict=True)
    around = {rank - 1 - n: pair for n, pair in enumerate(pairs) if pair != (0, 0)}
    return _padded(scope, node, scope.raw(node, "self"), around)


def _padded(scope: Scope, node: Node, symbol: int, around: dict[int, tuple[int, int]]) -> int:
    item = scope.symbols.items[symbol]
    is_given = isinstance(item, Window) and isinstance(scope.symbols.tensors[item.tensor], Given)
    if around and not is_given:
        raise Unsupported(f"`{node.op}` of computed values is not covered")
    if any(width < 0 for pair in around.values() for width in pair):
        raise Unsupported(f"`{node.op}` with negative widths is not covered")
    for axis, (before, after) in around.items():
        symbol = scope.symbols.view(symbol, _around(axis, before, after))
    return symbol


def _around(axis: int, before: int, after: int) -> Callable[[View], View]:
    return lambda v: v.padded(axis, before, after)


def _is_zero(scope: Scope, symbol: int) -> bool:
    item = scope.symbols.items[symbol]
    return isinstance(item, Constant) and item.number == 0


def _constant(scope: Scope, node: Node) -> int:
    """`zeros`, `full_like` and their like; their shape follows from where they are used."""
    fills = {"zeros": 0.0, "ones": 1.0}
    stem = node.op.removeprefix("new_").removesuffix("_like")
    value = fills[stem] if stem in fills else number(node, "fill_value", number(node, "s"))
    return scope.symbols.number(value, node.outputs[0].dtype)


VIEWS: dict[str, Rule] = {
    **{op: _same for op in ("contiguous", "clone", "detach", "alias", "lift_fresh_copy")},
    **{op: _reshape for op in ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze")},
    **{op: _pieces for op in ("chunk", "split", "split_with_sizes")},
    **{
        op: _constant
        for op in [
            "zeros",
            "ones",
            "full",
            "zeros_like",
            "ones_like",
            "full_like",
            "new_zeros",
            "new_ones",
            "new_full",
            "scalar_tensor",
        ]
    },
    "dropout": _dropout,
    "expand": _expand,
    "broadcast_to": _expand,
    "broadcast_tensors": _broadcast,
    "permute": _permute,
    "transpose": _transpose,
    "slice": _slice,
    "narrow": _narrowed,
    "select": _select,
    "unbind": _unbind,
    "flip": _flip,
    "cat": _cat,
    "pad": _pad,
    "constant_pad_nd": _pad,
}
"""Operators that only name data anew, and those that make constants."""
