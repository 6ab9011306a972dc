"""Owns the arrays in which a block of columns keeps its running results and finished numbers."""

from collections.abc import Iterator
from functools import cached_property

from evokernel.frozen import Frozen
from evokernel.proposers.templates.expressions import Level, Program, Reduce, Scan, arguments
from evokernel.proposers.templates.folds import PLACES, carry_type
from evokernel.proposers.templates.literals import C_TYPES, identity
from evokernel.proposers.templates.totals import total_type


class Memory(Frozen):
    """An array with one element per column of a block."""

    name: str
    type: str
    """C++ type of an element."""


class Memories(Frozen):
    """The arrays of a program of columns."""

    program: Program

    @property
    def all(self) -> tuple[Memory, ...]:
        """Every array, in the order of the values."""
        found = [memory for i in self._folding for memory, _ in self.starts(i)]
        return (*found, *(self.kept(i) for i in self.later))

    @cached_property
    def _folding(self) -> tuple[int, ...]:
        return tuple(
            i
            for i, v in enumerate(self.program.values)
            if isinstance(v, Scan) or (isinstance(v, Reduce) and v.level is Level.ROW)
        )

    @cached_property
    def later(self) -> tuple[int, ...]:
        """ROW values that a later sweep, a later stage or the end needs."""
        stages, values = self.program.stages, self.program.values
        found: set[int] = set()
        for index, value in enumerate(values):
            for arg in arguments(value):
                apart = value.level is not Level.ROW or stages[arg] != stages[index]
                if values[arg].level is Level.ROW and apart:
                    found.add(arg)
        return tuple(sorted(found))

    def running(self, value: int) -> Memory:
        """Where a reduction or scan accumulates; of a place, where the best number is."""
        found = self.program.values[value]
        if isinstance(found, Scan):
            return Memory(name=f"{found.name}_carry_", type=carry_type(found))
        if isinstance(found, Reduce) and found.op in PLACES:
            kind = C_TYPES[self.program.values[found.arg].dtype]
            return Memory(name=f"{found.name}_best_", type=kind)
        return Memory(name=f"{found.name}_acc_", type=total_type(self.program, value))

    def place(self, value: int) -> Memory:
        """Where the places of a reduction are."""
        return Memory(name=f"{self.program.values[value].name}_at_", type="int32_t")

    def kept(self, value: int) -> Memory:
        """Where a finished ROW value is."""
        found = self.program.values[value]
        return Memory(name=f"{found.name}_kept_", type=C_TYPES[found.dtype])

    def starts(self, value: int) -> Iterator[tuple[Memory, str]]:
        """What a reduction or scan accumulates in, and what each begins with."""
        found, memory = self.program.values[value], self.running(value)
        assert isinstance(found, Reduce | Scan)
        if found.op in PLACES:
            dtype = self.program.values[found.arg].dtype
            yield memory, identity(found.op.removeprefix("arg"), dtype)
            yield self.place(value), "0"
        else:
            yield memory, f"{memory.type}({identity(found.op, found.dtype)})"
