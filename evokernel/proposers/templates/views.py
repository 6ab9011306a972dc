"""Owns `View`: a strided window on a tensor, and what reshape, expand and their like make of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from evokernel.frozen import Frozen


class Guard(Frozen):
    """An index is inside where `0 <= offset + sum(index * strides) < size`."""

    strides: tuple[int, ...]
    """One per axis of the view."""
    offset: int
    size: int


class Frame(Frozen):
    """How a window moves along one axis."""

    length: int
    """Of the axis."""
    size: int
    stride: int
    padding: int
    dilation: int
    count: int
    """How many places it takes."""

    @property
    def leaves(self) -> bool:
        """Whether it reaches over a border anywhere."""
        last = (self.count - 1) * self.stride + (self.size - 1) * self.dilation - self.padding
        return self.padding > 0 or last >= self.length


class View(Frozen):
    """Element `index` of the window is element `offset + sum(index * strides)` of the tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements; 0 where the window is wider than the tensor."""
    offset: int = 0
    guards: tuple[Guard, ...] = ()
    """Where one of them says outside, the window holds zero."""

    @classmethod
    def whole(cls, shape: Sequence[int]) -> View:
        """All of a contiguous tensor."""
        return cls(shape=tuple(shape), strides=contiguous(shape))

    def expand(self, shape: Sequence[int]) -> View:
        """Broadcast to `shape`, which may have more axes in front."""
        new = len(shape) - len(self.shape)
        wider = [
            size == 1 and wide != 1 for size, wide in zip(self.shape, shape[new:], strict=True)
        ]

        def kept(strides: Sequence[int]) -> tuple[int, ...]:
            own = (0 if wide else s for s, wide in zip(strides, wider, strict=True))
            return (0,) * new + tuple(own)

        return self._walked(shape, kept)

    def permute(self, order: Sequence[int]) -> View:
        """Axes in another order."""
        shape = tuple(self.shape[i] for i in order)
        return self._walked(shape, lambda strides: tuple(strides[i] for i in order))

    def narrow(self, axis: int, start: int, length: int, step: int = 1) -> View:
        """Every `step`-th of some elements along an axis."""
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])

        def walked(strides: Sequence[int]) -> tuple[int, ...]:
            return (*strides[:axis], strides[axis] * step, *strides[axis + 1 :])

        return self._walked(shape, walked, {axis: start})

    def flip(self, axes: Sequence[int]) -> View:
        """Axes from their ends."""

        def turned(strides: Sequence[int]) -> tuple[int, ...]:
            return tuple(-s if axis in axes else s for axis, s in enumerate(strides))

        return self._walked(self.shape, turned, {a: self.shape[a] - 1 for a in axes})

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The same elements in the same order under other axes; None if no strides can say that."""
        walks = [self.strides, *(g.strides for g in self.guards)]
        split = _split(merge(self.shape, walks), [s for s in shape if s != 1])
        if split is None:
            return None
        wide = iter(split)
        filled = [next(wide) if s != 1 else (0,) * len(walks) for s in shape]
        columns = [tuple(axis[n] for axis in filled) for n in range(len(walks))]
        guards = tuple(
            Guard(strides=strides, offset=guard.offset, size=guard.size)
            for guard, strides in zip(self.guards, columns[1:], strict=True)
        )
        return View(shape=tuple(shape), strides=columns[0], offset=self.offset, guards=guards)

    def padded(self, axis: int, before: int, after: int) -> View:
        """With zeros around, none of which the tensor has."""
        shape = (*self.shape[:axis], before + self.shape[axis] + after, *self.shape[axis + 1 :])
        own = tuple(int(n == axis) for n in range(len(shape)))
        guard = Guard(strides=own, offset=-before, size=self.shape[axis])
        wide = self._walked(shape, tuple, {axis: -before})
        return wide.model_copy(update={"guards": (*wide.guards, guard)})

    def windows(self, frames: Sequence[Frame]) -> View:
        """Windows that move over the last axes: one axis each for where, and then for within."""
        lead = len(self.shape) - len(frames)
        where, within = [f.count for f in frames], [f.size for f in frames]

        def walked(strides: Sequence[int]) -> tuple[int, ...]:
            pairs = list(zip(strides[lead:], frames, strict=True))
            moves = (s * f.stride for s, f in pairs)
            return (*strides[:lead], *moves, *(s * f.dilation for s, f in pairs))

        start = {lead + n: -f.padding for n, f in enumerate(frames)}
        return self._walked((*self.shape[:lead], *where, *within), walked, start)

    def _walked(
        self,
        shape: Sequence[int],
        walk: Callable[[Sequence[int]], tuple[int, ...]],
        start: Mapping[int, int] | None = None,
    ) -> View:
        """Every axis walked in another way, from a place other than the first one."""
        moves = (start or {}).items()
        guards = tuple(
            Guard(
                strides=walk(g.strides),
                offset=g.offset + sum(n * g.strides[axis] for axis, n in moves),
                size=g.size,
            )
            for g in self.guards
        )
        return View(
            shape=tuple(shape),
            strides=walk(self.strides),
            offset=self.offset + sum(n * self.strides[axis] for axis, n in moves),
            guards=guards,
        )


def _split(runs: Sequence[Run], sizes: list[int]) -> list[tuple[int, ...]] | None:
    """Strides of axes of these sizes that together walk what the runs walk; None if none can."""
    found: list[tuple[int, ...]] = []
    for run in reversed(runs):
        left, strides = run.size, run.strides
        while left > 1:
            size = sizes.pop() if sizes else 0
            if size == 0 or left % size:
                return None
            found.append(strides)
            left, strides = left // size, tuple(s * size for s in strides)
    return None if sizes else found[::-1]


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
