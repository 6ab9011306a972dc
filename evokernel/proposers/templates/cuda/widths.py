"""Owns how many neighbouring columns a thread moves at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.domain import Walk
from evokernel.proposers.templates.expressions import Level, Load, Output, Program

_BYTES = 16
"""The widest access of a thread (CUDA C++ Programming Guide, "Device Memory Accesses")."""


def is_straight(load: Load) -> bool:
    """Whether its columns lie side by side, without gaps: packs can be loaded."""
    return load.level is not Level.SCALAR and load.access.step == 1 and not load.access.guards


def is_shifted(program: Program, load: Load, width: int) -> bool:
    """Whether its columns lie side by side but partly outside, across the borders of packs."""
    access, size = load.access, math.prod(program.sources[load.access.source].shape)
    if load.level is not Level.ELEMENT or access.step != 1 or not access.guards or width == 1:
        return False
    return all(number % width == 0 for number in (size, *access.strides, *access.depth))


def moves(program: Program, load: Load) -> bool:
    """Whether every row has its own part of it, or there is only one row."""
    if not program.domain.outer and not program.domain.depth:
        return True
    return load.access.varies(rows=True, lines=True)


def walk_of(program: Program, output: Output) -> Walk:
    """Where an output with a number per element lies."""
    return output.walk or program.domain.in_order


def widest(program: Program) -> int:
    """Columns that fit into 16 bytes and lie together in every tensor; a power of two."""
    sizes = [itemsize(dtype) for dtype in _dtypes(program)]
    width = _BYTES // min(sizes, default=4)
    if program.domain.outer or program.kind != "pointwise":
        width = math.gcd(width, program.domain.cols)
    for walk in _walks(program):
        for number in (walk.offset, *walk.strides, *walk.depth):
            width = math.gcd(width, number)
    return max(width, 1)


def _straight(program: Program) -> list[Load]:
    return [v for v in program.values if isinstance(v, Load) and is_straight(v)]


def _written(program: Program) -> list[Output]:
    held = [o for o in program.outputs if program.values[o.value].level is Level.ELEMENT]
    return [o for o in held if walk_of(program, o).step == 1]


def _dtypes(program: Program) -> Iterator[str]:
    """Of what makes the traffic; truth values come along."""
    for load in _straight(program):
        dtype = program.sources[load.access.source].dtype
        if moves(program, load) and dtype != "bool":
            yield dtype
    yield from (o.dtype for o in _written(program) if o.dtype != "bool")


def _walks(program: Program) -> Iterator[Walk]:
    yield from (load.access for load in _straight(program))
    yield from (walk_of(program, output) for output in _written(program))
