"""Owns the tiles of a product: what a block makes of the result, and how its threads stand."""

from __future__ import annotations

import math
from collections.abc import Mapping

from evokernel.frozen import Frozen
from evokernel.opgraph import itemsize
from evokernel.proposers.templates.choices import Choice, Option, Value
from evokernel.proposers.templates.contraction import Contraction
from evokernel.proposers.templates.cuda.styles import numbers
from evokernel.proposers.templates.halves import HALVES

THREADS = 256
_TENSOR_TILES = ("128x128", "128x256", "64x128", "128x64", "256x128")
_PLAIN_TILES = ("128x128", "128x64", "64x128", "64x64")
_WAVE = 132
"""Multiprocessors of an H100 or H200."""
_MOST_SHARED = 200 * 2**10
"""Bytes of shared memory that a block may take on an H100 or H200, less a reserve (ours)."""


class Tile(Frozen):
    """A part of the result, and what is in shared memory of its operands."""

    rows: int
    cols: int
    depth: int
    """Steps along the depth that one stage holds."""
    stages: int
    """Stages that are on their way or in use."""
    is_tensor: bool
    """Whether the matrix units multiply."""
    dtype: str
    """Of the numbers in shared memory."""

    @property
    def parts(self) -> int:
        """Pieces of rows in which results pass through shared memory."""
        return 2 if self.is_tensor else self.rows // 64

    @property
    def warp_rows(self) -> int:
        """Rows of a warp's sums; two warps stand below each other, four beside."""
        return self.rows // 2

    @property
    def warp_cols(self) -> int:
        """Columns of a warp's sums."""
        return self.cols // 4

    def pitch(self, length: int) -> int:
        """Elements from row to row in shared memory: rows begin in different banks."""
        return length + 16 // itemsize(self.dtype)

    def elements(self, length: int, by_depth: bool) -> int:
        """What a stage holds of an operand of so many rows or columns."""
        if by_depth:
            return length * self.pitch(self.depth)
        return self.depth * self.pitch(length)

    @property
    def result_bytes(self) -> int:
        """Shared memory through which results pass."""
        size = 4 if self.is_tensor else itemsize(self.dtype)
        return self.rows // self.parts * (self.cols + 4) * size


def uses_tensor_cores(stage: Contraction, dtypes: Mapping[str, str]) -> bool:
    """Whether the matrix units can multiply: both operands in the same half precision."""
    left, right = dtypes[stage.left.key], dtypes[stage.right.key]
    return left == right and left in HALVES


def choices(stage: Contraction, dtypes: Mapping[str, str]) -> tuple[Choice, ...]:
    """What can be chosen in a product."""
    is_tensor = uses_tensor_cores(stage, dtypes)
    names = list(_TENSOR_TILES if is_tensor else _PLAIN_TILES)
    plain = "128x64" if stage.cols <= 64 else "64x128" if stage.rows <= 64 else names[0]
    results = math.prod(stage.batch) * stage.rows * stage.cols
    if is_tensor and plain == names[0] and stage.cols > 128 and results >= _WAVE * 128 * 256:
        plain = "128x256"  # what a warp reads of shared memory serves more of its products
    names.remove(plain)
    units = Option(value="tensor", technique="tensor-cores")
    arithmetic = (Choice(name="units", options=(units, Option(value="plain"))),) * is_tensor
    depths: tuple[Value, ...] = (64,) if is_tensor else (8, 32)
    return (
        *arithmetic,
        numbers("tile", plain, tuple(names), "register-tiling"),
        numbers("depth", 32 if is_tensor else 16, depths, "cache-blocking"),
        numbers("stages", 3, (2, 4), "asynchronous-copies"),
        numbers("order", 8, (1, 16), "output-blocking"),
    )


def tile_of(stage: Contraction, dtypes: Mapping[str, str], choices: Mapping[str, Value]) -> Tile:
    """The tile that was chosen, with as many stages as shared memory holds."""
    is_tensor = uses_tensor_cores(stage, dtypes) and choices.get("units") != "plain"
    rows, _, cols = str(choices.get("tile", "128x128")).partition("x")
    name, depth = f"{rows}x{cols}", int(choices.get("depth", 16))
    if not is_tensor and name not in _PLAIN_TILES:
        rows, cols = "128", "128"
    dtype = dtypes[stage.left.key] if is_tensor else stage.dtype
    if dtype == "float64":
        rows, cols = "64", "64"
    tile = Tile(
        rows=int(rows),
        cols=int(cols),
        depth=max(depth, 32) if is_tensor else min(depth, 32),
        stages=int(choices.get("stages", 3)),
        is_tensor=is_tensor,
        dtype=dtype,
    )
    while tile.stages > 2 and _stage_bytes(tile) * tile.stages > _MOST_SHARED:
        tile = tile.model_copy(update={"stages": tile.stages - 1})
    return tile


def _stage_bytes(tile: Tile) -> int:
    width = tile.pitch(tile.rows) + tile.pitch(tile.cols) + 64
    return (tile.depth + 8) * width * itemsize(tile.dtype)
