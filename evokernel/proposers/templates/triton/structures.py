"""Owns the table of loop structures in Triton: what can be chosen, and what writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evokernel.proposers.templates.choices import Space, Value
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.triton import pointwise, sweeps
from evokernel.proposers.templates.triton.kernel import Extent, Written

Writer = Callable[[Program, Mapping[str, Value], str, Sequence[str], Extent], Written]


def space(program: Program) -> Space:
    """Every plan for a program."""
    return pointwise.space(program) if _is_pointwise(program) else sweeps.space(program)


def written(
    program: Program, choices: Mapping[str, Value], name: str, keys: Sequence[str], extent: Extent
) -> Written:
    """The kernels of a program by a plan's choices; see `sweeps.written`."""
    write: Writer = pointwise.written if _is_pointwise(program) else sweeps.written
    return write(program, choices, name, keys, extent)


def _is_pointwise(program: Program) -> bool:
    return program.kind == "pointwise"
