"""Owns the types in which partial results of reductions are kept and combined."""

from evokernel.proposers.templates.expressions import Level, Program, Reduce
from evokernel.proposers.templates.folds import Fold
from evokernel.proposers.templates.literals import C_TYPES

RUN = 512
"""Additions that one float lane takes in before its sum goes into a double: keeps the relative
error of long sums near 1e-7, where torch's cascade sums have it (ours)."""


def accumulates_wide(program: Program, reduction: int) -> bool:
    """Whether a reduction's total is a double although its value is a float."""
    value = program.values[reduction]
    few = program.domain.windows or program.domain.lines <= RUN
    if program.domain.across and value.level is Level.ROW and few:
        return False
    return isinstance(value, Reduce) and value.dtype == "float32" and value.op in ("sum", "prod")


def total_type(program: Program, reduction: int) -> str:
    """C++ type in which partial results of a reduction are kept and combined."""
    if accumulates_wide(program, reduction):
        return "double"
    return C_TYPES[program.values[reduction].dtype]


def total_identity(program: Program, reduction: int) -> str:
    """What a total begins with, as a C++ expression."""
    fold = Fold.of(program, reduction, "scalar")
    return fold.identity.replace(fold.type, total_type(program, reduction), 1)


def final(program: Program, reduction: int, total: str) -> str:
    """The statement that turns a total into the reduction's value."""
    value = program.values[reduction]
    kind = C_TYPES[value.dtype]
    text = f"static_cast<{kind}>({total})" if accumulates_wide(program, reduction) else total
    return f"const {kind} {value.name} = {text};"
