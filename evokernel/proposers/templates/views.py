"""Owns `View`: a strided window on a tensor, and what reshape, expand and their like make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evokernel.frozen import Frozen


class View(Frozen):
    """Element `index` of the window is element `offset + sum(index * strides)` of the tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements; 0 where the window is wider than the tensor."""
    offset: int = 0

    @classmethod
    def whole(cls, shape: Sequence[int]) -> View:
        """All of a contiguous tensor."""
        return cls(shape=tuple(shape), strides=contiguous(shape))

    def expand(self, shape: Sequence[int]) -> View:
        """Broadcast to `shape`, which may have more axes in front."""
        new = len(shape) - len(self.shape)
        kept = tuple(
            0 if size == 1 and wide != 1 else stride
            for size, stride, wide in zip(self.shape, self.strides, shape[new:], strict=True)
        )
        return View(shape=tuple(shape), strides=(0,) * new + kept, offset=self.offset)

    def permute(self, order: Sequence[int]) -> View:
        """Axes in another order."""
        return View(
            shape=tuple(self.shape[i] for i in order),
            strides=tuple(self.strides[i] for i in order),
            offset=self.offset,
        )

    def narrow(self, axis: int, start: int, length: int, step: int = 1) -> View:
        """Every `step`-th of some elements along an axis."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[axis]
        shape[axis], strides[axis] = length, strides[axis] * step
        return View(shape=tuple(shape), strides=tuple(strides), offset=offset)

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The same elements in the same order under other axes; None if no strides can say that."""
        runs = merge(self.shape, [self.strides])
        strides: list[int] = []
        sizes = [s for s in shape if s != 1][::-1]
        for run in reversed(runs):
            left, stride = run.size, run.strides[0]
            while left > 1:
                size = sizes.pop(0) if sizes else 0
                if size == 0 or left % size:
                    return None
                strides.append(stride)
                left, stride = left // size, stride * size
        wide = iter(reversed(strides))
        filled = tuple(next(wide) if s != 1 else 0 for s in shape)
        return View(shape=tuple(shape), strides=filled, offset=self.offset)


class Run(Frozen):
    """Adjacent axes that are one axis to every tensor."""

    axes: tuple[int, ...]
    size: int
    strides: tuple[int, ...]
    """Innermost stride, for each tensor."""


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, 0 where an axis has one element."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return tuple(0 if size == 1 else s for size, s in zip(shape, strides, strict=True))


def merge(
    shape: Sequence[int], tensors: Sequence[Sequence[int]], border: int | None = None
) -> list[Run]:
    """Joins adjacent axes wherever all tensors walk them evenly; axes of size one vanish.

    Args:
        shape: Sizes of the axes.
        tensors: For each tensor its strides along the axes.
        border: No run reaches across the axis of this number, from either side.
    """
    runs: list[Run] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        strides = tuple(t[axis] for t in tensors)
        previous = runs[-1] if runs else None
        if (
            previous is not None
            and not (border is not None and previous.axes[0] < border <= axis)
            and all(p == s * size for p, s in zip(previous.strides, strides, strict=True))
        ):
            axes, whole = (*previous.axes, axis), previous.size * size
            runs[-1] = Run(axes=axes, size=whole, strides=strides)
        else:
            runs.append(Run(axes=(axis,), size=size, strides=strides))
    return runs
