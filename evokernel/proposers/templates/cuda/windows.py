"""Owns kernels of pooling: a thread goes through the windows of some results side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.choices import Choice, Option, Space, Value
from evokernel.proposers.templates.cuda.accumulators import finished, fold, single
from evokernel.proposers.templates.cuda.kernel import (
    Launch,
    Part,
    head,
    names,
    outputs_at,
    parameters,
)
from evokernel.proposers.templates.cuda.spelling import C_TYPES
from evokernel.proposers.templates.cuda.statements import Where, inside, offset, statements
from evokernel.proposers.templates.cuda.styles import as_chosen, functions_choice, numbers
from evokernel.proposers.templates.expressions import Level, Load, Program, Reduce, arguments
from evokernel.proposers.templates.lines import Lines

_UNROLLED = 64
"""Places of a window up to which each is written out (ours)."""


def space(program: Program) -> Space:
    """Every way to write a program of windows."""
    packs, one = Option(value="packs", technique="vectorized-loads"), Option(value="single")
    choices = (
        *((Choice(name="access", options=(packs, one)),) * (_width(program) > 1)),
        numbers("unroll", 1, (2, 4), "loop-unrolling"),
        numbers("threads", 256, (128, 512), "block-size"),
        *functions_choice(program),
    )
    return Space(family="windows", choices=choices)


def part(program: Program, choices: Mapping[str, Value], function: str) -> Part:
    """Write a program of windows."""
    return _Writer(as_chosen(program, choices), choices, function).part()


def _loads(program: Program) -> list[Load]:
    return [v for v in program.values if isinstance(v, Load) and v.level is Level.ELEMENT]


def _width(program: Program) -> int:
    """Results side by side whose windows can be read in packs; 1 if they cannot."""
    loads, domain = _loads(program), program.domain
    if domain.lines > _UNROLLED or any(v.access.guards or v.access.step < 1 for v in loads):
        return 1
    width = domain.cols
    for load in loads:
        source = program.sources[load.access.source]
        numbers = (16 // itemsize(source.dtype), math.prod(source.shape), *load.access.strides)
        width = math.gcd(width, *numbers)
    return width


class _Writer:
    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = program
        self._function = function
        self._text = Lines()
        self._unroll = int(choices.get("unroll", 1))
        self._threads = int(choices.get("threads", 256))
        self._width = _width(program) if choices.get("access") == "packs" else 1
        self._loaded: dict[tuple[int, str], str] = {}
        scalars = (i for i in program.before if program.values[i].level is Level.SCALAR)
        self._lower = {i: program.values[i].name for i in scalars}
        self._found = [single(program, i) for i in program.passes[0].reductions]

    def part(self) -> Part:
        """Write the text and its launch."""
        share, per_row = self._threads * self._unroll, self._program.domain.cols // self._width
        declared = [*parameters(self._program), "int results"]
        with self._text.block(head(self._function, self._threads, declared)):
            self._text.extend(statements(self._program, self._lower, Where()).lines)
            self._text.add("#pragma unroll")
            with self._text.block(f"for (int j_ = 0; j_ < {self._unroll}; ++j_)"):
                first = f"blockIdx.x * {share} + j_ * {self._threads} + threadIdx.x"
                self._text.add(f"const int p_ = {first};")
                with self._text.block("if (p_ < results)"):
                    times = f" * {self._width}" if self._width > 1 else ""
                    self._text.add(
                        f"const int r = p_ / {per_row};", f"const int c_ = p_ % {per_row}{times};"
                    )
                    self._results()
        launch = Launch(
            function=self._function,
            grid=f"-(-(rows * {per_row}) // {share})",
            block=self._threads,
            tensors=tuple(names(self._program)),
            sizes=(f"rows * {per_row}",),
        )
        return Part(text=self._text.text(), launches=(launch,))

    @property
    def _lanes(self) -> str:
        self._text.add("#pragma unroll")
        return f"for (int k_ = 0; k_ < {self._width}; ++k_)"

    def _results(self) -> None:
        """Some numbers of each output, side by side."""
        program = self._program
        for each in self._found:
            self._text.add(f"{each.type} {each.variable}[{self._width}];")
            start = f"{self._lanes} {each.variable}[k_] = {each.restart};"
            self._text.add(start)
        if program.domain.lines <= _UNROLLED:
            places = list(product(*(range(size) for size in program.domain.depth)))
            read = [self._read(place) if self._width > 1 else {} for place in places]
            for place, known in zip(places, read, strict=True):
                self._line(tuple(str(index) for index in place), known)
        else:
            with self._text.block(f"for (int d_ = 0; d_ < {program.domain.lines}; ++d_)"):
                self._line("d_", {})
        self._store()

    def _read(self, place: tuple[int, ...]) -> dict[int, str]:
        """Load the packs that a place needs; for each load its element for result `k_`."""
        program, width = self._program, self._width
        found: dict[int, str] = {}
        for i, value in enumerate(program.values):
            if not isinstance(value, Load) or value.level is not Level.ELEMENT:
                continue
            access = value.access
            moved = zip(access.depth, place, strict=True)
            start = access.offset + sum(stride * index for stride, index in moved)
            apart, element = start % width, f"(k_ * {access.step} + {start % width})"
            packs = []
            for n in range((apart + (width - 1) * access.step) // width + 1):
                walk = access.model_copy(
                    update={"offset": start - apart + n * width, "depth": (0,) * len(place)}
                )
                packs.append(self._pack(access.source, offset(program, walk, Where(line="0"))))
            text = f"{packs[-1]}.at[{element} % {width}]"
            for n in reversed(range(len(packs) - 1)):
                mine = f"{packs[n]}.at[{element} % {width}]"
                text = f"{element} < {(n + 1) * width} ? {mine} : {text}"
            found[i] = f"gpu::real({text})"
        return found

    def _pack(self, source: int, place: str) -> str:
        """The name of a pack, loaded unless it is outside of the tensor."""
        if (source, place) not in self._loaded:
            found = self._program.sources[source]
            name = self._loaded[source, place] = f"{found.name}_q{len(self._loaded)}_"
            size, kind = math.prod(found.shape), C_TYPES[found.dtype]
            test = f"static_cast<unsigned long long>({place}) < {size}ull"
            self._text.add(f"gpu::Pack<{kind}, {self._width}> {name} = {{}};")
            load = f"gpu::load<{self._width}>({found.name} + {place})"
            self._text.add(f"if ({test}) {name} = {load};")
        return self._loaded[source, place]

    def _line(self, line: str | tuple[str, ...], read: Mapping[int, str]) -> None:
        """One place of each window, where it is inside of the tensor."""
        program, where = self._program, Where(line=line, column="(c_ + k_)")
        values = [program.values[each.reductions[0]] for each in self._found]
        assert isinstance(values[0], Reduce)
        guards = " && ".join(inside(program, guard, where) for guard in values[0].guards)
        with self._text.block(self._lanes), self._text.block(f"if ({guards})" if guards else ""):
            known = dict(self._lower)
            for i, text in read.items():
                load = program.values[i]
                self._text.add(f"const {C_TYPES[load.dtype]} {load.name} = {text};")
                known[i] = load.name
            taken = [a for value in values for a in arguments(value)]
            block = statements(program, taken, where, known)
            self._text.extend(block.lines)
            for each in self._found:
                so_far = f"{each.variable}[k_]"
                self._text.extend(fold(program, each, block.names, "0", so_far))

    def _store(self) -> None:
        program = self._program
        outputs = [program.outputs[n] for n in outputs_at(program, Level.ROW)]
        for output in outputs:
            kind = C_TYPES[program.values[output.value].dtype]
            self._text.add(f"{kind} {output.name}_v_[{self._width}];")
        with self._text.block(self._lanes):
            known = dict(self._lower)
            for each in self._found:
                index = each.reductions[0]
                self._text.extend(finished(program, each, f"{each.variable}[k_]"))
                known[index] = program.values[index].name
            where = Where(column="(c_ + k_)")
            block = statements(program, [o.value for o in outputs], where, known)
            self._text.extend(block.lines)
            self._text.extend(f"{o.name}_v_[k_] = {block.names[o.value]};" for o in outputs)
        for output in outputs:
            packed = f"gpu::packed<{C_TYPES[output.dtype]}>({output.name}_v_)"
            place = f"p_ * {self._width}LL" if self._width > 1 else "p_"
            self._text.add(f"gpu::store({output.name} + {place}, {packed});")
