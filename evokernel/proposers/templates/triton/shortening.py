"""Owns the choice between exact functions and shorter ones."""

from __future__ import annotations

from collections.abc import Mapping

from evokernel.proposers.templates.choices import Choice, Option, Value
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.styles import shortened
from evokernel.proposers.templates.triton.spelling import HALF


def function_choice(*programs: Program) -> tuple[Choice, ...]:
    """Exact or short functions, where there are any; half precision cannot tell them apart."""
    if all(shortened(program) == program for program in programs):
        return ()
    exact = Option(value="full")
    short = Option(value="short", technique="shorter-functions")
    is_half = all(o.dtype in HALF for program in programs for o in program.outputs)
    options = (short, exact) if is_half else (exact, short)
    return (Choice(name="functions", options=options),)


def as_chosen(program: Program, choices: Mapping[str, Value]) -> Program:
    """The program with the functions that a plan has chosen."""
    return shortened(program) if choices.get("functions") == "short" else program
