"""Owns Triton kernels of products: blocks of the result through `tl.dot`, and what follows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.choices import Choice, Option, Value
from evokernel.proposers.templates.contraction import Contraction, Matrix, Patches
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.triton.frame import operands, power
from evokernel.proposers.templates.triton.images import image_steps, image_terms
from evokernel.proposers.templates.triton.kernel import (
    Extent,
    Launch,
    Operand,
    Parameter,
    Text,
    Written,
)
from evokernel.proposers.templates.triton.resting import store_elements
from evokernel.proposers.templates.triton.shortening import as_chosen
from evokernel.proposers.templates.triton.sizes import constants, number
from evokernel.proposers.templates.triton.spelling import HALF
from evokernel.proposers.templates.triton.statements import Statements
from evokernel.proposers.templates.triton.tile import Tile, needs_wide, terms

LEAST = 16
"""Smallest side of a block that `tl.dot` takes."""

_NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP", "PRODUCT_WARPS", "PRODUCT_STAGES")
"""Constants that all products of a candidate share."""


def choices(stage: Contraction, dtype: str) -> tuple[Choice, ...]:
    """What can be chosen in products, by the sizes of the one with most operations.

    Args:
        stage: The product.
        dtype: Of its operands in memory.
    """
    if stage.dtype != "float32":
        raise Unsupported(f"products of {stage.dtype} are not covered in Triton")
    is_half = dtype in HALF
    rows, cols = _side(stage.rows, 128), _side(stage.cols, 128)
    depth = _side(stage.depth, 64 if is_half else 32)
    found = [
        number("block_m", rows, _sides(stage.rows, (64, 128, 256)), "output-blocking"),
        number("block_n", cols, _sides(stage.cols, (64, 128, 256)), "output-blocking"),
        number("block_k", depth, _sides(stage.depth, (16, 32, 64, 128)), "cache-blocking"),
        number("group", 8, (1, 4), "grouped-order"),
        number("product_warps", 8, (4,)),
        number("product_stages", 3, (2, 4), "software-pipelining"),
    ]
    if not is_half:
        split = Option(value="split", technique="split-products")
        found.append(Choice(name="products", options=(Option(value="exact"), split)))
    return tuple(found)


def _side(size: int, wish: int) -> int:
    return max(LEAST, min(wish, power(size)))


def _sides(size: int, wishes: Sequence[int]) -> list[int]:
    return [wish for wish in wishes if wish <= max(LEAST, power(size))]


def numbers(offered: Sequence[Choice], chosen: Mapping[str, Value]) -> tuple[Parameter, ...]:
    """The constants that all products of a candidate share."""
    return constants(offered, chosen, _NAMES)


def precision(chosen: Mapping[str, Value], allowed: str) -> str:
    """How `tl.dot` multiplies float32.

    Args:
        chosen: A plan's choices.
        allowed: Precision policy of the task.
    """
    if chosen.get("products") == "split":
        return "tf32x3"  # three products of tensor cores, exact to about the last bit of float32
    return "tf32" if allowed == "tf32" else "ieee"


class ProductWriter:
    """Writes the kernel of one stage."""

    def __init__(
        self,
        stage: Contraction,
        chosen: Mapping[str, Value],
        dtypes: Mapping[str, str],
        extent: Extent,
        precision: str,
    ) -> None:
        """Begin without text.

        Args:
            stage: The product.
            chosen: A plan's choices.
            dtypes: Dtypes of the tensors in memory, by key.
            extent: How many rows there are, or how many products in the stack.
            precision: As `tl.dot` takes it.
        """
        self._stage = stage
        self._program = as_chosen(stage.program, chosen)
        self._dtypes = dtypes
        self._extent = extent
        self._precision = precision
        self._text = Text()
        self._wide = needs_wide(stage.program.domain, extent.is_free)

    def write(self, name: str) -> Written:
        """Write it as a function of the given name."""
        tile = self._indices()
        self._multiply()
        statements = Statements(self._program, tile, self._text)
        statements.known[self._stage.value] = "product_"
        store_elements(statements, tuple(range(len(self._program.outputs))))
        return Written(launches=(self._launch(name),))

    @property
    def _rows(self) -> str:
        """Rows of one product, within the kernel."""
        is_free = self._extent.is_free and not self._stage.batch
        return "rows" if is_free else str(self._stage.rows)

    def _launch(self, name: str) -> Launch:
        stage, body = self._stage, self._text.lines
        sides = {"BLOCK_M": stage.rows, "BLOCK_N": stage.cols, "BLOCK_K": stage.depth}
        if isinstance(stage.right, Patches):
            sides["BLOCK_K"] = stage.right.channels
        at_most = {k: max(LEAST, power(size)) for k, size in sides.items()}
        if self._rows == "rows":
            del at_most["BLOCK_M"]
        sizes = {k: f"min({k}, {at_most[k]})" if k in at_most else k for k in sides}
        rows = self._extent.rows if self._rows == "rows" else str(stage.rows)
        grid = f"triton.cdiv({rows}, {sizes['BLOCK_M']})"
        grid += f" * triton.cdiv({stage.cols}, {sizes['BLOCK_N']})"
        if stage.batch:
            grid += f" * {self._extent.rows}"
        return Launch(
            kernel=name,
            doc="Multiplies one block of the result, and goes on with it.",
            operands=self._operands(body),
            numbers=(("rows", self._extent.rows),) if self._rows == "rows" else (),
            constants=(*sizes.items(), ("GROUP", "GROUP")),
            grid=(grid,),
            options=(("num_warps", "PRODUCT_WARPS"), ("num_stages", "PRODUCT_STAGES")),
            body=body,
        )

    def _operands(self, body: Sequence[str]) -> tuple[Operand, ...]:
        stage = self._stage
        sides = (("left_", stage.left.key), ("right_", stage.right.key))
        found = [
            Operand(name=name, kind="source", key=key, dtype=self._dtypes[key])
            for name, key in sides
        ]
        others = operands(self._program, [stage.writes], body)
        return (*found, *(o for o in others if o.kind == "output" or o.key != stage.product))

    def _indices(self) -> Tile:
        """Write which block this is."""
        stage, text, rows = self._stage, self._text, self._rows
        text.add(f"down_ = tl.cdiv({rows}, BLOCK_M)", f"over_ = tl.cdiv({stage.cols}, BLOCK_N)")
        text.add("number_ = tl.program_id(0)")
        if stage.batch:
            text.add("item_ = number_ // (down_ * over_)", "number_ = number_ % (down_ * over_)")
        text.add("# Blocks below each other first: they read the same columns.")
        text.add("first_ = number_ // (GROUP * over_) * GROUP")
        text.add("height_ = tl.minimum(down_ - first_, GROUP)")
        text.add(
            "m_ = (first_ + number_ % (GROUP * over_) % height_) * BLOCK_M + tl.arange(0, BLOCK_M)"
        )
        text.add("n = number_ % (GROUP * over_) // height_ * BLOCK_N + tl.arange(0, BLOCK_N)")
        text.add(f"has_row_ = (m_ < {rows})[:, None]", f"has_column_ = (n < {stage.cols})[None, :]")
        wide = ".to(tl.int64)" if self._wide else ""
        item = f"item_{wide} * {stage.rows} + " if stage.batch else ""
        text.add(f"r = ({item}m_{wide if not item else ''})[:, None]")
        return Tile(
            shape="rows",
            domain=self._program.domain,
            row="r",
            inner="n[None, :]",
            kept_mask="has_row_",
            inner_mask="has_column_",
            sizes=("BLOCK_M", "BLOCK_N"),
            wide=self._wide,
        )

    def _multiply(self) -> None:
        stage, text = self._stage, self._text
        text.add("product_ = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)")
        if isinstance(stage.right, Patches):
            self._multiply_image(stage.right)
        else:
            self._multiply_matrices(stage.right)

    def _start(self, matrix: Matrix | Patches, name: str, offset: int) -> str:
        """Where the stack's item begins."""
        wide = ".to(tl.int64)" if self._wide else ""
        item = f"item_{wide}"
        found = [name]
        if self._stage.batch and any(matrix.batch):
            if wide:
                self._text.add(f"{name}item_ = {item}")
                item = f"{name}item_"
            found += terms(item, self._stage.batch, matrix.batch, bool(wide))
        if offset:
            found.append(str(offset))
        return " + ".join(found)

    def _multiply_matrices(self, right: Matrix) -> None:
        stage, text = self._stage, self._text
        left = stage.left
        text.add("k = tl.arange(0, BLOCK_K)")
        row, column = self._far("m_", left.down), self._far("n", right.across)
        start = self._start(left, "left_", left.offset)
        text.add(f"left_at_ = {start}{_term(row, '[:, None]', left.down)}"
                 f"{_term('k', '[None, :]', left.across)}")  # fmt: skip
        start = self._start(right, "right_", right.offset)
        text.add(f"right_at_ = {start}{_term('k', '[:, None]', right.down)}"
                 f"{_term(column, '[None, :]', right.across)}")  # fmt: skip
        text.begin(f"for start_ in range(0, {stage.depth}, BLOCK_K):")
        masks = {"one": "has_row_", "two": "has_column_"}
        if stage.depth % 128:
            text.add(f"inside_ = k < {stage.depth} - start_")
            masks = {"one": "has_row_ & inside_[None, :]", "two": "has_column_ & inside_[:, None]"}
        text.add(f"one_ = tl.load(left_at_, mask={masks['one']}, other=0.0)")
        text.add(f"two_ = tl.load(right_at_, mask={masks['two']}, other=0.0)")
        self._dot()
        for name, step in (("left_at_", left.across), ("right_at_", right.down)):
            if step:
                text.add(f"{name} += BLOCK_K{'' if step == 1 else f' * {step}'}")
        text.end()

    def _far(self, index: str, stride: int) -> str:
        limit = 2**31 // max(1, abs(stride))
        size = self._stage.rows if index == "m_" else self._stage.cols
        far = size + 1024 >= limit or (self._wide and index == "m_")
        return f"{index}.to(tl.int64)" if far else index

    def _dot(self) -> None:
        one, two = (self._dtypes[key] for key in (self._stage.left.key, self._stage.right.key))
        names = ["one_", "two_"]
        if one != two:
            names = [f"{name}.to(tl.float32)" for name in names]
        how = "" if one == two and one in HALF else f', input_precision="{self._precision}"'
        self._text.add(f"product_ = tl.dot({names[0]}, {names[1]}, product_{how})")

    def _multiply_image(self, image: Patches) -> None:
        """Places of the window, and channels block by block within each."""
        stage, text = self._stage, self._text
        taps, channels = math.prod(image.window), image.channels
        left = stage.left
        text.add("k = tl.arange(0, BLOCK_K)", *image_terms(image))
        text.add(
            f"filters_ = {self._start(left, 'left_', left.offset)} + m_[:, None] * {left.down}"
        )
        text.add(f"image_ = {self._start(image, 'right_', 0)}")
        text.add(f"slices_ = tl.cdiv({channels}, BLOCK_K)")
        text.begin(f"for step_ in range(0, {taps} * slices_):")
        text.add("tap_ = step_ // slices_", "channel_ = step_ % slices_ * BLOCK_K + k")
        text.add(*image_steps(image))
        text.add(f"exists_ = (channel_ < {channels})")
        text.add(
            f"one_ = tl.load(filters_ + (channel_ * {taps} + tap_)[None, :], "
            "mask=has_row_ & exists_[None, :], other=0.0)"
        )
        text.add(
            f"two_ = tl.load(image_ + (channel_ * {math.prod(image.size)})[:, None] + place_, "
            "mask=within_ & exists_[:, None], other=0.0)"
        )
        self._dot()
        text.end()


def _term(index: str, place: str, stride: int) -> str:
    if stride == 0:
        return f" + 0 * {index}{place}"
    return f" + {index}{place}" + ("" if stride == 1 else f" * {stride}")


def operand_dtype(stage: Contraction, dtypes: Mapping[str, str]) -> str:
    """The wider dtype of a product's operands."""
    found = [dtypes[stage.left.key], dtypes[stage.right.key]]
    return max(found, key=itemsize)
