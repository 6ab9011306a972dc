"""Owns kernels of products: tiles in shared memory, sums in registers, the rest on the way out."""

from __future__ import annotations

import math
from collections.abc import Mapping

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.choices import Value
from evokernel.proposers.templates.contraction import Contraction
from evokernel.proposers.templates.cuda.kernel import Launch, Part, head
from evokernel.proposers.templates.cuda.operand_tiles import OperandTile
from evokernel.proposers.templates.cuda.packs import Caching, Packs
from evokernel.proposers.templates.cuda.resting import Resting
from evokernel.proposers.templates.cuda.spelling import C_TYPES
from evokernel.proposers.templates.cuda.statements import Where
from evokernel.proposers.templates.cuda.styles import as_chosen
from evokernel.proposers.templates.cuda.tiles import THREADS, tile_of
from evokernel.proposers.templates.cuda.widths import widest
from evokernel.proposers.templates.lines import Lines


def part(
    stage: Contraction, dtypes: Mapping[str, str], choices: Mapping[str, Value], function: str
) -> Part:
    """Write a product and what follows it point by point.

    Args:
        stage: The product.
        dtypes: Of every tensor, by its key.
        choices: The plan's.
        function: Name of the kernel.
    """
    return _Writer(stage, dtypes, choices, function).part()


class _Writer:
    def __init__(
        self,
        stage: Contraction,
        dtypes: Mapping[str, str],
        choices: Mapping[str, Value],
        function: str,
    ) -> None:
        self._stage = stage
        self._program = as_chosen(stage.program, choices)
        self._function = function
        self._text = Lines()
        self._tile = tile_of(stage, dtypes, choices)
        self._order = int(choices.get("order", 8))
        left, right = dtypes[stage.left.key], dtypes[stage.right.key]
        rows, cols = (stage.batch, stage.rows, stage.depth), (stage.batch, stage.cols, stage.depth)
        self._left = OperandTile("left", stage.left, left, rows, self._tile)
        self._right = OperandTile("right", stage.right, right, cols, self._tile)
        stages = self._tile.stages * (self._left.elements + self._right.elements)
        self._shared = max(stages * itemsize(self._tile.dtype), self._tile.result_bytes)
        self._width = math.gcd(widest(self._program), 8)
        self._down = -(-stage.rows // self._tile.rows)
        self._beside = -(-stage.cols // self._tile.cols)

    def part(self) -> Part:
        """Write the text and its launch."""
        program = self._program
        used = [s for s in program.sources if s.key != self._stage.product]
        (output,) = program.outputs
        declared = [
            *(f"const {C_TYPES[s.dtype]}* __restrict__ {s.name}" for s in used),
            self._left.parameter,
            self._right.parameter,
            f"{C_TYPES[output.dtype]}* __restrict__ {output.name}",
        ]
        with self._text.block(head(self._function, THREADS, declared)):
            self._where()
            self._pipeline()
            self._results()
        launch = Launch(
            function=self._function,
            grid=str(math.prod(self._stage.batch) * self._down * self._beside),
            block=THREADS,
            tensors=(*(s.name for s in used), "left_", "right_", output.name),
            shared=self._shared + self._right.table_bytes,
        )
        return Part(text=self._text.text(), launches=(launch,))

    def _where(self) -> None:
        """Which tile is whose: neighbours in time share what they read."""
        down, beside = self._down, self._beside
        kind = C_TYPES[self._tile.dtype]
        self._text.add(
            "extern __shared__ __align__(16) unsigned char shared_[];",
            f"{kind}* const left_tile_ = reinterpret_cast<{kind}*>(shared_);",
            f"{kind}* const right_tile_ = left_tile_ + {self._tile.stages * self._left.elements};",
            f"const int batch_ = blockIdx.x / {down * beside};",
            f"const int number_ = blockIdx.x % {down * beside};",
        )
        order = min(self._order, down)
        self._text.add(
            f"const int first_ = number_ / {order * beside} * {order};",
            f"const int high_ = min({down} - first_, {order});",
            f"const int row0_ = (first_ + number_ % {order * beside} % high_) * {self._tile.rows};",
            f"const int col0_ = number_ % {order * beside} / high_ * {self._tile.cols};",
            "const int warp_ = threadIdx.x / 32, lane_ = threadIdx.x % 32;",
        )
        self._text.extend(self._left.begin(0))
        self._text.extend(self._right.begin(self._shared))

    def _pipeline(self) -> None:
        """Stages are fetched ahead of the multiplications."""
        stages, steps = self._tile.stages, -(-self._stage.depth // self._tile.depth)
        self._sums()
        self._text.add("#pragma unroll 1")
        with self._text.block(f"for (int ahead_ = 0; ahead_ < {stages - 1}; ++ahead_)"):
            with self._text.block(f"if (ahead_ < {steps})"):
                self._fetch("ahead_", "ahead_")
                self._drop("ahead_", "ahead_")
            self._text.add("gpu::commit();")
        with self._text.block(f"for (int step_ = 0; step_ < {steps}; ++step_)"):
            self._text.add(f"gpu::wait<{stages - 2}>();", "__syncthreads();")
            self._text.add(
                f"const int now_ = step_ % {stages}, next_ = step_ + {stages - 1};",
                f"const int later_ = next_ % {stages};",
            )
            with self._text.block(f"if (next_ < {steps})"):
                self._fetch("later_", "next_")
            self._text.add("gpu::commit();")
            if self._tile.is_tensor:
                self._multiply_matrices()
            else:
                self._multiply()
            if "plain" in (self._left.way, self._right.way):
                with self._text.block(f"if (next_ < {steps})"):
                    self._drop("later_", "next_")

    def _fetch(self, stage: str, step: str) -> None:
        self._text.extend(self._left.fetch(stage, step))
        self._text.extend(self._right.fetch(stage, step))

    def _drop(self, stage: str, step: str) -> None:
        self._text.extend(self._left.drop(stage, step))
        self._text.extend(self._right.drop(stage, step))

    def _sums(self) -> None:
        tile = self._tile
        if tile.is_tensor:
            shape = f"[{tile.warp_rows // 16}][{tile.warp_cols // 8}][4]"
            self._text.add(
                f"const int down_ = warp_ / 4 * {tile.warp_rows};",
                f"const int beside_ = warp_ % 4 * {tile.warp_cols};",
            )
        else:
            shape = f"[{tile.rows // 16}][{tile.cols // 16}]"
            self._text.add(
                "const int down_ = threadIdx.x / 16 * 4, beside_ = threadIdx.x % 16 * 4;"
            )
        kind = "float" if tile.is_tensor else C_TYPES[tile.dtype]
        self._text.add(f"{kind} sums_{shape} = {{}};")

    def _multiply_matrices(self) -> None:
        tile = self._tile
        down, beside = tile.warp_rows // 16, tile.warp_cols // 16
        self._text.add("#pragma unroll")
        with self._text.block(f"for (int k_ = 0; k_ < {tile.depth}; k_ += 16)"):
            self._text.add(f"unsigned int a_[{down}][4], b_[{beside}][4];")
            # Each lane tells a row of one of four matrices (PTX ISA, "ldmatrix", "mma.m16n8k16").
            low, high = "lane_ % 8 + lane_ / 16 * 8", "lane_ / 8 % 2 * 8"
            self._matrices("left", self._left, down, ("lane_ % 16", "lane_ / 16 * 8", low, high))
            turned = ("lane_ % 8 + lane_ / 8 % 2 * 8", "lane_ / 16 * 8")
            self._matrices("right", self._right, beside, (low, high, *turned))
            self._text.add(
                "#pragma unroll",
                f"for (int i_ = 0; i_ < {down}; ++i_) {{",
                "#pragma unroll",
                f"  for (int j_ = 0; j_ < {2 * beside}; ++j_) {{",
                f"    gpu::multiply_{tile.dtype}(sums_[i_][j_], a_[i_], b_[j_ / 2][j_ % 2 * 2], "
                "b_[j_ / 2][j_ % 2 * 2 + 1]);",
                "  }",
                "}",
            )

    def _matrices(
        self, side: str, operand: OperandTile, count: int, lanes: tuple[str, str, str, str]
    ) -> None:
        """Load what a warp multiplies; `lanes` tell row and column, as it lies or turned."""
        name, own = ("a_", "down_") if side == "left" else ("b_", "beside_")
        call = "matrices" if operand.by_depth else "matrices_turned"
        if operand.by_depth:
            row, column = f"{own} + i_ * 16 + {lanes[0]}", f"k_ + {lanes[1]}"
        else:
            row, column = f"k_ + {lanes[2]}", f"{own} + i_ * 16 + {lanes[3]}"
        base = f"{side}_tile_ + now_ * {operand.elements}"
        self._text.add(
            "#pragma unroll",
            f"for (int i_ = 0; i_ < {count}; ++i_) {{",
            f"  gpu::{call}({name}[i_], {base} + ({row}) * {operand.pitch} + {column});",
            "}",
        )

    def _multiply(self) -> None:
        tile, kind = self._tile, C_TYPES[self._tile.dtype]
        down, beside = tile.rows // 16, tile.cols // 16
        self._text.add("#pragma unroll")
        with self._text.block(f"for (int k_ = 0; k_ < {tile.depth}; ++k_)"):
            self._text.add(f"{kind} a_[{down}], b_[{beside}];")
            for name, count, side, own in (
                ("a_", down, self._left, "down_"),
                ("b_", beside, self._right, "beside_"),
            ):
                tiles = "left_tile_" if name == "a_" else "right_tile_"
                place = f"{tiles} + now_ * {side.elements} + k_ * {side.pitch} + {own}"
                self._text.add(
                    "#pragma unroll",
                    f"for (int i_ = 0; i_ < {count // 4}; ++i_) {{",
                    f"  const gpu::Pack<{kind}, 4> four_ = gpu::load_own<4>({place} + i_ * 64);",
                    "#pragma unroll",
                    f"  for (int n_ = 0; n_ < 4; ++n_) {name}[i_ * 4 + n_] = four_.at[n_];",
                    "}",
                )
            self._text.add(
                "#pragma unroll",
                f"for (int i_ = 0; i_ < {down}; ++i_) {{",
                "#pragma unroll",
                f"  for (int j_ = 0; j_ < {beside}; ++j_) sums_[i_][j_] += a_[i_] * b_[j_];",
                "}",
            )

    # Results.

    def _results(self) -> None:
        """Piece by piece through shared memory, so that neighbours store together."""
        tile = self._tile
        kind = "float" if tile.is_tensor else C_TYPES[tile.dtype]
        pitch = tile.cols + 4
        self._text.add(
            "gpu::wait<0>();",
            f"{kind}* const piece_ = reinterpret_cast<{kind}*>(shared_);",
            "#pragma unroll",
        )
        with self._text.block(f"for (int part_ = 0; part_ < {tile.parts}; ++part_)"):
            self._text.add("__syncthreads();")
            if tile.is_tensor:
                self._lay_matrices(pitch)
            else:
                self._lay(pitch)
            self._text.add("__syncthreads();")
            rows = tile.rows // tile.parts
            across = tile.cols // self._width
            loop = f"for (int q_ = threadIdx.x; q_ < {rows * across}; q_ += {THREADS})"
            with self._text.block(loop):
                self._pack(kind, rows, across, pitch)

    def _lay_matrices(self, pitch: int) -> None:
        tile = self._tile
        with self._text.block("if (warp_ / 4 == part_)"):
            self._text.add(
                "#pragma unroll",
                f"for (int i_ = 0; i_ < {tile.warp_rows // 16}; ++i_) {{",
                "#pragma unroll",
                f"  for (int j_ = 0; j_ < {tile.warp_cols // 8}; ++j_) {{",
                f"    float* const at_ = piece_ + (i_ * 16 + lane_ / 4) * {pitch} + beside_ + "
                "j_ * 8 + lane_ % 4 * 2;",
                "    at_[0] = sums_[i_][j_][0];",
                "    at_[1] = sums_[i_][j_][1];",
                f"    at_[{8 * pitch}] = sums_[i_][j_][2];",
                f"    at_[{8 * pitch + 1}] = sums_[i_][j_][3];",
                "  }",
                "}",
            )

    def _lay(self, pitch: int) -> None:
        self._text.add(
            "#pragma unroll",
            "for (int i_ = 0; i_ < 4; ++i_) {",
            "#pragma unroll",
            f"  for (int j_ = 0; j_ < {self._tile.cols // 16}; ++j_) {{",
            f"    piece_[(down_ + i_) * {pitch} + j_ / 4 * 64 + beside_ + j_ % 4] = "
            "sums_[part_ * 4 + i_][j_];",
            "  }",
            "}",
        )

    def _pack(self, kind: str, rows: int, across: int, pitch: int) -> None:
        width, stage = self._width, self._stage
        times = f" * {width}" if width > 1 else ""
        self._text.add(
            f"const int line_ = q_ / {across}, beside_in_ = q_ % {across}{times};",
            f"const int row_ = row0_ + part_ * {rows} + line_, c_ = col0_ + beside_in_;",
        )
        with self._text.block(f"if (row_ < {stage.rows} && c_ < {stage.cols})"):
            self._text.add(
                f"const int r = batch_ * {stage.rows} + row_;",
                f"const {kind}* const product_ = piece_ + line_ * {pitch} + beside_in_;",
            )
            rest = Resting(self._program, self._text)
            rest.declare(self._program.before)
            packs = Packs(self._program, width, Caching(), self._text)
            packs.write(Where(), (), {}, outputs=(0,), known={stage.value: "product_[k_]"})
