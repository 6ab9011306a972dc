"""Owns how a product's operands reach its tiles: in place, or packed by block or as a whole."""

from __future__ import annotations

from typing import Literal, Protocol

from evokernel.proposers.templates.addressing import element
from evokernel.proposers.templates.contraction import Matrix, Patches
from evokernel.proposers.templates.domain import Domain, Walk
from evokernel.proposers.templates.lines import Lines

LINE = 16
"""Numbers by which memory is made longer, so that it can begin at a cache line."""


class Panel(Protocol):
    """One operand, as the loops of a contraction see it."""

    def shared(self, text: Lines) -> list[str]:
        """Declare what all threads use, before they start; returns what has to be freed."""

    @property
    def own(self) -> str:
        """How many numbers a thread keeps for itself, as a C++ expression; empty for none."""

    def fill(self, text: Lines) -> None:
        """Let all threads fill what they share."""

    def begin(self, text: Lines) -> None:
        """Say where the product `batch_` begins."""

    def pack(self, text: Lines) -> None:
        """Pack what a block needs of the depth from `begin_` on."""

    def of_tile(self, text: Lines) -> str:
        """Arguments of `multiply`: where a tile's part begins, and its strides."""


def memory(text: Lines, kind: str, name: str, size: str) -> str:
    """Declare memory that begins at a cache line; returns what has to be freed."""
    text.add(
        f"{kind}* const {name}memory_ = new {kind}[{size} + {LINE}];",
        f"{kind}* const {name} = tiles::aligned({name}memory_);",
    )
    return f"{name}memory_"


def place(name: str, batch: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> str:
    """Where the matrix of product `batch_` begins, as a C++ expression."""
    start = element(Domain(outer=batch, cols=1), Walk(offset=offset, strides=strides), "batch_")
    return name if start == "0" else f"{name} + {start}"


def _tiled(size: str, tile: str) -> str:
    """Declare a size in whole tiles."""
    return f"const int64_t {size}_TILED_ = tiles::whole({size}_, {tile});"


class MatrixPanel:
    """An operand whose elements lie at fixed distances."""

    def __init__(
        self,
        side: Literal["left", "right"],
        matrix: Matrix,
        how: str,
        kind: str,
        start: str,
    ) -> None:
        """Describe an operand.

        Args:
            side: Which one.
            matrix: Its elements.
            how: `none`, `block` or `whole`.
            kind: C++ type of a number.
            start: Where its matrix of product `batch_` begins.
        """
        self._side, self._matrix, self._how = side, matrix, how
        self._kind, self._start = kind, start
        self._is_stack = any(matrix.batch)
        is_left = side == "left"
        self._tile, self._size = ("TILE_ROWS", "ROWS") if is_left else ("TILE_COLS", "COLS")
        self._stride = matrix.down if is_left else matrix.across
        """From one row of tiles to the next, of the left operand; column, of the right one."""
        self._along = matrix.across if is_left else matrix.down
        """From one step along the depth to the next."""
        self._first, self._count = ("row_", "rows_") if is_left else ("col_", "cols_")
        self._index = "i_" if is_left else "j_"

    def shared(self, text: Lines) -> list[str]:
        """See `Panel.shared`."""
        if self._how != "whole":
            return []
        text.add(_tiled(self._size, self._tile))
        size = f"{self._tiled} * DEPTH_"
        return [memory(text, self._kind, f"{self._side}_whole_", size)]

    @property
    def _tiled(self) -> str:
        """Rows or columns of all matrices, up to whole tiles."""
        return f"{'STACK_ * ' if self._is_stack else ''}{self._size}_TILED_"

    @property
    def own(self) -> str:
        """See `Panel.own`."""
        parts = {"none": self._tile, "block": f"{self._size}_BLOCK_"}
        return f"{parts[self._how]} * DEPTH_BLOCK_" if self._how in parts else ""

    def fill(self, text: Lines) -> None:
        """See `Panel.fill`."""
        if self._how != "whole":
            return
        text.add("#pragma omp for schedule(static)")
        with text.block(f"for (int64_t tile_ = 0; tile_ < {self._tiled} / {self._tile}; ++tile_)"):
            at = f"tile_ * {self._tile}"
            if self._is_stack:
                text.add(f"const int64_t batch_ = {at} / {self._size}_TILED_;")
                at += f" % {self._size}_TILED_"
            text.add(f"const int64_t at_ = {at};")
            self._call(
                text,
                f"tiles::least({self._tile}, {self._size}_ - at_)",
                "DEPTH_",
                f"{self._start} + at_ * {self._stride}",
                f"{self._side}_whole_ + tile_ * {self._tile} * DEPTH_",
            )

    def begin(self, text: Lines) -> None:
        """See `Panel.begin`."""
        if self._how != "whole":
            text.add(f"const {self._kind}* const {self._side}_at_ = {self._start};")

    def pack(self, text: Lines) -> None:
        """See `Panel.pack`."""
        start = f"{self._side}_at_ + begin_ * {self._along} + {self._first} * {self._stride}"
        panel = f"{self._side}_panel_"
        if self._how == "block":
            self._call(text, self._count, "depth_", start, panel)
        elif self._how == "none":
            # Where the block ends within a tile, what is missing must not be read.
            even = f"even_{self._count}"
            text.add(f"const int64_t {even} = {self._count} / {self._tile} * {self._tile};")
            rest, start = f"{self._count} - {even}", f"{start} + {even} * {self._stride}"
            self._call(text, rest, "depth_", start, panel)

    def _call(self, text: Lines, count: str, depth: str, start: str, to: str) -> None:
        sizes = f"{count}, {depth}" if self._side == "left" else f"{depth}, {count}"
        strides = f"{self._matrix.down}, {self._matrix.across}"
        text.add(f"tiles::pack_{self._side}({sizes}, {start}, {strides}, {to});")

    def of_tile(self, text: Lines) -> str:
        """See `Panel.of_tile`."""
        packed = "1, TILE_ROWS" if self._side == "left" else "TILE_COLS"
        at = f"{self._first} + {self._index}"
        if self._how == "whole":
            first = f"batch_ * {self._size}_TILED_ + " if self._is_stack else ""
            start = f"{self._side}_whole_ + ({first}{at}) * DEPTH_ + begin_ * {self._tile}"
            return f"{start}, {packed}"
        panel = f"{self._side}_panel_"
        if self._how == "block":
            return f"{panel} + {self._index} * depth_, {packed}"
        is_edge = f"is_edge_{self._index}"
        text.add(f"const bool {is_edge} = {self._index} >= even_{self._count};")
        start = f"{self._side}_at_ + begin_ * {self._along} + ({at}) * {self._stride}"
        lying = (self._stride, self._along) if self._side == "left" else (self._along,)
        each = zip((panel, *packed.split(", ")), (start, *lying), strict=True)
        return ", ".join(f"{is_edge} ? {edge} : {usual}" for edge, usual in each)


class PatchPanel:
    """The windows of images as a right operand."""

    def __init__(self, patches: Patches, kind: str, name: str, batch: tuple[int, ...]) -> None:
        """Describe the windows.

        Args:
            patches: Images and windows.
            kind: C++ type of a number.
            name: What the function calls the images.
            batch: Sizes of the axes of the stack.
        """
        self._patches, self._kind, self._name = patches, kind, name
        self._start = place(name, batch, 0, patches.batch)
        self._planes = f"STACK_ * {patches.channels}"
        self._has_border = any(patches.padding)

    @property
    def own(self) -> str:
        """See `Panel.own`."""
        return "COLS_BLOCK_ * DEPTH_BLOCK_"

    def shared(self, text: Lines) -> list[str]:
        """See `Panel.shared`."""
        text.add(
            _tiled("COLS", "TILE_COLS"),
            "int64_t* const taps_ = new int64_t[DEPTH_];",
            f"for (int64_t k = 0; k < DEPTH_; ++k) taps_[k] = {self._tap};",
            "int64_t* const places_ = new int64_t[COLS_TILED_];",
        )
        with text.block("for (int64_t j = 0; j < COLS_TILED_; ++j)"):
            text.add(
                "const int64_t c = tiles::least(j, COLS_ - 1);", f"places_[j] = {self._place};"
            )
        if not self._has_border:
            return ["taps_", "places_"]
        size = f"{self._planes} * {self._steps[0]}"
        return ["taps_", "places_", memory(text, self._kind, "padded_", size)]

    @property
    def _tap(self) -> str:
        """Distance of number `k` of a window from the window's beginning."""
        volume, plane, line = self._steps
        z, y, x = self._patches.dilation
        deep, high, wide = self._patches.window
        return (
            f"k / {deep * high * wide} * {volume} + k / {high * wide} % {deep} * {z * plane} + "
            f"k / {wide} % {high} * {y * line} + k % {wide} * {x}"
        )

    @property
    def _place(self) -> str:
        """Where the window of column `c` begins."""
        _, plane, line = self._steps
        z, y, x = self._patches.stride
        _, high, wide = self._patches.result
        return (
            f"c / {high * wide} * {z * plane} + c / {wide} % {high} * {y * line} + c % {wide} * {x}"
        )

    @property
    def _steps(self) -> tuple[int, int, int]:
        """From one channel, plane and line of a padded image to the next."""
        deep, high, wide = self._patches.padded
        return deep * high * wide, high * wide, wide

    def fill(self, text: Lines) -> None:
        """Copy every channel of every image into the middle of zeros."""
        if not self._has_border:
            return
        volume, _, wide = self._steps
        deep, high, long = self._patches.size
        pad_z, pad_y, pad_x = self._patches.padding
        text.add("#pragma omp for schedule(static)")
        with text.block(f"for (int64_t channel_ = 0; channel_ < {self._planes}; ++channel_)"):
            text.add(
                f"{self._kind}* const to_ = padded_ + channel_ * {volume};",
                f"const {self._kind}* from_ = {self._name} + channel_ * {deep * high * long};",
                f"for (int64_t i = 0; i < {volume}; ++i) to_[i] = 0;",
            )
            each = f"for (int64_t line_ = 0; line_ < {deep * high}; ++line_, from_ += {long})"
            with text.block(each):
                text.add(
                    f"{self._kind}* const into_ = to_ + ((line_ / {high} + {pad_z}) * "
                    f"{self._patches.padded[1]} + line_ % {high} + {pad_y}) * {wide} + {pad_x};",
                    f"for (int64_t x = 0; x < {long}; ++x) into_[x] = from_[x];",
                )

    def begin(self, text: Lines) -> None:
        """See `Panel.begin`."""
        start = self._start
        if self._has_border:
            start = f"padded_ + batch_ * {self._patches.channels * self._steps[0]}"
        text.add(f"const {self._kind}* const right_at_ = {start};")

    def pack(self, text: Lines) -> None:
        """See `Panel.pack`."""
        tables = "taps_ + begin_, places_ + col_"
        text.add(f"tiles::pack_patches(depth_, cols_, right_at_, {tables}, right_panel_);")

    def of_tile(self, text: Lines) -> str:
        """See `Panel.of_tile`."""
        return "right_panel_ + j_ * depth_, TILE_COLS"
