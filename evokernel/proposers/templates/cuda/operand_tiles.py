"""Owns how a block of a product brings its part of an operand into shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.addressing import element
from evokernel.proposers.templates.contraction import Matrix, Patches
from evokernel.proposers.templates.cuda.spelling import C_TYPES
from evokernel.proposers.templates.cuda.tiles import THREADS, Tile
from evokernel.proposers.templates.domain import Domain, Walk

Side = Literal["left", "right"]


class OperandTile:
    """Writes the loads of one side.

    Args:
        side: Which operand.
        operand: How it lies.
        dtype: Its elements' in memory.
        sizes: Axes of the stack, the length of the side's own axis, and that of the summed one.
        tile: The block's tile.
    """

    def __init__(
        self,
        side: Side,
        operand: Matrix | Patches,
        dtype: str,
        sizes: tuple[tuple[int, ...], int, int],
        tile: Tile,
    ) -> None:
        self._side = side
        self._operand = operand
        self._dtype = dtype
        self._batch, self._span, self._depth = sizes
        self._tile = tile
        self._length = tile.rows if side == "left" else tile.cols
        self.by_depth = tile.is_tensor and self._runs_along_depth
        """Whether neighbours in shared memory are neighbours along the depth."""
        self.way = self._way()
        """`wide`: sixteen bytes at a time on the side; `each`: four; `plain`: by registers."""

    @property
    def pitch(self) -> int:
        """Elements from row to row in shared memory."""
        return self._tile.pitch(self._tile.depth if self.by_depth else self._length)

    @property
    def elements(self) -> int:
        """Elements of a stage."""
        return self._tile.elements(self._length, self.by_depth)

    @property
    def parameter(self) -> str:
        """The kernel's parameter."""
        return f"const {C_TYPES[self._dtype]}* __restrict__ {self._side}_"

    @property
    def table_bytes(self) -> int:
        """Shared memory beside the stages, for what is known of windows beforehand."""
        return 8 * self._depth if isinstance(self._operand, Patches) else 0

    def begin(self, table: int) -> Iterator[str]:
        """Where the stack's matrix begins; `table` is where in shared memory there is room."""
        strides = self._operand.batch
        offset = self._operand.offset if isinstance(self._operand, Matrix) else 0
        domain = Domain(outer=self._batch, cols=1)
        text = element(domain, Walk(offset=offset, strides=strides), "batch_")
        start = re.sub(r"\* (\d+)", r"* \1LL", text)
        yield f"const {C_TYPES[self._dtype]}* {self._side}_from_ = {self._side}_ + {start};"
        if isinstance(self._operand, Patches):
            yield from self._taps(self._operand, table)
        if self.way == "plain":
            yield f"{C_TYPES[self._tile.dtype]} {self._side}_kept_[{self._count}];"

    def fetch(self, stage: str, step: str) -> Iterator[str]:
        """Statements that begin to bring a step of the depth into a stage."""
        # What registers keep needs indices that are known; what is only passed on does not.
        yield "#pragma unroll" if self.way == "plain" else "#pragma unroll 4"
        yield f"for (int i_ = 0; i_ < {self._count}; ++i_) {{"
        yield from self._place(step)
        yield from self._address()
        target = self._target(stage)
        if self.way == "wide":
            yield f"  gpu::copy16({target}, from_, there_);"
        elif self.way == "each":
            yield f"  gpu::copy4({target}, from_, there_);"
        else:
            yield f"  {self._side}_kept_[i_] = {self._zero};"
            yield f"  if (there_) {self._side}_kept_[i_] = {self._converted('*from_')};"
        yield "}"

    def drop(self, stage: str, step: str) -> Iterator[str]:
        """Statements that put what registers hold into a stage."""
        if self.way != "plain":
            return
        yield "#pragma unroll"
        yield f"for (int i_ = 0; i_ < {self._count}; ++i_) {{"
        yield from self._place(step)
        yield f"  *({self._target(stage)}) = {self._side}_kept_[i_];"
        yield "}"

    # How it lies.

    @property
    def _runs_along_depth(self) -> bool:
        if isinstance(self._operand, Patches):
            return False
        down, across = self._operand.down, self._operand.across
        along, own = (across, down) if self._side == "left" else (down, across)
        return along == 1 or own != 1

    @property
    def _strides(self) -> tuple[int, int]:
        """Along its own axis, and along the depth."""
        assert isinstance(self._operand, Matrix)
        down, across = self._operand.down, self._operand.across
        return (down, across) if self._side == "left" else (across, down)

    def _way(self) -> Literal["wide", "each", "plain"]:
        same = self._dtype == self._tile.dtype
        if same and isinstance(self._operand, Matrix):
            width = 16 // itemsize(self._dtype)
            own, along = self._strides
            fast, slow = (along, own) if self._runs_along_depth else (own, along)
            length = self._depth if self._runs_along_depth else self._span
            numbers = (slow, length, self._operand.offset, *self._operand.batch)
            direct = self.by_depth == self._runs_along_depth
            if fast == 1 and direct and all(number % width == 0 for number in numbers):
                return "wide"
        return "each" if same and itemsize(self._dtype) == 4 else "plain"

    @property
    def _width(self) -> int:
        return 16 // itemsize(self._dtype) if self.way == "wide" else 1

    @property
    def _count(self) -> int:
        """Accesses of a thread per stage."""
        return max(self._length * self._tile.depth // self._width // THREADS, 1)

    # Statements.

    def _place(self, step: str) -> Iterator[str]:
        """Which element of the tile: `s_` along its own axis, `k_` along the depth."""
        depth, length, width = self._tile.depth, self._length, self._width
        yield f"  const int q_ = threadIdx.x + i_ * {THREADS};"
        if length * depth // width < THREADS:
            yield f"  if (q_ >= {length * depth // width}) continue;"
        times = f" * {width}" if width > 1 else ""
        if self._runs_along_depth:
            yield f"  const int k_ = q_ % {depth // width}{times}, s_ = q_ / {depth // width};"
        else:
            yield f"  const int s_ = q_ % {length // width}{times}, k_ = q_ / {length // width};"
        first = "row0_" if self._side == "left" else "col0_"
        yield f"  const int own_ = {first} + s_, deep_ = {step} * {depth} + k_;"

    def _address(self) -> Iterator[str]:
        inside = f"own_ < {self._span} && deep_ < {self._depth}"
        start = f"{self._side}_from_"
        if isinstance(self._operand, Patches):
            yield from self._patch(self._operand, inside)
            return
        own, along = self._strides
        wide = "LL" if own * self._span + along * self._depth >= 2**31 else ""
        place = f"own_ * {own}{wide} + deep_ * {along}{wide}"
        yield f"  const bool there_ = {inside};"
        yield f"  const {C_TYPES[self._dtype]}* from_ = {start} + (there_ ? {place} : 0);"

    # Windows of images.

    def _taps(self, patches: Patches, table: int) -> Iterator[str]:
        """A table of the places in a window: how far off each lies, and its steps from there."""
        channels, places = patches.channels, _volume(patches.window)
        _, high, wide = patches.window
        yield f"int2* const taps_ = reinterpret_cast<int2*>(shared_ + {table});"
        loop = f"for (int n_ = threadIdx.x; n_ < {channels * places}; n_ += {THREADS})"
        yield f"{loop} {{"
        within = (f"n_ % {places} / {high * wide}", f"n_ / {wide} % {high}", f"n_ % {wide}")
        for name, place, dilation in zip("zyx", within, patches.dilation, strict=True):
            yield f"  const int {name}_ = {place} * {dilation};"
        _, height, width = patches.size
        far = f"n_ / {places} * {_volume(patches.size)} + (z_ * {height} + y_) * {width} + x_"
        yield f"  taps_[n_] = make_int2({far}, z_ << 20 | y_ << 10 | x_);"
        yield "}"
        yield "__syncthreads();"

    def _patch(self, patches: Patches, inside: str) -> Iterator[str]:
        """An element of a window: where the window stands, and which of its places it is."""
        _, height, width = patches.result
        stands = (f"own_ / {height * width}", f"own_ / {width} % {height}", f"own_ % {width}")
        tests, far = [inside], "0"
        uneven = self._depth % self._tile.depth
        tap = f"min(deep_, {self._depth - 1})" if uneven else "deep_"
        yield f"  const int2 tap_ = taps_[{tap}];"
        for axis, (name, stand) in enumerate(zip("zyx", stands, strict=True)):
            size, stride, padding = (
                each[axis] for each in (patches.size, patches.stride, patches.padding)
            )
            far = f"({far}) * {size} + {name}_"
            yield f"  const int {name}_ = {stand} * {stride} - {padding};"
            if patches.window[axis] > 1 or padding:
                step = f"(tap_.y >> {20 - 10 * axis} & 1023)"
                tests.append(f"static_cast<unsigned int>({name}_ + {step}) < {size}u")
        yield f"  const bool there_ = {' && '.join(tests)};"
        start = f"{self._side}_from_"
        text = f"{start} + (there_ ? {far} + tap_.x : 0)"
        yield f"  const {C_TYPES[self._dtype]}* from_ = {text};"

    def _target(self, stage: str) -> str:
        index = f"s_ * {self.pitch} + k_" if self.by_depth else f"k_ * {self.pitch} + s_"
        return f"{self._side}_tile_ + {stage} * {self.elements} + {index}"

    @property
    def _zero(self) -> str:
        return f"{C_TYPES[self._tile.dtype]}{{}}"

    def _converted(self, element: str) -> str:
        return element if self._dtype == self._tile.dtype else f"gpu::real({element})"


def _volume(sizes: tuple[int, ...]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
