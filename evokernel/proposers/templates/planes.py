"""Owns the loop structure for rows of several lines, each of which is swept like a row."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

from evokernel.proposers.templates import emit
from evokernel.proposers.templates.addressing import line_starts, pointers
from evokernel.proposers.templates.choices import Space, Value
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.folds import Fold
from evokernel.proposers.templates.kernel import Kernel, target_pointers, targets
from evokernel.proposers.templates.merged import MergedWriter
from evokernel.proposers.templates.rows import RowsWriter, schedule_choice, sweep_choices
from evokernel.proposers.templates.styles import style_choices
from evokernel.proposers.templates.sweep import SweepWriter, Work
from evokernel.proposers.templates.totals import total_identity, total_type


def space(program: Program) -> Space:
    """Every way to write a program of rows with several lines."""
    choices = (*style_choices(program), *sweep_choices(program, {}), schedule_choice({}))
    return Space(family="planes", choices=choices)


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a program of rows with several lines."""
    return _Writer(program, choices, function).write()


class _Writer(RowsWriter):
    """Writes one kernel."""

    def _pointers(self) -> None:
        self._text.extend(pointers(self._program))

    def _merged(self, writer: MergedWriter, work: Work) -> None:
        writer.begin()
        with self._lines():
            writer.lines(work, self._span, self._line(work))
        writer.finish(work)

    def _separate(self, work: Work) -> dict[int, str]:
        totals = {i: f"{self._program.values[i].name}_lines_" for i in work.reductions}
        for i, name in totals.items():
            kind, identity = total_type(self._program, i), total_identity(self._program, i)
            self._text.add(f"{kind} {name} = {identity};")
        with self._lines():
            writer = SweepWriter(self._program, self._style, self._text)
            known = self._line(work)
            found = writer.write(work, self._span, targets(self._program), known)
            for i, total in found.items():
                step = Fold.of(self._program, i, "scalar").step(totals[i], total)
                self._text.add(step)
        return totals

    def _lines(self) -> AbstractContextManager[None]:
        return self._text.block(f"for (int64_t d = 0; d < {self._program.domain.lines}; ++d)")

    def _line(self, work: Work) -> dict[int, str]:
        """Pointers of a line, and the values that all its columns share."""
        for start in line_starts(self._program):
            self._text.add(f"{start.type} {start.name} = {start.place};")
        if work.outputs:
            self._text.extend(target_pointers(self._program))
        shared = self._program.per_line(work.wanted(self._program))
        block = emit.elements(self._program, shared, "scalar")
        self._text.extend(block.lines)
        return {i: block.names[i] for i in shared}
