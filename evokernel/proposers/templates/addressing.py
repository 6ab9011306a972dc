"""Owns where values lie in memory: the kernel's parameters and the pointers of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evokernel.frozen import Frozen
from evokernel.proposers.templates.expressions import Access, Load, Pick, Program
from evokernel.proposers.templates.literals import C_TYPES


class Parameter(Frozen):
    """A pointer parameter of the kernel."""

    name: str
    declaration: str
    """`const float* x` or `float* out`."""


def parameters(program: Program) -> tuple[Parameter, ...]:
    """Sources in order, then outputs in order."""
    read = [(s.name, f"const {C_TYPES[s.dtype]}* {s.name}") for s in program.sources]
    written = [(o.name, f"{C_TYPES[o.dtype]}* {o.name}") for o in program.outputs]
    return tuple(Parameter(name=n, declaration=d) for n, d in (*read, *written))


def pointer(program: Program, access: Access) -> str:
    """The name that `pointers` gives to where a row of this access begins."""
    source = program.sources[access.source]
    if not _moves(access):
        return source.name
    others = [a for a in _row_accesses(program) if a.source == access.source]
    number = others.index(access)
    return f"{source.name}_row{number + 1 if number else ''}"


def _row_accesses(program: Program) -> list[Access]:
    """Accesses that need a pointer per row, each once, in order."""
    found: dict[Access, None] = {}
    for value in program.values:
        if isinstance(value, Load | Pick) and value.access.step == 1 and _moves(value.access):
            found[value.access] = None
    return list(found)


def _moves(access: Access) -> bool:
    return access.offset != 0 or any(access.strides)


def pointers(program: Program, row: str = "r") -> tuple[str, ...]:
    """Statements that a row begins with: one pointer per access that differs between rows."""
    lines: list[str] = []
    for access in _row_accesses(program):
        source = program.sources[access.source]
        start = element(program, access, row)
        name = pointer(program, access)
        lines.append(f"const {C_TYPES[source.dtype]}* {name} = {source.name} + {start};")
    return tuple(lines)


def element(program: Program, access: Access, row: str = "r") -> str:
    """The index of a row's first element, as a C++ expression of the row's number."""
    terms = [] if access.offset == 0 else [str(access.offset)]
    for begin, end, stride in _axes(program.domain.outer, access.strides):
        index = _axis_index(program.domain.outer, begin, end, row)
        terms.append(index if stride == 1 else f"{index} * {stride}")
    return " + ".join(terms) or "0"


def _axes(outer: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs [begin, end) of outer axes that an access walks evenly, with their innermost stride."""
    runs: list[tuple[int, int, int]] = []
    for axis, stride in enumerate(strides):
        if stride == 0:
            continue
        if runs and runs[-1][1] == axis and runs[-1][2] == stride * outer[axis]:
            runs[-1] = (runs[-1][0], axis + 1, stride)
        else:
            runs.append((axis, axis + 1, stride))
    return runs


def _axis_index(outer: Sequence[int], begin: int, end: int, row: str) -> str:
    below = math.prod(outer[end:])
    # C++ reads `a / b % c * d` from the left, which is what is meant.
    text = row if below == 1 else f"{row} / {below}"
    return text if begin == 0 else f"{text} % {math.prod(outer[begin:end])}"


def output_row(program: Program, output: int, row: str = "r") -> str:
    """Where row `r` of an ELEMENT output begins, as a C++ expression."""
    name = program.outputs[output].name
    return f"{name} + {row} * {program.domain.cols}" if program.domain.outer else name
