"""Owns the way from convolutions to products of windows and filters, or to sums of moved images."""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

from evokernel.opgraph import Node, Ref
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.rewriting import Rewriter, tensor
from evokernel.proposers.templates.scope import each, integers, number

_MOST_TAPS = 32
"""Numbers of a window up to which each becomes a term of its own (ours)."""


def convolve(writer: Rewriter, node: Node) -> None:
    """A convolution: by windows times filters, or each channel by itself.

    Raises:
        Unsupported: its padding or its image has no such form.
    """
    image, weight = tensor(node, "input"), tensor(node, "weight")
    if len(writer.shape(image)) != len(writer.shape(weight)):
        raise Unsupported("an image without a batch axis is not covered")
    window = _Window.of(node, writer.shape(weight)[2:])
    filters, inner = writer.shape(weight)[:2]
    by_channel = inner == 1 and filters == writer.shape(image)[1] == window.groups
    is_read = writer.node(image).kind != "call" and window.stride[-1] == 1
    if by_channel and is_read and math.prod(window.sizes) <= _MOST_TAPS:
        value = _by_taps(writer, node, window)
    else:
        value = writer.patch_product(node, image, weight, **window.arguments)
    _with_bias(writer, node, value, filters, len(window.sizes))


def _with_bias(writer: Rewriter, node: Node, value: Ref, filters: int, rank: int) -> None:
    if node.argument("bias") is not None:
        bias = writer.reshape(tensor(node, "bias"), (filters, *(1,) * rank))
        writer.add(value, bias, node.name)
    writer.finish(node)


class _Window(NamedTuple):
    """How a convolution's window moves, one number per spatial axis."""

    sizes: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, node: Node, sizes: tuple[int, ...]) -> _Window:
        """Read a convolution's arguments."""
        rank = len(sizes)
        stride, dilation = (each(integers(node, name), rank) for name in ("stride", "dilation"))
        named = node.argument("padding")
        if named == "valid":
            padding: tuple[int, ...] = (0,) * rank
        elif named == "same":
            wide = [(size - 1) * far for size, far in zip(sizes, dilation, strict=True)]
            if any(w % 2 for w in wide):
                raise Unsupported("uneven `same` padding is not covered")
            padding = tuple(w // 2 for w in wide)
        else:
            padding = each(integers(node, "padding"), rank)
        return cls(sizes, stride, padding, dilation, int(number(node, "groups", 1)))

    @property
    def arguments(self) -> dict[str, tuple[int, ...]]:
        """What a `patch_product` takes."""
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}


def _by_taps(writer: Rewriter, node: Node, window: _Window) -> Ref:
    """Every channel by itself: a sum over the numbers of the window, each times a moved image."""
    image, weight = tensor(node, "input"), tensor(node, "weight")
    channels, rank = writer.shape(weight)[0], len(window.sizes)
    padded = writer.padded(image, window.padding, f"{node.name}_padded")
    flat = writer.reshape(weight, (channels, math.prod(window.sizes)))
    result, total = node.outputs[0].shape[2:], None
    for place, tap in enumerate(product(*(range(size) for size in window.sizes))):
        moved, name = padded, f"{node.name}_tap{place}"
        for axis, index in enumerate(tap):
            start, step = index * window.dilation[axis], window.stride[axis]
            moved = writer.sliced(moved, axis + 2, start, result[axis], step)
        factor = writer.reshape(writer.sliced(flat, 1, place, 1), (channels, *(1,) * rank))
        term = writer.times(moved, factor, name)
        total = term if total is None else writer.add(total, term, f"{name}_sum")
    assert total is not None
    return total


def convolve_back(writer: Rewriter, node: Node) -> None:
    """A transposed convolution that moves by one: windows of a wider image, turned round.

    Raises:
        Unsupported: it moves by more, or in groups.
    """
    image, weight = tensor(node, "input"), tensor(node, "weight")
    _, filters, *sizes = writer.shape(weight)
    rank = len(sizes)
    stride, padding, dilation = (
        each(integers(node, name), rank) for name in ("stride", "padding", "dilation")
    )
    reach = [(size - 1) * far for size, far in zip(sizes, dilation, strict=True)]
    around = tuple(r - p for r, p in zip(reach, padding, strict=True))
    if set(stride) != {1} or number(node, "groups", 1) != 1 or any(width < 0 for width in around):
        raise Unsupported("a stride, groups, or padding beyond the window is not covered")
    if len(writer.shape(image)) != rank + 2:
        raise Unsupported("an image without a batch axis is not covered")
    axes = tuple(range(2, rank + 2))
    turned = writer.flipped(writer.permuted(weight, (1, 0, *axes)), axes)
    window = _Window(tuple(sizes), stride, around, dilation, 1)
    value = writer.patch_product(node, image, turned, **window.arguments)
    _with_bias(writer, node, value, filters, rank)
