"""Owns where values lie in memory: the kernel's parameters and the pointers of a row or line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from evokernel.frozen import Frozen
from evokernel.proposers.templates.domain import Access, Domain, Walk
from evokernel.proposers.templates.expressions import Load, Pick, Program
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
    """The name that `pointers` or `line_pointers` gives to where this access begins."""
    source = program.sources[access.source]
    if not _moves(access):
        return source.name
    by_line = any(access.depth)
    others = [a for a in _accesses(program, by_line) if a.source == access.source]
    number = others.index(access)
    return f"{source.name}_{'line' if by_line else 'row'}{number + 1 if number else ''}"


def _accesses(program: Program, by_line: bool) -> list[Access]:
    """Accesses that need a pointer per row, or one per line, each once, in order."""
    all_ = [v.access for v in program.values if isinstance(v, Load | Pick)]
    moving = (a for a in all_ if a.step and _moves(a) and any(a.depth) == by_line)
    return list(dict.fromkeys(moving))


def _moves(access: Access) -> bool:
    return access.offset != 0 or any(access.strides) or any(access.depth)


def pointers(program: Program, row: str = "r") -> tuple[str, ...]:
    """Statements that a row begins with: one pointer per access that differs between rows."""
    starts = _starts(program, by_line=False, row=row, line="")
    return tuple(f"{start.type} {start.name} = {start.place};" for start in starts)


class Start(Frozen):
    """Where a line begins in a tensor."""

    name: str
    type: str
    """Of the pointer, in C++."""
    place: str
    """C++ expression."""


def line_starts(
    program: Program, row: str = "r", line: str | Sequence[str] = "d"
) -> tuple[Start, ...]:
    """One pointer per access that differs between the lines of a row.

    Args:
        program: The program.
        row: The row's number, as a C++ expression.
        line: The line's number, or its indices along the axes of `domain.depth`.
    """
    return tuple(_starts(program, by_line=True, row=row, line=line))


def _starts(
    program: Program, *, by_line: bool, row: str, line: str | Sequence[str]
) -> Iterator[Start]:
    for access in _accesses(program, by_line):
        source = program.sources[access.source]
        yield Start(
            name=pointer(program, access),
            type=f"const {C_TYPES[source.dtype]}*",
            place=f"{source.name} + {element(program.domain, access, row, line)}",
        )


def element(domain: Domain, walk: Walk, row: str = "r", line: str | Sequence[str] = "d") -> str:
    """Where the first column of a row's line is, as a C++ expression of their numbers."""
    terms = [] if walk.offset == 0 else [str(walk.offset)]
    terms += _terms(domain.outer, walk.strides, row)
    if isinstance(line, str):
        terms += _terms(domain.depth, walk.depth, line)
    else:
        for index, stride in zip(line, walk.depth, strict=True):
            terms += _terms((1,), (stride,), index) if index != "0" else ()
    return " + ".join(terms) or "0"


def _terms(sizes: Sequence[int], strides: Sequence[int], index: str) -> Iterator[str]:
    for begin, end, stride in _axes(sizes, strides):
        place = _axis_index(sizes, begin, end, index)
        yield place if stride == 1 else f"{place} * {stride}"


def _axes(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs [begin, end) of axes that are walked evenly, with their innermost stride."""
    runs: list[tuple[int, int, int]] = []
    for axis, stride in enumerate(strides):
        if stride == 0:
            continue
        if runs and runs[-1][1] == axis and runs[-1][2] == stride * sizes[axis]:
            runs[-1] = (runs[-1][0], axis + 1, stride)
        else:
            runs.append((axis, axis + 1, stride))
    return runs


def _axis_index(sizes: Sequence[int], begin: int, end: int, index: str) -> str:
    below = math.prod(sizes[end:])
    # C++ reads `a / b % c * d` from the left, which is what is meant.
    text = index if below == 1 else f"{index} / {below}"
    return text if begin == 0 else f"{text} % {math.prod(sizes[begin:end])}"


def output_row(program: Program, output: int, row: str = "r", line: str = "d") -> str:
    """Where a row (or one of its lines) of an ELEMENT output begins, as a C++ expression."""
    found = program.outputs[output]
    start = element(program.domain, found.walk or program.domain.in_order, row, line)
    return found.name if start == "0" else f"{found.name} + {start}"
