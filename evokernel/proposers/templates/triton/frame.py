"""Owns `Frame`: which rows or columns a Triton program has, and how its kernel begins."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from evokernel.frozen import Frozen
from evokernel.proposers.templates.expressions import Level, Program
from evokernel.proposers.templates.triton.kernel import (
    Extent,
    Operand,
    Text,
    output_operand,
    source_operands,
)
from evokernel.proposers.templates.triton.tile import Tile, needs_wide

_NARROW = 128
"""Columns below which one block takes in several rows of them (ours)."""


def power(number: int) -> int:
    """The power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()


class Frame(Frozen):
    """The kept side of a program's blocks: single rows, several rows, or columns."""

    program: Program
    extent: Extent
    several: bool = False
    """Whether a block has several rows."""
    most: int = 1
    """The largest number of rows or columns that a block may have."""

    @property
    def across(self) -> bool:
        """Whether columns are by themselves."""
        return self.program.domain.across

    @property
    def swept(self) -> int:
        """Elements along what is swept: of a row, or lines of a column."""
        domain = self.program.domain
        return domain.lines if domain.across else domain.lines * domain.cols

    @property
    def has_rows(self) -> bool:
        """Whether there is an index of rows."""
        return bool(self.program.domain.outer)

    @property
    def is_flattened(self) -> bool:
        """Whether a block of columns may reach over the end of a row's columns."""
        return self.across and self.has_rows and self.program.domain.cols < _NARROW

    @property
    def block(self) -> str:
        """The constant with the number of rows or columns of a block; empty for single rows."""
        if self.across:
            return "COLS"
        return "ROWS" if self.several else ""

    @property
    def rows(self) -> str:
        """The number of rows within a kernel."""
        return "rows" if self.extent.is_free else self.extent.rows

    @property
    def kept(self) -> str:
        """How many numbers a reduction leaves, within a kernel."""
        cols = self.program.domain.cols
        if not self.across:
            return self.rows if self.has_rows else "1"
        return _times(self.rows, cols) if self.has_rows else str(cols)

    @property
    def blocks(self) -> str:
        """The number of blocks, within a kernel."""
        return self._count(self.rows, "tl.cdiv")

    @property
    def grid(self) -> str:
        """The number of blocks where kernels are launched."""
        return self._count(self.extent.rows, "triton.cdiv")

    @property
    def results(self) -> str:
        """How many numbers a reduction leaves, where kernels are launched."""
        cols = self.program.domain.cols
        if not self.across:
            return self.extent.rows if self.has_rows else "1"
        return _times(self.extent.rows, cols) if self.has_rows else str(cols)

    def _count(self, rows: str, ceiling: str) -> str:
        cols = self.program.domain.cols
        if not self.across:
            if not self.has_rows:
                return "1"
            return f"{ceiling}({rows}, ROWS)" if self.several else rows
        if self.is_flattened:
            return f"{ceiling}({_times(rows, cols)}, COLS)"
        columns = f"{ceiling}({cols}, COLS)"
        return f"{rows} * {columns}" if self.has_rows else columns

    @property
    def wide(self) -> bool:
        """Whether offsets along the kept side may need 64 bits."""
        return needs_wide(self.program.domain, self.extent.is_free)

    @property
    def least_programs(self) -> int:
        """Blocks that there are at least, for the sizes of the capture."""
        domain = self.program.domain
        return max(1, math.ceil(domain.results / max(self.most, 1)))

    def begin(self, text: Text, number: str) -> Tile:
        """Write the indices of what is kept; `number` is the block's."""
        if self.wide:
            is_call = number.endswith(")")
            number = f"{number}.to(tl.int64)" if is_call else f"({number} + tl.zeros((), tl.int64))"
        if self.across:
            return self._columns(text, number)
        domain, is_kept = self.program.domain, self.has_rows
        if not self.several:
            if is_kept:
                text.add(f"r = {number}")
            return Tile(shape="line", domain=domain, row="r" if is_kept else "", wide=self.wide)
        text.add(f"r = {number} * ROWS + tl.arange(0, ROWS)[:, None]")
        mask = ""
        if self.extent.is_free or domain.rows % self.most:
            text.add(f"kept_ = r < {self.rows}")
            mask = "kept_"
        return Tile(
            shape="rows", domain=domain, row="r", kept_mask=mask, sizes=("ROWS", ""), wide=self.wide
        )

    def _columns(self, text: Text, number: str) -> Tile:
        domain = self.program.domain
        cols, mask, row = domain.cols, "", "r" if self.has_rows else ""
        if self.is_flattened:
            text.add(f"j_ = {number} * COLS + tl.arange(0, COLS)[None, :]")
            text.add(f"r = j_ // {cols}", f"c = j_ % {cols}")
            if self.extent.is_free or domain.results % self.most:
                text.add(f"kept_ = j_ < {self.kept}")
                mask = "kept_"
        else:
            where = number
            if row:
                text.add(f"r = {number} // tl.cdiv({cols}, COLS)")
                where = f"{number} % tl.cdiv({cols}, COLS)"
            text.add(f"c = {where} * COLS + tl.arange(0, COLS)[None, :]")
            if cols % self.most:
                text.add(f"kept_ = c < {cols}")
                mask = "kept_"
        return Tile(
            shape="columns",
            domain=domain,
            row=row,
            column="c",
            kept_mask=mask,
            sizes=("COLS", ""),
            wide=self.wide,
        )

    def rest(self, tile: Tile) -> str:
        """The index of a number that a reduction leaves; empty where there is one."""
        if tile.shape != "columns":
            return tile.row
        if not tile.row:
            return tile.column
        return f"({tile.row} * {self.program.domain.cols} + {tile.column})"

    @property
    def rest_level(self) -> Level:
        """The level of what a reduction leaves."""
        return Level.ROW if self.has_rows or self.across else Level.SCALAR


def _times(rows: str, factor: int) -> str:
    return rows if factor == 1 else f"{rows} * {factor}"


def swept_index(tile: Tile, text: Text, start: str, size: str, length: int, exact: bool) -> Tile:
    """Write the index along what is swept.

    Args:
        tile: What is kept.
        text: The kernel.
        start: Where the block begins; empty for the start.
        size: How long it is.
        length: How much there is.
        exact: Whether no block reaches over the end.
    """
    place = {"rows": "[None, :]", "columns": "[:, None]"}.get(tile.shape, "")
    begin = f"{start} + " if start else ""
    alone = bool(start) and size == "1"
    text.add(f"k = {start}" if alone else f"k = {begin}tl.arange(0, {size}){place}")
    mask = ""
    if not exact:
        text.add(f"swept_ = k < {length}")
        mask = "swept_"
    update = {"inner": "k", "inner_mask": mask, "sizes": (tile.sizes[0], size)}
    return tile.model_copy(update=update)


def operands(program: Program, keys: Iterable[str], body: Sequence[str]) -> tuple[Operand, ...]:
    """The tensors of a program that a kernel names: sources, then outputs by the keys given."""
    outputs = [output_operand(o, key) for o, key in zip(program.outputs, keys, strict=True)]
    words = set(re.findall(r"\w+", "\n".join(body)))
    return tuple(o for o in (*source_operands(program.sources), *outputs) if o.name in words)


def rows_argument(frame: Frame, body: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The number of rows, where a kernel asks for it and it is free."""
    asked = frame.extent.is_free and re.search(r"\brows\b", "\n".join(body))
    return (("rows", frame.extent.rows),) if asked else ()
