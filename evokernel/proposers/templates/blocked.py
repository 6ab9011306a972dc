"""Owns the loop structure of a contraction: blocks of the result, panels, tiles, what follows.

for each block of the result, shared out among the threads:
    for each block of the depth:
        pack what the block needs of both operands, unless it is read in place or packed already
        for each tile: multiply; behind the last block of the depth: the program, row by row
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from evokernel.frozen import Frozen
from evokernel.proposers.templates import emit
from evokernel.proposers.templates.addressing import pointer, pointers
from evokernel.proposers.templates.choices import Value
from evokernel.proposers.templates.contraction import Contraction, Matrix, Patches
from evokernel.proposers.templates.expressions import Level, Load, Program
from evokernel.proposers.templates.folds import Form
from evokernel.proposers.templates.kernel import Resting, target_pointers, targets
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.literals import C_TYPES
from evokernel.proposers.templates.panels import LINE, MatrixPanel, Panel, PatchPanel, place
from evokernel.proposers.templates.styles import as_chosen, thread_count
from evokernel.proposers.templates.sweep import WIDEST
from evokernel.proposers.templates.tiles import shape_of


class Function(Frozen):
    """A C++ function that is one stage."""

    text: str
    tensors: tuple[str, ...]
    """Keys of the tensors that it takes, in the order of its parameters."""
    sizes: tuple[str, ...]
    """What it takes behind them, as C++ expressions."""


def form_of(dtype: str, choices: Mapping[str, Value]) -> Form:
    """Whether tiles are vectors: floats only."""
    return "vector" if choices.get("form") == "vector" and dtype == "float32" else "scalar"


def in_place(operand: Matrix | Patches, cols: int) -> bool:
    """Whether tiles may read rows of the right operand where they lie."""
    return isinstance(operand, Matrix) and (operand.across == 1 or cols == 1)


def write(stage: Contraction, choices: Mapping[str, Value], name: str, outermost: str) -> Function:
    """Write one stage as a C++ function of its tensors, its outermost size and `threads`.

    Args:
        stage: The contraction.
        choices: A plan's.
        name: The function's name.
        outermost: What the caller gives as the number of products, or of rows where there is one
            product.
    """
    return _Writer(stage, choices, name).write(outermost)


class _Writer:
    """Writes one stage."""

    def __init__(self, stage: Contraction, choices: Mapping[str, Value], name: str) -> None:
        self._stage = stage
        self._choices = choices
        self._name = name
        self._program: Program = as_chosen(stage.program, choices)
        self._form = form_of(stage.dtype, choices)
        self._type = C_TYPES[stage.dtype]
        self._text = Lines()
        self._rest = Resting(self._program, self._text)
        self._names = self._named()
        self._left, self._right = self._panels()
        self._has_depths = self._blocks("depth", stage.depth) > 1

    def write(self, outermost: str) -> Function:
        dtypes = {s.key: s.dtype for s in self._program.sources}
        declared = [
            f"const {C_TYPES[dtypes.get(key, self._stage.dtype)]}* {name}"
            for key, name in self._names.items()
        ]
        (output,) = self._program.outputs
        declared += [f"{C_TYPES[output.dtype]}* {output.name}", "int64_t outermost_", "int threads"]
        with self._text.block(f"void {self._name}({', '.join(declared)})"):
            self._body()
        tensors = (*self._names, self._stage.writes)
        return Function(text=self._text.text(), tensors=tensors, sizes=(outermost, "threads"))

    def _named(self) -> dict[str, str]:
        """What the function calls each tensor that it reads."""
        sources = [s for s in self._program.sources if s.key != self._stage.product]
        names = {source.key: source.name for source in sources}
        names.setdefault(self._stage.left.key, "left_")
        names.setdefault(self._stage.right.key, "right_")
        return names

    def _panels(self) -> tuple[Panel, Panel]:
        stage = self._stage
        left_name, right_name = self._names[stage.left.key], self._names[stage.right.key]
        start = place(left_name, stage.batch, stage.left.offset, stage.left.batch)
        how = str(self._choices.get("left", "none"))
        left = MatrixPanel("left", stage.left, how, self._type, start)
        if isinstance(stage.right, Patches):
            return left, PatchPanel(stage.right, self._type, right_name, stage.batch)
        start = place(right_name, stage.batch, stage.right.offset, stage.right.batch)
        how = str(self._choices.get("right", "none"))
        if how == "none" and not in_place(stage.right, stage.cols):
            how = "block"
        return left, MatrixPanel("right", stage.right, how, self._type, start)

    def _body(self) -> None:
        self._constants()
        self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
        shared = [*self._left.shared(self._text), *self._right.shared(self._text)]
        self._text.add(f"#pragma omp parallel num_threads({thread_count(self._choices)})")
        with self._text.block():
            self._own_memory()
            self._left.fill(self._text)
            self._right.fill(self._text)
            self._units()
            self._text.add("delete[] memory_;")
        self._text.extend(f"delete[] {name};" for name in shared)

    # Sizes and memory.

    def _blocks(self, name: str, size: int) -> int:
        wish = int(self._choices.get(name, 0)) or size
        return -(-size // wish)

    def _constants(self) -> None:
        stage = self._stage
        rows = str(stage.rows) if stage.batch else "outermost_"
        self._text.add(f"const int64_t STACK_ = {'outermost_' if stage.batch else '1'};")
        for name, size, usual, tile in (
            ("rows", rows, stage.rows, "TILE_ROWS"),
            ("cols", str(stage.cols), stage.cols, "TILE_COLS"),
        ):
            big, each = name.upper(), -(-usual // self._blocks(name, usual))
            self._text.add(
                f"const int64_t {big}_ = {size};",
                f"constexpr int64_t {big}_BLOCK_ = tiles::whole({each}, {tile});",
                f"const int64_t {big}_BLOCKS_ = ({big}_ - 1) / {big}_BLOCK_ + 1;",
            )
        each = -(-stage.depth // self._blocks("depth", stage.depth))
        self._text.add(f"constexpr int64_t DEPTH_ = {stage.depth}, DEPTH_BLOCK_ = {each};")

    def _own_memory(self) -> None:
        """One piece of memory for everything that a thread has for itself."""
        sums = "ROWS_BLOCK_ * COLS_BLOCK_" if self._has_depths else "TILE_ROWS * TILE_COLS"
        parts = {"sums_": sums, "left_panel_": self._left.own, "right_panel_": self._right.own}
        parts = {name: size for name, size in parts.items() if size}
        total = " + ".join([*parts.values(), str(LINE * (len(parts) + 1))])
        kind, end = self._type, "memory_"
        self._text.add(f"{kind}* const memory_ = new {kind}[{total}];")
        for name, size in parts.items():
            self._text.add(f"{kind}* const {name} = tiles::aligned({end});")
            end = f"{name} + {size}"

    # Blocks and tiles.

    def _units(self) -> None:
        schedule = self._choices.get("schedule", "static")
        how = "static" if schedule == "static" else f"dynamic, {schedule}"
        self._text.add(f"#pragma omp for schedule({how})")
        units = "STACK_ * ROWS_BLOCKS_ * COLS_BLOCKS_"
        with self._text.block(f"for (int64_t unit_ = 0; unit_ < {units}; ++unit_)"):
            self._text.add(
                "const int64_t batch_ = unit_ / (ROWS_BLOCKS_ * COLS_BLOCKS_);",
                "const int64_t row_ = unit_ / COLS_BLOCKS_ % ROWS_BLOCKS_ * ROWS_BLOCK_;",
                "const int64_t col_ = unit_ % COLS_BLOCKS_ * COLS_BLOCK_;",
                "const int64_t rows_ = tiles::least(ROWS_BLOCK_, ROWS_ - row_);",
                "const int64_t cols_ = tiles::least(COLS_BLOCK_, COLS_ - col_);",
            )
            self._left.begin(self._text)
            self._right.begin(self._text)
            with self._depths():
                self._block()

    @contextmanager
    def _depths(self) -> Iterator[None]:
        """A loop over blocks of the depth, where there are several."""
        if not self._has_depths:
            self._text.add("constexpr int64_t begin_ = 0, depth_ = DEPTH_;")
            yield
            return
        head = "for (int64_t begin_ = 0; begin_ < DEPTH_; begin_ += DEPTH_BLOCK_)"
        with self._text.block(head):
            self._text.add("const int64_t depth_ = tiles::least(DEPTH_BLOCK_, DEPTH_ - begin_);")
            yield

    def _block(self) -> None:
        self._left.pack(self._text)
        self._right.pack(self._text)
        with (
            self._text.block("for (int64_t j_ = 0; j_ < cols_; j_ += TILE_COLS)"),
            self._text.block("for (int64_t i_ = 0; i_ < rows_; i_ += TILE_ROWS)"),
        ):
            self._tile()

    def _tile(self) -> None:
        # Tiles that wait for more of the depth lie one behind the other.
        tile = "sums_ + j_ * ROWS_BLOCK_ + i_ * TILE_COLS" if self._has_depths else "sums_"
        self._text.add(f"{self._type}* const tile_ = {tile};")
        operands = f"{self._left.of_tile(self._text)}, {self._right.of_tile(self._text)}"
        self._text.add(f"tiles::multiply(depth_, {operands}, tile_, begin_ > 0);")
        if self._has_depths:
            self._text.add("if (begin_ + depth_ < DEPTH_) continue;")
        self._finish()

    # What follows the product.

    def _finish(self) -> None:
        head = "for (int64_t t_ = 0; t_ < tiles::least(TILE_ROWS, rows_ - i_); ++t_)"
        with self._text.block(head):
            self._text.add(
                "const int64_t r = batch_ * ROWS_ + row_ + i_ + t_;",
                f"const {self._type}* const row_sums_ = tile_ + t_ * TILE_COLS;",
            )
            self._text.extend(self._pointers())
            self._text.extend(target_pointers(self._program))
            self._rest.declare(self._rest.level(self._program.before, Level.ROW))
            if self._form == "scalar" or emit.vector_problem(self._program):
                self._numbers()
            else:
                self._vectors()

    def _pointers(self) -> list[str]:
        """Those of the program, but for the product, which is no tensor."""
        product = self._program.values[self._stage.value]
        assert isinstance(product, Load)
        name = pointer(self._program, product.access)
        return [line for line in pointers(self._program) if f"* {name} = " not in line]

    def _numbers(self) -> None:
        head = "for (int64_t s_ = 0; s_ < tiles::least(TILE_COLS, cols_ - j_); ++s_)"
        with self._text.block(head):
            self._text.add("const int64_t c = col_ + j_ + s_;")
            self._statements("scalar", "row_sums_[s_]")

    def _vectors(self) -> None:
        _, vectors = shape_of(self._choices)
        with self._text.block("for (int64_t s_ = 0; s_ < TILE_COLS; s_ += LANES)"):
            self._text.add("const int64_t c = col_ + j_ + s_;")
            if self._stage.cols % (vectors * WIDEST) == 0:
                self._statements("vector", "load(row_sums_ + s_)")
                return
            with self._text.block("if (c + LANES <= COLS_)"):
                self._statements("vector", "load(row_sums_ + s_)")
            with self._text.block("else if (c < COLS_)"):
                self._text.add("const int n = static_cast<int>(COLS_ - c);")
                self._statements("vector", "load(row_sums_ + s_)", "n")

    def _statements(self, form: Form, product: str, count: str = "") -> None:
        value = self._program.values[self._stage.value]
        kind = "V" if form == "vector" else self._type
        self._text.add(f"const {kind} {value.name} = {product};")
        wanted = [output.value for output in self._program.outputs]
        known = {self._stage.value: value.name}
        block = emit.elements(self._program, wanted, form, known=known, count=count)
        self._text.extend(block.lines)
        for number, target in targets(self._program).items():
            name = block.names[self._program.outputs[number].value]
            self._text.add(emit.store(form, f"{target} + c", name, count))
