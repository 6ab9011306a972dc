"""Owns point-wise kernels: every element by itself, several packs per thread."""

from __future__ import annotations

from collections.abc import Mapping

from evokernel.proposers.templates.choices import Space, Value
from evokernel.proposers.templates.cuda.kernel import (
    Launch,
    Part,
    head,
    names,
    outputs_at,
    parameters,
)
from evokernel.proposers.templates.cuda.packs import Packs
from evokernel.proposers.templates.cuda.statements import Where, statements
from evokernel.proposers.templates.cuda.styles import (
    as_chosen,
    caching_of,
    functions_choice,
    numbers,
    reads_choice,
    width_choice,
    width_of,
    writes_choice,
)
from evokernel.proposers.templates.expressions import Level, Program
from evokernel.proposers.templates.lines import Lines

_WAVES = 8
"""Blocks per multiprocessor of a grid that stays: 2048 threads of 256 (ours)."""


def space(program: Program) -> Space:
    """Every way to write a point-wise program."""
    choices = (
        *width_choice(program),
        numbers("unroll", 2, (1, 4, 8), "loop-unrolling"),
        numbers("threads", 256, (128, 512, 1024), "block-size"),
        numbers("grid", "whole", ("waves",), "persistent-grid"),
        *functions_choice(program),
        reads_choice(),
        writes_choice(),
    )
    return Space(family="elementwise", choices=choices)


def part(program: Program, choices: Mapping[str, Value], function: str) -> Part:
    """Write a point-wise program."""
    return _Writer(as_chosen(program, choices), choices, function).part()


class _Writer:
    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = program
        self._function = function
        self._text = Lines()
        self._unroll = int(choices.get("unroll", 1))
        self._threads = int(choices.get("threads", 256))
        self._stays = choices.get("grid") == "waves"
        self._width = width_of(program, choices)
        self._packs = Packs(program, self._width, caching_of(choices), self._text)
        self._outputs = outputs_at(program, Level.ELEMENT)

    def part(self) -> Part:
        domain, share = self._program.domain, self._threads * self._unroll
        per_row = domain.cols // self._width
        packs = f"rows * {per_row}" if domain.outer else f"cols // {self._width}"
        with self._text.block(
            head(self._function, self._threads, [*parameters(self._program), *self._sizes])
        ):
            self._once()
            self._all()
            self._rest()
        grid = f"-(-({packs}) // {share})"
        if self._stays:
            grid = f"min({grid}, wave * {max(_WAVES * 256 // self._threads, 1)})"
        launch = Launch(
            function=self._function,
            grid=f"max({grid}, 1)",
            block=self._threads,
            tensors=tuple(names(self._program)),
            sizes=(packs, *(["cols"] * (len(self._sizes) - 1))),
        )
        return Part(text=self._text.text(), launches=(launch,))

    @property
    def _sizes(self) -> list[str]:
        """Parameters behind the tensors; with a rest there is the number of elements too."""
        return ["int packs", "long long cols"] if self._has_rest else ["int packs"]

    @property
    def _has_rest(self) -> bool:
        """Whether the last pack may be incomplete, however many rows a call has."""
        domain, shape = self._program.domain, self._program.outputs[0].shape
        each = domain.cols // max(shape[0], 1) if shape else domain.cols
        return not domain.outer and each % self._width > 0

    def _once(self) -> None:
        """What exists once is made by every thread, and stored by the first."""
        scalars = [i for i in self._program.before if self._is(i, Level.SCALAR)]
        found = outputs_at(self._program, Level.SCALAR)
        wanted = [*scalars, *(self._program.outputs[n].value for n in found)]
        block = statements(self._program, wanted, Where())
        self._text.extend(block.lines)
        for number in found:
            output = self._program.outputs[number]
            store = f"gpu::put({output.name}, {block.names[output.value]});"
            self._text.add(f"if (blockIdx.x == 0 && threadIdx.x == 0) {store}")

    def _all(self) -> None:
        share = self._threads * self._unroll
        start = f"blockIdx.x * {share} + threadIdx.x"
        if self._stays:
            step = f"first_ += gridDim.x * {share}"
            with self._text.block(f"for (int first_ = {start}; first_ < packs; {step})"):
                self._share()
        else:
            self._text.add(f"const int first_ = {start};")
            self._share()

    def _share(self) -> None:
        """Load everything before the first number is used."""
        wanted = [self._program.outputs[n].value for n in self._outputs]
        streams = self._packs.streams(wanted)
        many = f"for (int j_ = 0; j_ < {self._unroll}; ++j_)"
        for i in streams:
            self._text.add(f"{self._packs.type_of(i)} {self._packs.name_of(i)}[{self._unroll}];")
        if streams and self._unroll > 1:
            self._text.add("#pragma unroll")
            with self._text.block(many):
                self._place()
                with self._text.block("if (p_ < packs)"):
                    self._loads(streams)
        self._text.add("#pragma unroll")
        with self._text.block(many):
            self._place()
            with self._text.block("if (p_ < packs)"):
                self._position()
                if self._unroll == 1:
                    self._loads(streams, placed=True)
                self._rows()
                packs = {i: f"{self._packs.name_of(i)}[j_]" for i in streams}
                self._packs.write(Where(), wanted, packs, outputs=self._outputs)

    def _place(self) -> None:
        self._text.add(f"const int p_ = first_ + j_ * {self._threads};")

    def _position(self) -> None:
        domain, width = self._program.domain, self._width
        if domain.outer:
            per_row = domain.cols // width
            times = f" * {width}" if width > 1 else ""
            self._text.add(
                f"const int r = p_ / {per_row};", f"const int c_ = p_ % {per_row}{times};"
            )
        else:
            self._text.add(f"const long long c_ = p_ * {width}LL;")

    def _loads(self, streams: tuple[int, ...], placed: bool = False) -> None:
        if not placed:
            self._position()
        for i in streams:
            self._text.add(f"{self._packs.name_of(i)}[j_] = {self._packs.load_text(i, Where())};")

    def _rows(self) -> None:
        rows = [i for i in self._program.before if self._is(i, Level.ROW)]
        found = outputs_at(self._program, Level.ROW)
        scalars = {i: self._program.values[i].name for i in self._program.before}
        known = {i: n for i, n in scalars.items() if self._is(i, Level.SCALAR)}
        wanted = [*rows, *(self._program.outputs[n].value for n in found)]
        block = statements(self._program, wanted, Where(), known)
        self._text.extend(block.lines)
        for number in found:
            output = self._program.outputs[number]
            put = f"gpu::put({output.name} + r, {block.names[output.value]});"
            self._text.add(f"if (c_ == 0) {put}")

    def _rest(self) -> None:
        """Elements behind the last full pack, one per thread."""
        if not self._has_rest or not self._outputs:
            return
        single = Packs(self._program, 1, caching_of({}), self._text)
        wanted = [self._program.outputs[n].value for n in self._outputs]
        self._text.add(f"const long long c_ = packs * {self._width}LL + threadIdx.x;")
        with self._text.block("if (blockIdx.x == 0 && c_ < cols)"):
            single.write(Where(), wanted, {}, outputs=self._outputs)

    def _is(self, value: int, level: Level) -> bool:
        return self._program.values[value].level is level
