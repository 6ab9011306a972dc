"""Owns `Tile`: what the indices of a kernel's blocks are called, and where its tensors lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from evokernel.frozen import Frozen
from evokernel.proposers.templates.domain import Domain, Inside, Walk

Shape = Literal["flat", "line", "plane", "rows", "columns"]

_FAR = 2**31
"""Offsets from here on need 64 bits."""


class Tile(Frozen):
    """Names of indices and masks, for one of five shapes of blocks.

    `flat` has one index over all elements and reduces nothing; `line` is one row, its elements
    along the only axis; `plane` is one row too, its lines down and their columns across; `rows` has
    several rows down and a part of each across; `columns` has several columns across and a part of
    their lines down.
    """

    shape: Shape
    domain: Domain
    row: str = ""
    """Index of the row (of `flat`: of the element); empty where there is one row."""
    inner: str = ""
    """Index within a row: of its elements; in `plane` and `columns`, of its lines."""
    column: str = ""
    """Index of the column; `plane` and `columns` only."""
    kept_mask: str = ""
    """Which rows or columns exist; empty if all do."""
    inner_mask: str = ""
    """Which elements of a row exist, or which lines; empty if all do."""
    column_mask: str = ""
    """Which columns exist in `plane`; empty if all do."""
    sizes: tuple[str, str] = ("", "")
    """Expressions of the block's sizes: what is kept, what is swept."""
    wide: bool = False
    """Whether offsets may need 64 bits."""

    @property
    def axis(self) -> int | None:
        """The axis of a block that reductions run along; None for all."""
        return {"rows": 1, "plane": None}.get(self.shape, 0)

    @property
    def keeps(self) -> bool:
        """Whether blocks keep a reduced axis."""
        return self.shape in ("rows", "columns")

    @property
    def block(self) -> str:
        """The shape of a block, as Triton takes it."""
        kept, swept = self.sizes
        pairs = {"rows": f"[{kept}, {swept}]", "columns": f"[{swept}, {kept}]"}
        pairs["plane"] = pairs["rows"]
        return pairs.get(self.shape, f"[{swept or kept}]")

    @property
    def kept(self) -> str:
        """The shape of what a reduction leaves; empty for one number."""
        kept = self.sizes[0]
        return {"rows": f"[{kept}, 1]", "columns": f"[1, {kept}]"}.get(self.shape, "")

    def reduced(self, call: str, value: str, *more: str) -> str:
        """A call of Triton that reduces a block."""
        parts = [value, str(self.axis), *more, *["keep_dims=True"] * self.keeps]
        return f"{call}({', '.join(parts)})"

    def offset(self, walk: Walk) -> str:
        """Where an element lies, as a sum; empty for the first element of a tensor."""
        terms = [*self._row_terms(walk), *self._inner_terms(walk)]
        if walk.offset:
            terms.append(str(walk.offset))
        return " + ".join(terms).replace("+ -", "- ")

    def place(self, name: str, walk: Walk) -> str:
        """The pointer to an element."""
        offset = self.offset(walk)
        return f"{name} + {offset}" if offset else name

    def mask(self, access: Walk, guards: Sequence[Inside] = ()) -> str:
        """Which of the elements that are read or written exist; empty if all do."""
        walks = [access, *(guard.walk for guard in guards)]
        parts = []
        if self.kept_mask and any(self._moves_kept(w) for w in walks):
            parts.append(self.kept_mask)
        if self.inner_mask and any(self._moves_inner(w) for w in walks):
            parts.append(self.inner_mask)
        if self.column_mask and any(w.step for w in walks):
            parts.append(self.column_mask)
        parts += [self.inside(guard) for guard in guards]
        return " & ".join(parts)

    def inside(self, guard: Inside) -> str:
        """Whether a place exists."""
        where = self.offset(guard.walk) or "0"
        return f"({where} >= 0) & ({where} < {guard.size})"

    def all_masks(self) -> str:
        """Which elements of a block exist; empty if all do."""
        return " & ".join(filter(None, (self.kept_mask, self.swept_masks)))

    @property
    def swept_masks(self) -> str:
        """Which elements of a row exist; empty if all do."""
        return " & ".join(filter(None, (self.inner_mask, self.column_mask)))

    @property
    def has_columns(self) -> bool:
        """Whether lines and columns have an index each."""
        return self.shape in ("plane", "columns")

    def _moves_kept(self, walk: Walk) -> bool:
        if self.shape == "flat":
            return bool(self.offset(walk.model_copy(update={"offset": 0})))
        by_column = self.shape == "columns" and walk.step != 0
        return by_column or any(walk.strides)

    def _moves_inner(self, walk: Walk) -> bool:
        if self.shape == "flat":
            return False
        return any(walk.depth) or (not self.has_columns and walk.step != 0)

    def _row_terms(self, walk: Walk) -> list[str]:
        outer = self.domain.outer
        if self.shape == "flat":
            sizes, strides = (*outer, self.domain.cols), (*walk.strides, walk.step)
            return terms(self.row, sizes, strides, self.wide)
        return terms(self.row, outer, walk.strides, self.wide)

    def _inner_terms(self, walk: Walk) -> list[str]:
        depth, cols = self.domain.depth, self.domain.cols
        if self.shape == "flat":
            return []
        if not self.has_columns:
            return terms(self.inner, (*depth, cols), (*walk.depth, walk.step))
        return [
            *terms(self.inner, depth, walk.depth),
            *terms(self.column, (cols,), (walk.step,)),
        ]


def terms(
    index: str, sizes: Sequence[int], strides: Sequence[int], wide: bool = False
) -> list[str]:
    """A walk over axes as summands, by one index over all of them.

    Args:
        index: Name of the index.
        sizes: Of the axes, outermost first; the index never runs over the first one.
        strides: One per axis.
        wide: Whether the index has 64 bits already, if that is needed.
    """
    found: list[str] = []
    span = sum((size - 1) * abs(stride) for size, stride in zip(sizes, strides, strict=True))
    below = 1
    for size, stride, is_first in _merged(sizes, strides):
        part = index if below == 1 else f"{index} // {below}"
        if not is_first:
            part = f"{part} % {size}"
        below *= size
        if stride == 0 or size == 1:
            continue
        if span >= _FAR and not wide:
            part = f"({part}).to(tl.int64)" if part != index else f"{part}.to(tl.int64)"
        elif part != index:
            part = f"({part})"
        found.append(part if stride == 1 else f"{part} * {stride}")
    return found[::-1]


def _merged(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, bool]]:
    """Axes from the innermost on, joined wherever one walks on from the end of the other."""
    found: list[tuple[int, int, bool]] = []
    for axis in reversed(range(len(sizes))):
        size, stride = sizes[axis], strides[axis]
        if found and (stride == found[-1][0] * found[-1][1]):
            found[-1] = (found[-1][0] * size, found[-1][1], False)
        else:
            found.append((size, stride, False))
    if found:
        found[-1] = (*found[-1][:2], True)
    return found


def needs_wide(domain: Domain, is_free: bool) -> bool:
    """Whether offsets along the rows may need 64 bits."""
    return is_free or math.prod(domain.outer) * domain.lines * domain.cols >= _FAR // 4
