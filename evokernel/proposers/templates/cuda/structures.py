"""Owns the table of CUDA structures: which one a program gets by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evokernel.proposers.templates.choices import Space, Value
from evokernel.proposers.templates.cuda import columns, elementwise, flat, rows, windows
from evokernel.proposers.templates.cuda.kernel import Part
from evokernel.proposers.templates.expressions import Program, Unsupported

Writer = Callable[[Program, Mapping[str, Value], str], Part]
"""Writes the kernels of a program by a plan's choices; their names begin with the given one."""

_STRUCTURES: dict[str, tuple[Callable[[Program], Space], Writer]] = {
    "pointwise": (elementwise.space, elementwise.part),
    "rows": (rows.space, rows.part),
    "planes": (rows.space, rows.part),
    "columns": (columns.space, columns.part),
    "flat": (flat.space, flat.part),
    "windows": (windows.space, windows.part),
}


def space(program: Program) -> Space:
    """Every plan for a program.

    Raises:
        Unsupported: no structure is for this kind of program.
    """
    if program.kind not in _STRUCTURES:
        raise Unsupported(f"programs of the kind `{program.kind}` are not covered in CUDA")
    return _STRUCTURES[program.kind][0](program)


def part(program: Program, choices: Mapping[str, Value], function: str) -> Part:
    """The kernels of a program by a plan's choices."""
    return _STRUCTURES[program.kind][1](program, choices, function)
