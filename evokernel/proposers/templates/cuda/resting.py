"""Owns the values per row and the single ones: declared once, when they become known."""

from __future__ import annotations

from collections.abc import Iterable

from evokernel.proposers.templates.cuda.kernel import outputs_at
from evokernel.proposers.templates.cuda.statements import Where, statements
from evokernel.proposers.templates.expressions import Constant, Level, Program, Reduce
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.literals import literal


class Resting:
    """Writes declarations and stores; reductions go by their names."""

    def __init__(self, program: Program, text: Lines) -> None:
        self._program = program
        self._text = text
        self._names = {i: v.name for i, v in enumerate(program.values) if isinstance(v, Reduce)}

    def declare(self, wanted: Iterable[int]) -> None:
        """Write the statements that make these values."""
        block = statements(self._program, tuple(wanted), Where(), self._names)
        self._text.extend(block.lines)
        self._names = block.names

    def forget(self, level: Level) -> None:
        """Let values of one level be declared again, in another scope."""
        self._names = {
            i: name
            for i, name in self._names.items()
            if isinstance(v := self._program.values[i], Reduce) or v.level is not level
        }

    def level(self, wanted: Iterable[int], level: Level) -> tuple[int, ...]:
        """Those values that live at one level."""
        return tuple(i for i in wanted if self._program.values[i].level is level)

    def name(self, value: int) -> str:
        """What a value is called."""
        found = self._program.values[value]
        if isinstance(found, Constant):
            return literal(found.number, found.dtype)
        return self._names[value]

    def store(self, level: Level, index: str, condition: str = "") -> None:
        """Write the outputs of one level, those aside that need all rows."""
        guard = f"if ({condition}) " if condition else ""
        for number in outputs_at(self._program, level):
            output = self._program.outputs[number]
            if output.value not in self._program.last:
                place = output.name if index == "0" else f"{output.name} + {index}"
                self._text.add(f"{guard}gpu::put({place}, {self.name(output.value)});")
