"""Owns `Program`: what a fused kernel computes, as typed values over a grid of rows and columns.

A program looks at its tensors as a grid of `rows x cols`. Every value lives at one level:

    ELEMENT   one number per row and column: loads that vary along the columns, and what they make
    ROW       one number per row: row reductions, loads that do not vary along the columns
    SCALAR    one number: constants, one-element tensors, reductions over everything

There are six kinds of program, and each asks for another loop structure (`Program.kind`):

    "pointwise"   no reduction, no scan, no pick
    "rows"        reductions ELEMENT -> ROW, and scans along the columns. A reduction ROW -> SCALAR
                  may end it (losses); its result serves SCALAR values and outputs, never a row
    "flat"        one long row (`domain.outer == ()`): reductions go ELEMENT -> SCALAR and may be
                  cut anywhere into chunks, unless there are scans. Elements may use a SCALAR
                  result again in a later pass
    "planes"      rows that have several lines of columns each, `domain.depth` of them; reductions
                  run over all columns of all lines of a row
    "columns"     as above, but every column is by itself (`domain.across`): reductions and scans
                  run over the lines, and a ROW value is one number per row and column
    "windows"     pooling: columns whose lines are the places in a window. They overlap or lie
                  apart, and some of them may be outside of the tensor (`Reduce.guards`)

A row program needs one or more sweeps over the columns, `Program.passes`; softmax needs three by
definition: the maximum, the sum, the output. `lowering.lower` makes programs, `emit` turns their
values into C++ statements.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from evokernel.frozen import Frozen
from evokernel.proposers.templates.domain import Access, Domain, Inside, Walk

Number = bool | int | float
Reduction = Literal["sum", "prod", "max", "min", "fmax", "fmin", "any", "all", "argmax", "argmin"]
"""`max` and `min` give NaN if any is NaN; `fmax` and `fmin` may ignore NaN because it shows
elsewhere. `argmax` and `argmin` give the place of the first extremum, NaN being one."""


class Level(IntEnum):
    """How often a value exists; a result has at least the highest level of its arguments."""

    SCALAR = 0
    ROW = 1
    ELEMENT = 2


class Source(Frozen):
    """A tensor that the kernel reads; its elements lie contiguously in row-major order."""

    name: str
    """A C identifier, unique in the program, close to the name in the reference."""
    kind: Literal["input", "parameter", "constant"]
    """As in `opgraph.Node.kind`."""
    key: str
    """As in `opgraph.Node.op`: position of the input, or qualified name of the parameter or
    constant."""
    shape: tuple[int, ...]
    """As torch knows it."""
    dtype: str
    """`float32`, `bool`, `int64`, ..."""


class Load(Frozen):
    """The element of a source that belongs to the row and column."""

    kind: Literal["load"] = "load"
    name: str
    """A C identifier, unique among the program's values."""
    level: Level
    """ELEMENT where the access walks along what is reduced, else ROW or SCALAR."""
    dtype: str
    access: Access


class Constant(Frozen):
    """A number written into the source."""

    kind: Literal["constant"] = "constant"
    name: str
    level: Level = Level.SCALAR
    dtype: str
    number: Number


class Map(Frozen):
    """An operator applied to single numbers; `OPERATORS` lists them with their meaning."""

    kind: Literal["map"] = "map"
    name: str
    level: Level
    dtype: str
    op: str
    args: tuple[int, ...]
    """Indices into `Program.values`, all lower than this value's own."""


class Reduce(Frozen):
    """All columns of a row to one number, or all rows (in a flat program: all elements) to one."""

    kind: Literal["reduce"] = "reduce"
    name: str
    level: Level
    """ROW in a row program's row; SCALAR over all rows, or over all elements of a flat program."""
    dtype: str
    op: Reduction
    arg: int
    guards: tuple[Inside, ...] = ()
    """Elements for which one of them is false do not exist, and their loads would be outside."""


class Scan(Frozen):
    """Running reduction from the first column up to and including this one."""

    kind: Literal["scan"] = "scan"
    name: str
    level: Level = Level.ELEMENT
    dtype: str
    op: Reduction
    """`sum`, `prod`, `max` or `min`."""
    arg: int


class Pick(Frozen):
    """One element per row, whose column is a ROW value: the target of a cross-entropy.

    An index outside of [0, cols) reads column 0; whoever uses it selects it away.
    """

    kind: Literal["pick"] = "pick"
    name: str
    level: Level
    dtype: str
    access: Access
    index: int
    """The value that holds the column, int64."""


Value = Annotated[Load | Constant | Map | Reduce | Scan | Pick, Field(discriminator="kind")]


class Output(Frozen):
    """A tensor that the kernel writes, contiguous."""

    name: str
    """A C identifier, `out` or `out0`, `out1`, ..."""
    value: int
    """Index into `Program.values`; its level tells whether there is one per element, row or
    program."""
    shape: tuple[int, ...]
    """As torch knows it."""
    dtype: str
    walk: Walk | None = None
    """Where an ELEMENT output lies; None for the order of the grid, as all others have it."""


class Pass(Frozen):
    """One sweep over the columns of a row."""

    reductions: tuple[int, ...]
    """Reductions whose argument can be computed in this sweep, in order."""
    scans: tuple[int, ...]
    """Scans that run in this sweep, in order."""
    outputs: tuple[int, ...]
    """Indices into `Program.outputs` of the ELEMENT outputs that are stored in this sweep."""
    values: tuple[int, ...]
    """ELEMENT values that this sweep computes, loads included, in order."""
    after: tuple[int, ...]
    """ROW values (in a flat program: SCALAR) computed once this sweep is complete, in order,
    without reductions."""


class Program(Frozen):
    """What a fused kernel computes, in static single assignment form."""

    domain: Domain
    sources: tuple[Source, ...]
    """Tensors it reads, in the order of the graph's inputs and parameters."""
    values: tuple[Value, ...]
    """Topologically sorted; equal values occur once, unused ones not at all."""
    outputs: tuple[Output, ...]

    @cached_property
    def kind(self) -> Literal["pointwise", "rows", "flat", "planes", "columns", "windows"]:
        """Which loop structure it needs."""
        if self.domain.windows:
            return "windows"
        if self.domain.across:
            return "columns"
        if self.domain.depth:
            return "planes"
        if not any(isinstance(v, Reduce | Scan | Pick) for v in self.values):
            return "pointwise"
        return "rows" if self.domain.outer else "flat"

    @cached_property
    def dtypes(self) -> frozenset[str]:
        """Every dtype that occurs, constants aside."""
        return frozenset(v.dtype for v in self.values if not isinstance(v, Constant))

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """For each value the number of sweeps that must be complete before it can be computed."""
        stages: list[int] = []
        for value in self.values:
            stage = max((stages[i] for i in arguments(value)), default=0)
            swept = isinstance(value, Reduce) and self.values[value.arg].level is Level.ELEMENT
            stages.append(stage + 1 if swept else stage)
        return tuple(stages)

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """The sweeps over the columns, in order; empty only if no value lives at ELEMENT level."""
        element = [i for i, v in enumerate(self.values) if v.level is Level.ELEMENT]
        if not element:
            return ()
        return tuple(self._pass(number) for number in range(self._sweeps()))

    @cached_property
    def before(self) -> tuple[int, ...]:
        """ROW and SCALAR values that need no sweep, in order, without constants."""
        return self._at_rest(0)

    @cached_property
    def last(self) -> tuple[int, ...]:
        """SCALAR values ready only after all rows: reductions over rows and what they make."""
        found: set[int] = set()
        for i, value in enumerate(self.values):
            over_rows = isinstance(value, Reduce) and self.values[value.arg].level is Level.ROW
            if over_rows or any(a in found for a in arguments(value)):
                found.add(i)
        return tuple(sorted(found))

    def closure(self, wanted: Iterable[int], known: Iterable[int] = ()) -> tuple[int, ...]:
        """Values needed for `wanted`, themselves included, in order, down to those `known`."""
        done, todo = set(known), list(wanted)
        needed: set[int] = set()
        while todo:
            index = todo.pop()
            if index in done or index in needed:
                continue
            needed.add(index)
            todo.extend(arguments(self.values[index]))
        return tuple(sorted(needed))

    def elements(self, wanted: Iterable[int], known: Iterable[int] = ()) -> tuple[int, ...]:
        """ELEMENT values needed for `wanted` in one sweep, in order; lower levels are given."""
        lower = [i for i, v in enumerate(self.values) if v.level is not Level.ELEMENT]
        return self.closure([i for i in wanted if i not in lower], [*known, *lower])

    def repeated(self) -> tuple[int, ...]:
        """ELEMENT values, loads aside, that more than one pass computes: worth a cache if dear."""
        counts = [i for sweep in self.passes for i in sweep.values]
        return tuple(
            i for i, v in enumerate(self.values) if counts.count(i) > 1 and not isinstance(v, Load)
        )

    def columnwise(self, index: int) -> bool:
        """Whether an ELEMENT value is the same in every row, and so computable once for all."""
        leaves = [self.values[i] for i in self.closure([index])]
        return all(
            not (isinstance(v, Load) and any(v.access.strides))
            and not isinstance(v, Reduce | Scan | Pick)
            for v in leaves
        )

    def linewise(self, index: int) -> bool:
        """Whether a value is the same in every column of a line."""
        value = self.values[index]
        if value.level is not Level.ELEMENT:
            return not (self.domain.across and value.level is Level.ROW)
        if isinstance(value, Load):
            return not value.access.varies(columns=True)
        return not isinstance(value, Scan) and all(self.linewise(a) for a in arguments(value))

    def per_line(self, wanted: Iterable[int]) -> tuple[int, ...]:
        """ELEMENT values that all columns of a line share, as far as the columns use them."""
        wanted = set(wanted)
        elements = self.elements(wanted)
        same = {i for i in elements if self.linewise(i)}
        used = {a for i in elements if i not in same for a in arguments(self.values[i])}
        return tuple(sorted(same & (used | wanted)))

    def walks_rows(self, source: int) -> bool:
        """Whether a source has a part per row, or covers the whole of a program without rows."""
        accesses = [
            v.access
            for v in self.values
            if isinstance(v, Load | Pick) and v.access.source == source
        ]
        if not self.domain.outer:
            return any(a.step for a in accesses)
        return any(a.strides and a.strides[0] for a in accesses)

    def _sweeps(self) -> int:
        stages = [
            self.stages[o.value] for o in self.outputs if self._level(o.value) is Level.ELEMENT
        ]
        return max([s + 1 for s in stages] + [s for s in self.stages])

    def _level(self, index: int) -> Level:
        return self.values[index].level

    def _pass(self, number: int) -> Pass:
        reductions = tuple(
            i
            for i, v in enumerate(self.values)
            if isinstance(v, Reduce)
            and self._level(v.arg) is Level.ELEMENT
            and self.stages[i] == number + 1
        )
        outputs = tuple(
            n
            for n, o in enumerate(self.outputs)
            if self._level(o.value) is Level.ELEMENT and self.stages[o.value] == number
        )
        wanted = [self.values[i].arg for i in reductions]  # type: ignore[union-attr]
        values = self.elements([*wanted, *(self.outputs[n].value for n in outputs)])
        scans = tuple(i for i in values if isinstance(self.values[i], Scan))
        return Pass(
            reductions=reductions,
            scans=scans,
            outputs=outputs,
            values=values,
            after=self._at_rest(number + 1),
        )

    def _at_rest(self, stage: int) -> tuple[int, ...]:
        late = set(self.last)
        return tuple(
            i
            for i, v in enumerate(self.values)
            if v.level is not Level.ELEMENT
            and self.stages[i] == stage
            and i not in late
            and not isinstance(v, Constant | Reduce)
        )


class Unsupported(Exception):
    """The graph holds what programs cannot express; the message names operator, shape or dtype.

    An answer rather than an error: the templates turn it into `NoTemplate`.
    """


def arguments(value: Value) -> tuple[int, ...]:
    """Indices of the values that `value` is computed from."""
    match value:
        case Map():
            return value.args
        case Reduce() | Scan():
            return (value.arg,)
        case Pick():
            return (value.index,)
        case _:
            return ()
