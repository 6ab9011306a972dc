"""Owns the loop structures of Triton programs with reductions and scans, and the choice of one.

whole   a block holds whole rows or columns; everything is read once
loop    a program sweeps over its rows or columns block by block
split   several programs share a row or column
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.choices import Choice, Needs, Option, Space, Value
from evokernel.proposers.templates.expressions import Level, Program
from evokernel.proposers.templates.kernel import outputs_at
from evokernel.proposers.templates.triton import looped, whole
from evokernel.proposers.templates.triton.frame import Frame, operands, power, rows_argument
from evokernel.proposers.templates.triton.kernel import Extent, Launch, Parameter, Written
from evokernel.proposers.templates.triton.parted import Parted, can_be_parted
from evokernel.proposers.templates.triton.resting import combined, part_operands
from evokernel.proposers.templates.triton.shortening import as_chosen, function_choice
from evokernel.proposers.templates.triton.sizes import around, constants, number
from evokernel.proposers.templates.works import pair

PROGRAMS = 1024
"""Programs that keep every multiprocessor busy: a few for each of the largest GPUs (ours)."""

_WHOLE = 65536
"""Elements of a block at most that holds whole rows: 64 per thread of 1024 (ours)."""

_WHOLE_FIRST = 32768
"""Elements of a row up to which holding it whole is the first draft (ours)."""

_FEW = 264
"""Blocks below which most multiprocessors of the largest GPUs would be idle (ours)."""

_LONG = 16384
"""Elements from which a row or column may be shared among programs (ours)."""

_PER_BLOCK = 4096
"""Elements of a block: four loads of 16 bytes for each of 256 threads (ours)."""

_UNROLLED = 64
"""Places in a window up to which its loop is written out (ours)."""

_PER_WARP = 512
"""Elements per warp: four loads of 16 bytes of float32 for each thread (ours)."""


class _Sizes:
    """What a program's sizes suggest."""

    def __init__(self, program: Program) -> None:
        domain = program.domain
        self.across = domain.across
        self.swept = domain.lines if domain.across else domain.lines * domain.cols
        self.kept = domain.results
        self.power = power(self.swept)
        self.widest = max((itemsize(s.dtype) for s in program.sources), default=4)
        self.windows = domain.windows

    @property
    def columns(self) -> int:
        """Columns of a block: at least 256 bytes of each line."""
        if self.windows:
            return min(512, power(self.kept))
        usual = 128 if self.widest <= 2 else 64
        return min(usual, power(self.kept))

    @property
    def rows(self) -> int:
        """Whole rows of a block."""
        return max(1, min(_PER_BLOCK // self.power, 32, power(self.kept)))

    @property
    def kept_per_block(self) -> int:
        """Rows or columns of a block that sweeps."""
        return self.columns if self.across else 1

    @property
    def block(self) -> int:
        """Elements along what is swept, of a block of a loop."""
        if self.windows:
            return 1
        per = _PER_BLOCK if self.widest > 2 else 2 * _PER_BLOCK
        return max(1, min(per // self.kept_per_block, self.power))

    @property
    def parts(self) -> int:
        """Programs that share a row or column."""
        blocks = math.ceil(self.kept / self.kept_per_block)
        wish = power(max(1, PROGRAMS // blocks))
        return max(2, min(wish, power(max(1, self.swept // self.block)), 1024))

    def warps(self, elements: int) -> int:
        """Warps for a block."""
        if self.windows:
            return max(1, elements // 128)  # each of them reads a whole window
        return max(1, min(elements // _PER_WARP, 16 if elements < _WHOLE else 32))


def space(program: Program) -> Space:
    """Every way to write a program with reductions or scans."""
    choices = _choices(program)
    return Space(family=program.kind if program.kind != "pointwise" else "rows", choices=choices)


def written(
    program: Program, choices: Mapping[str, Value], name: str, keys: Sequence[str], extent: Extent
) -> Written:
    """Write a program.

    Args:
        program: The program.
        choices: A plan's.
        name: Begins the kernels' names.
        keys: Of the outputs.
        extent: How many rows there are.
    """
    return _Writer(as_chosen(program, choices), choices, name, keys, extent).write()


def _ways(program: Program) -> list[str]:
    """The structures that can be used, the plain one first."""
    sizes = _Sizes(program)
    least = sizes.columns if sizes.across else 1
    found = []
    if sizes.power * least <= _WHOLE and program.kind != "windows":
        found.append("whole")
    if looped.has_elements(program):
        found.append("loop")
    blocks = math.ceil(sizes.kept / sizes.kept_per_block)
    long = sizes.swept * least >= _LONG and sizes.swept > 64
    if long and blocks <= 4096 and can_be_parted(program) and program.kind != "windows":
        few = blocks < _FEW and sizes.swept * least >= 2 * _LONG
        found.insert(0 if few else len(found), "split")
    if "whole" in found[:1] and sizes.power * least > _WHOLE_FIRST and len(found) > 1:
        found.append(found.pop(0))
    return found or ["whole"]


_TECHNIQUES = {"whole": "row-caching", "loop": "column-blocking", "split": "split-rows"}


def _choices(program: Program) -> tuple[Choice, ...]:
    sizes, ways = _Sizes(program), _ways(program)
    has_scans = any(sweep.scans for sweep in program.passes)
    techniques = {**_TECHNIQUES, **({"split": "two-level-scan"} if has_scans else {})}
    named = [Option(value=way, technique=techniques[way]) for way in ways[1:]]
    found = [Choice(name="sweep", options=(Option(value=ways[0]), *named))]
    swept: Needs = {"sweep": ("loop", "split")}
    if sizes.across:
        found.append(_cols(sizes, ways))
    if "whole" in ways:
        found += _whole_choices(program, sizes)
    if ways != ["whole"]:
        found += _loop_choices(program, sizes, swept)
    if "split" in ways:
        parts = sizes.parts
        found.append(
            number("parts", parts, around(parts, 2, 1024), "split-rows", {"sweep": ("split",)})
        )
    return (*found, *function_choice(program), *stores_choice(program))


def _cols(sizes: _Sizes, ways: Sequence[str]) -> Choice:
    """Columns of a block; fewer fit where a block holds all of their lines."""
    cols = sizes.columns
    most = min(1024 if sizes.windows else 512, power(sizes.kept))
    options = [Option(value=cols)]
    for other in around(cols, 16, most, (0.25, 0.5, 2, 4)):
        fits = other * sizes.power <= _WHOLE or "whole" not in ways
        needs: Needs = {} if fits else {"sweep": ("loop", "split")}
        options.append(Option(value=other, technique="column-blocking", needs=needs))
    return Choice(name="cols", options=tuple(options))


def _whole_choices(program: Program, sizes: _Sizes) -> list[Choice]:
    needs: Needs = {"sweep": ("whole",)}
    kept = sizes.columns if sizes.across else sizes.rows
    found = []
    if not sizes.across:
        most = max(1, min(_LONG // sizes.power, 64, power(sizes.kept)))
        others = [n for n in (kept // 4, kept // 2, kept * 2, kept * 4) if 1 <= n <= most]
        found.append(number("rows", kept, others, "multi-row-blocks", needs))
    warps = sizes.warps(kept * sizes.power)
    found.append(number("warps", warps, around(warps, 1, 32), needs=needs))
    persistent = Option(value="persistent", technique="persistent-grid")
    found.append(Choice(name="grid", options=(Option(value="each"), persistent), needs=needs))
    resident: Needs = {"grid": ("persistent",)}
    found.append(number("programs", 528, (264, 1056), "persistent-grid", resident))
    found.append(number("stages", 1, (2, 3), "software-pipelining", resident))
    return found


def _loop_choices(program: Program, sizes: _Sizes, needs: Needs) -> list[Choice]:
    found = []
    both = pair(program)
    if both is not None:
        technique = "online-softmax" if both.kind == "online" else "single-pass-moments"
        merged = Option(value="merged", technique=technique)
        options = (merged, Option(value="separate"))
        found.append(Choice(name="sweeps", options=options, needs=needs))
    block = sizes.block
    if not sizes.windows:
        most = min(sizes.power, 16384)
        found.append(number("block", block, around(block, 1, most, (0.25, 0.5, 2)), needs=needs))
    warps = sizes.warps(block * sizes.kept_per_block)
    found.append(number("loop_warps", warps, around(warps, 1, 16), needs=needs))
    return found


def stores_choice(program: Program) -> tuple[Choice, ...]:
    """Whether results are expected to be read again soon."""
    if not outputs_at(program, Level.ELEMENT):
        return ()
    streaming = Option(value="streaming", technique="nontemporal-stores")
    return (Choice(name="stores", options=(Option(value="cached"), streaming)),)


def store_options(choices: Mapping[str, Value]) -> str:
    """What stands behind the arguments of stores."""
    return ', eviction_policy="evict_first"' if choices.get("stores") == "streaming" else ""


class _Writer:
    """Writes the kernels of one plan."""

    def __init__(
        self,
        program: Program,
        choices: Mapping[str, Value],
        name: str,
        keys: Sequence[str],
        extent: Extent,
    ) -> None:
        self._program = program
        self._offered = _choices(program)
        self._chosen = choices
        self._name = name
        self._keys = list(keys)
        self._extent = extent
        self._options = store_options(choices)
        self._across = program.domain.across

    def write(self) -> Written:
        way = self._chosen["sweep"]
        if way == "whole":
            return self._whole()
        return self._split() if way == "split" else self._loop()

    def _most(self, name: str) -> int:
        """The largest value that a number may have."""
        return max(int(v) for c in self._offered if c.name == name for v in c.values)

    def _frame(self, several: bool) -> Frame:
        most = self._most("cols" if self._across else "rows") if several or self._across else 1
        return Frame(program=self._program, extent=self._extent, several=several, most=most)

    def _whole(self) -> Written:
        several = not self._across and bool(self._program.domain.outer) and self._most("rows") > 1
        frame = self._frame(several)
        persistent = self._chosen["grid"] == "persistent"
        body = whole.body(frame, persistent, self._options)
        wanted = [frame.block, "WARPS", *["PROGRAMS", "STAGES"] * persistent]
        numbers = constants(self._offered, self._chosen, wanted)
        grid = f"min({frame.grid}, PROGRAMS)" if persistent else frame.grid
        return self._one(frame, body, grid, "WARPS", numbers)

    def _loop(self) -> Written:
        frame = self._frame(False)
        windows = self._program.domain.windows
        span = looped.Span(
            begin="0",
            end=str(frame.swept),
            length=frame.swept,
            exact=windows or frame.swept % self._most("block") == 0,
            step="1" if windows else "BLOCK",
            unrolled=windows and frame.swept <= _UNROLLED,
        )
        body = looped.body(frame, span, self._merged, self._options)
        return self._one(frame, body, frame.grid, "LOOP_WARPS", self._loop_numbers(frame))

    @property
    def _merged(self) -> bool:
        return self._chosen.get("sweeps") == "merged"

    def _loop_numbers(self, frame: Frame) -> tuple[Parameter, ...]:
        wanted = (frame.block, "BLOCK", "LOOP_WARPS", "PARTS")
        return constants(self._offered, self._chosen, wanted)

    def _one(
        self,
        frame: Frame,
        body: tuple[str, ...],
        grid: str,
        warps: str,
        numbers: tuple[Parameter, ...],
    ) -> Written:
        """One kernel, and what reduces over its rows."""
        text = "\n".join(body)
        launch = Launch(
            kernel=self._name,
            doc=f"Reduces {'columns' if self._across else 'rows'}.",
            operands=(
                *operands(self._program, self._keys, body),
                *part_operands(self._program),
            ),
            numbers=rows_argument(frame, body),
            constants=tuple((c.name, c.name) for c in numbers if c.name in text),
            grid=(grid,),
            options=(("num_warps", warps),),
            body=body,
        )
        after = combined(self._program, frame, self._name, self._keys, frame.least_programs)
        return Written(
            launches=(launch, *after.launches), scratches=after.scratches, constants=numbers
        )

    def _split(self) -> Written:
        frame = self._frame(False)
        exact = frame.swept % self._most("block") == 0
        parted = Parted(frame, self._name, self._keys, self._merged, exact, self._options)
        numbers = self._loop_numbers(frame)
        sizes = tuple((c.name, c.name) for c in numbers if c.name != "LOOP_WARPS")
        return Written(
            launches=parted.launches(sizes, (("num_warps", "LOOP_WARPS"),)),
            scratches=parted.scratches(),
            constants=numbers,
        )
