"""Owns `Kernel`: the C++ of a candidate, and the parts that every loop structure has."""

from collections.abc import Iterable, Sequence

from evokernel.frozen import Frozen
from evokernel.proposers.templates import emit
from evokernel.proposers.templates.addressing import Start, output_row, parameters
from evokernel.proposers.templates.expressions import Constant, Level, Program
from evokernel.proposers.templates.header import preamble
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.literals import C_TYPES


class Kernel(Frozen):
    """A C++ source with one function to call."""

    source: str
    """The whole file."""
    function: str
    """Name of the function."""
    sizes: tuple[str, ...]
    """What it takes behind its sources and outputs: `rows` or `cols`, where they are free, and
    `threads`."""


def head(function: str, program: Program, sizes: Sequence[str]) -> str:
    """The function's first line."""
    pointers = [p.declaration for p in parameters(program)]
    numbers = ["int threads" if size == "threads" else f"int64_t {size}" for size in sizes]
    return f'extern "C" void {function}({", ".join([*pointers, *numbers])})'


def finished(function: str, text: Lines, sizes: tuple[str, ...]) -> Kernel:
    """The kernel whose function `text` defines."""
    body = text.text()
    return Kernel(source=f"{preamble(body)}\n{body}", function=function, sizes=sizes)


def outputs_at(program: Program, level: Level) -> tuple[int, ...]:
    """Outputs with one number per element, per row, or at all."""
    return tuple(n for n, o in enumerate(program.outputs) if program.values[o.value].level is level)


def targets(program: Program) -> dict[int, str]:
    """Per ELEMENT output the name of the pointer to where a row or line of it begins."""
    return {n: _target(program, n) for n in outputs_at(program, Level.ELEMENT)}


def target_pointers(program: Program) -> Iterable[str]:
    """Declarations of those pointers that differ between rows or lines."""
    return (f"{start.type} {start.name} = {start.place};" for start in target_starts(program))


def target_starts(program: Program, line: str = "d") -> Iterable[Start]:
    """Those pointers that differ between rows or lines."""
    for number, name in targets(program).items():
        output = program.outputs[number]
        if name != output.name:
            place = output_row(program, number, line=line)
            yield Start(name=name, type=f"{C_TYPES[output.dtype]}*", place=place)


def _target(program: Program, number: int) -> str:
    name = program.outputs[number].name
    if program.domain.depth:
        return f"{name}_line_"
    return f"{name}_row_" if output_row(program, number) != name else name


class Resting:
    """Declares ROW and SCALAR values, each once, in the order in which they become known."""

    def __init__(self, program: Program, text: Lines) -> None:
        self._program = program
        self._text = text
        self._names: dict[int, str] = {}

    def declare(self, wanted: Iterable[int]) -> None:
        """Write the statements that make these values."""
        block = emit.at_rest(self._program, tuple(wanted), known=self._names)
        self._text.extend(block.lines)
        self._names.update(block.names)

    def rename(self, value: int, name: str) -> None:
        """Let a value be known that other statements have made."""
        self._names[value] = name

    def level(self, wanted: Iterable[int], level: Level) -> tuple[int, ...]:
        """Those values that live at one level."""
        return tuple(i for i in wanted if self._program.values[i].level is level)

    def store(self, level: Level, index: str) -> None:
        """Write the outputs of one level."""
        for number in outputs_at(self._program, level):
            output = self._program.outputs[number]
            if isinstance(self._program.values[output.value], Constant):
                self.declare([output.value])
            self._text.add(f"{output.name}[{index}] = {self._names[output.value]};")
