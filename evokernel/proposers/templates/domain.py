"""Owns `Domain`, the grid of rows and columns that a kernel sweeps, and the walks over it."""

from __future__ import annotations

import math
from functools import cached_property

from evokernel.frozen import Frozen
from evokernel.proposers.templates.views import contiguous


class Domain(Frozen):
    """The grid that the program sweeps, in row-major order."""

    outer: tuple[int, ...]
    """Sizes of the row axes, adjacent axes merged wherever every load allows it; empty for one
    row."""
    cols: int
    """Length of a row, or of each of its lines."""
    depth: tuple[int, ...] = ()
    """Sizes of the axes of a row's lines, merged in the same way; empty for one line."""
    across: bool = False
    """Whether reductions run over a row's lines only, not over columns."""
    windows: bool = False
    """Whether a row's lines are the places in a window that moves over a tensor."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.outer)

    @property
    def lines(self) -> int:
        """Lines of columns in a row."""
        return math.prod(self.depth)

    @property
    def results(self) -> int:
        """Numbers that a reduction gives."""
        return self.rows * (self.cols if self.across else 1)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.rows * self.lines * self.cols

    @cached_property
    def in_order(self) -> Walk:
        """Where a contiguous tensor has the grid's elements."""
        strides = contiguous((*self.outer, *self.depth, self.cols))
        rows = len(self.outer)
        return Walk(strides=strides[:rows], depth=strides[rows:-1], step=strides[-1])


class Walk(Frozen):
    """A sum over the indices of a grid: `offset + row + line + column * step`."""

    offset: int = 0
    """Not zero for the second half of a split row."""
    strides: tuple[int, ...] = ()
    """One per axis of `Domain.outer`; 0 where the tensor is broadcast."""
    depth: tuple[int, ...] = ()
    """One per axis of `Domain.depth`."""
    step: int = 0
    """Distance between columns."""


class Inside(Frozen):
    """True where a walk is within [0, size)."""

    walk: Walk
    size: int


class Access(Walk):
    """Where a load reads: `source[walk]`, in elements."""

    source: int
    """Index into `Program.sources`."""
    guards: tuple[Inside, ...] = ()
    """Where one of them is false, the load gives zero and reads nothing."""

    def varies(self, *, rows: bool = False, lines: bool = False, columns: bool = False) -> bool:
        """Whether it reads something else in another row, line or column."""
        walks = (self, *(guard.walk for guard in self.guards))
        return any(
            (rows and any(w.strides)) or (lines and any(w.depth)) or (columns and w.step != 0)
            for w in walks
        )
