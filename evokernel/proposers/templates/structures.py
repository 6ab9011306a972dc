"""Owns the table of loop structures: by kind of program, what can be chosen and what writes it."""

from collections.abc import Callable, Mapping

from evokernel.proposers.templates import columns, elementwise, flat, planes, rows, windows
from evokernel.proposers.templates.choices import Space, Value
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.kernel import Kernel

Writer = Callable[[Program, Mapping[str, Value], str], Kernel]
"""Writes the kernel of a program by a plan's choices, as a function of the given name."""

_STRUCTURES: dict[str, tuple[Callable[[Program], Space], Writer]] = {
    "pointwise": (elementwise.space, elementwise.kernel),
    "rows": (rows.space, rows.kernel),
    "flat": (flat.space, flat.kernel),
    "planes": (planes.space, planes.kernel),
    "columns": (columns.space, columns.kernel),
    "windows": (windows.space, windows.kernel),
}


def space(program: Program) -> Space:
    """Every plan for a program."""
    return _STRUCTURES[program.kind][0](program)


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """The C++ of a program by a plan's choices, as a function of the given name."""
    return _STRUCTURES[program.kind][1](program, choices, function)
