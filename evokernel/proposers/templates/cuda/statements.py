"""Owns the way from values of a program to CUDA statements: one number per thread at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from evokernel.frozen import Frozen
from evokernel.proposers.templates.addressing import element
from evokernel.proposers.templates.cuda.accumulators import carry_type
from evokernel.proposers.templates.cuda.spelling import C_TYPES, COMBINE, OPERATORS
from evokernel.proposers.templates.domain import Access, Inside, Walk
from evokernel.proposers.templates.expressions import (
    Constant,
    Level,
    Load,
    Map,
    Pick,
    Program,
    Reduce,
    Scan,
)
from evokernel.proposers.templates.literals import literal

_SIMPLE = re.compile(r"[\w.\[\]]+")


class Where(Frozen):
    """The place in the grid that statements are about, as CUDA expressions of type `int`."""

    row: str = "r"
    line: str | tuple[str, ...] = "d_"
    """The line's number, or its indices along the axes of `domain.depth`."""
    column: str = "c_"


class Block(Frozen):
    """Statements, and what their results are called."""

    lines: tuple[str, ...]
    """Without indentation."""
    names: dict[int, str]
    """Value index to an identifier or a literal."""


def offset(program: Program, walk: Walk, where: Where) -> str:
    """Where in its tensor the walk's element at a place lies; sums and products are wide."""
    start = element(program.domain, walk, where.row, where.line)
    terms = [] if start == "0" else [re.sub(r"\* (\d+)", r"* \1LL", start)]
    if walk.step:
        column = where.column if _SIMPLE.fullmatch(where.column) else f"({where.column})"
        terms.append(column if walk.step == 1 else f"{column} * {walk.step}")
    return " + ".join(terms) or "0"


def address(program: Program, access: Access, where: Where) -> str:
    """A pointer to what an access reads at a place."""
    name, place = program.sources[access.source].name, offset(program, access, where)
    return name if place == "0" else f"{name} + {place}"


def inside(program: Program, guard: Inside, where: Where) -> str:
    """Whether a guard lets a place pass; a negative index is a large unsigned one."""
    start = element(program.domain, guard.walk, where.row, where.line)
    step = guard.walk.step
    column = f" + ({where.column}) * {step}" if step else ""
    return f"static_cast<unsigned int>({start}{column}) < {guard.size}u"


def statements(
    program: Program,
    wanted: Iterable[int],
    where: Where,
    known: Mapping[int, str] | None = None,
    carries: Mapping[int, str] | None = None,
) -> Block:
    """Statements that compute values at a place.

    Args:
        program: The program.
        wanted: Values whose results are needed.
        where: The place.
        known: Values that exist already, by name. Reductions have to be among them.
        carries: Scans that run on from here, by the variable of what they have so far.
    """
    return _Writer(program, where, dict(known or {}), carries or {}).write(wanted)


def lower_values(program: Program) -> dict[int, str]:
    """Names of the values per row and of the single ones, which a sweep finds declared."""
    return {
        i: v.name
        for i, v in enumerate(program.values)
        if v.level is not Level.ELEMENT and not isinstance(v, Constant)
    }


class _Writer:
    def __init__(
        self, program: Program, where: Where, names: dict[int, str], carries: Mapping[int, str]
    ) -> None:
        self._program = program
        self._carries = carries
        self._where = where
        self._names = names
        self._lines: list[str] = []

    def write(self, wanted: Iterable[int]) -> Block:
        for index in self._program.closure(wanted, self._names):
            self._value(index)
        return Block(lines=tuple(self._lines), names=self._names)

    def _value(self, index: int) -> None:
        value = self._program.values[index]
        match value:
            case Constant():
                self._names[index] = literal(value.number, value.dtype)
            case Load():
                self._declare(index, self._load(value))
            case Pick():
                self._declare(index, self._pick(value))
            case Map():
                self._declare(index, self._map(value))
            case Scan() if index in self._carries:
                carry, kind = self._carries[index], carry_type(value)
                taken = f"static_cast<{kind}>({self._names[value.arg]})"
                self._lines.append(f"{carry} = {COMBINE[value.op]}()({carry}, {taken});")
                self._declare(index, f"static_cast<{C_TYPES[value.dtype]}>({carry})")
            case Reduce() | Scan():
                raise ValueError(f"`{value.name}` must be known before it is used")

    def _declare(self, index: int, text: str) -> None:
        value = self._program.values[index]
        self._lines.append(f"const {C_TYPES[value.dtype]} {value.name} = {text};")
        self._names[index] = value.name

    def _load(self, value: Load) -> str:
        source = self._program.sources[value.access.source].name
        text = f"gpu::real({source}[{offset(self._program, value.access, self._where)}])"
        guards = [inside(self._program, g, self._where) for g in value.access.guards]
        zero = literal(0, value.dtype)
        return f"{' && '.join(guards)} ? {text} : {zero}" if guards else text

    def _pick(self, value: Pick) -> str:
        index, cols = self._names[value.index], self._program.domain.cols
        column = f"{index} >= 0 && {index} < {cols} ? {index} : 0"
        source = self._program.sources[value.access.source].name
        where = self._where.model_copy(update={"column": column})
        return f"gpu::real({source}[{offset(self._program, value.access, where)}])"

    def _map(self, value: Map) -> str:
        args = [self._names[a] for a in value.args]
        template, one = OPERATORS[value.op], literal(1, value.dtype)
        if value.op == "cast" and value.dtype == "bool":
            template = "{0} != 0"
        return template.format(*map(_guarded, args), t=C_TYPES[value.dtype], one=one)


def _guarded(name: str) -> str:
    """A negative literal in parentheses: `a - -1` reads badly, `--1` not at all."""
    return f"({name})" if name.startswith(("-", "(")) else name
