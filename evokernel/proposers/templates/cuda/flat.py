"""Owns what can be chosen where everything becomes one number, or one row is all there is."""

from __future__ import annotations

from collections.abc import Mapping

from evokernel.proposers.templates.choices import Choice, Option, Space, Value
from evokernel.proposers.templates.cuda import split
from evokernel.proposers.templates.cuda.kernel import Part
from evokernel.proposers.templates.cuda.styles import (
    functions_choice,
    reads_choice,
    width_choice,
    writes_choice,
)
from evokernel.proposers.templates.expressions import Program, Unsupported
from evokernel.proposers.templates.works import pair


def space(program: Program) -> Space:
    """Every way to write a program of one row.

    Raises:
        Unsupported: a scan needs another scan of the same sweep.
    """
    if not split.can_begin_in_the_middle(program):
        raise Unsupported("a scan of a scan over one long row is not covered")
    choices = (
        *width_choice(program),
        *sweeps_choice(program),
        *split.choices(program),
        *functions_choice(program),
        reads_choice(),
        writes_choice(),
    )
    return Space(family="flat", choices=choices)


def sweeps_choice(program: Program) -> tuple[Choice, ...]:
    """Two dependent reductions in one sweep, or in two."""
    both = pair(program)
    if both is None:
        return ()
    technique = "online-softmax" if both.kind == "online" else "single-pass-moments"
    merged = Option(value="merged", technique=technique)
    return (Choice(name="sweeps", options=(merged, Option(value="separate"))),)


def part(program: Program, choices: Mapping[str, Value], function: str) -> Part:
    """Write a program of one row."""
    return split.part(program, choices, function)
