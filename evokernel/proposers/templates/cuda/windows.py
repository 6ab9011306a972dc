"""Owns kernels of pooling: a thread per result goes through its window, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from evokernel.proposers.templates.choices import Space, Value
from evokernel.proposers.templates.cuda.accumulators import finished, fold, single
from evokernel.proposers.templates.cuda.kernel import (
    Launch,
    Part,
    head,
    names,
    outputs_at,
    parameters,
)
from evokernel.proposers.templates.cuda.statements import Where, inside, statements
from evokernel.proposers.templates.cuda.styles import as_chosen, functions_choice, numbers
from evokernel.proposers.templates.expressions import Level, Program, Reduce, arguments
from evokernel.proposers.templates.lines import Lines

_UNROLLED = 64
"""Places of a window up to which each is written out (ours)."""


def space(program: Program) -> Space:
    """Every way to write a program of windows."""
    choices = (
        numbers("unroll", 2, (1, 4), "loop-unrolling"),
        numbers("threads", 256, (128, 512), "block-size"),
        *functions_choice(program),
    )
    return Space(family="windows", choices=choices)


def part(program: Program, choices: Mapping[str, Value], function: str) -> Part:
    """Write a program of windows."""
    return _Writer(as_chosen(program, choices), choices, function).part()


class _Writer:
    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = program
        self._function = function
        self._text = Lines()
        self._unroll = int(choices.get("unroll", 1))
        self._threads = int(choices.get("threads", 256))
        self._lower = {i: program.values[i].name for i in self._scalars()}

    def _scalars(self) -> list[int]:
        values = self._program.values
        return [i for i in self._program.before if values[i].level is Level.SCALAR]

    def part(self) -> Part:
        """Write the text and its launch."""
        share, cols = self._threads * self._unroll, self._program.domain.cols
        with self._text.block(
            head(self._function, self._threads, [*parameters(self._program), "int results"])
        ):
            self._text.extend(statements(self._program, self._scalars(), Where()).lines)
            self._text.add("#pragma unroll")
            with self._text.block(f"for (int j_ = 0; j_ < {self._unroll}; ++j_)"):
                first = f"blockIdx.x * {share} + j_ * {self._threads} + threadIdx.x"
                self._text.add(f"const int p_ = {first};")
                with self._text.block("if (p_ < results)"):
                    self._text.add(f"const int r = p_ / {cols};", f"const int c_ = p_ % {cols};")
                    self._result()
        launch = Launch(
            function=self._function,
            grid=f"-(-(rows * {cols}) // {share})",
            block=self._threads,
            tensors=tuple(names(self._program)),
            sizes=(f"rows * {cols}",),
        )
        return Part(text=self._text.text(), launches=(launch,))

    def _result(self) -> None:
        """One number of each output."""
        program = self._program
        (sweep,) = program.passes
        found = [single(program, i) for i in sweep.reductions]
        self._text.extend(each.declared() for each in found)
        if program.domain.lines <= _UNROLLED:
            for place in product(*(range(size) for size in program.domain.depth)):
                self._text.add("{")
                self._line(tuple(str(index) for index in place))
                self._text.add("}")
        else:
            with self._text.block(f"for (int d_ = 0; d_ < {program.domain.lines}; ++d_)"):
                self._line("d_")
        known = dict(self._lower)
        for each in found:
            index = each.reductions[0]
            self._text.extend(finished(program, each, each.variable))
            known[index] = program.values[index].name
        outputs = [program.outputs[n] for n in outputs_at(program, Level.ROW)]
        block = statements(program, [o.value for o in outputs], Where(), known)
        self._text.extend(block.lines)
        for output in outputs:
            self._text.add(f"gpu::put({output.name} + p_, {block.names[output.value]});")

    def _line(self, line: str | tuple[str, ...]) -> None:
        """One place of the window, if it is inside of the tensor."""
        program, where = self._program, Where(line=line)
        reductions = program.passes[0].reductions
        values = [program.values[i] for i in reductions]
        first = values[0]
        assert isinstance(first, Reduce)
        guards = " && ".join(inside(program, guard, where) for guard in first.guards)
        if guards:
            self._text.add(f"if ({guards}) {{")
        taken = [a for value in values for a in arguments(value)]
        block = statements(program, taken, where, self._lower)
        self._text.extend(block.lines)
        for i in reductions:
            each = single(program, i)
            self._text.extend(fold(program, each, block.names, "0"))
        if guards:
            self._text.add("}")
