"""Owns which sweeps a row needs, and what one sweep that does two reductions gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from evokernel.proposers.templates.cuda.accumulators import Accumulator, finished
from evokernel.proposers.templates.cuda.sweeps import Task
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.works import Pair, pair

Declare = Callable[[Iterable[int]], None]


def tasks(program: Program, merged: bool) -> list[tuple[Task, tuple[int, ...]]]:
    """The sweeps, each with the values at rest that are computed once it is complete."""
    found = [
        (Task(reductions=p.reductions, scans=p.scans, outputs=p.outputs), p.after)
        for p in program.passes
    ]
    both = pair(program) if merged else None
    if both is None:
        return found
    return [(Task(pair=both), program.passes[1].after), *found[2:]]


def in_steps(
    found: Sequence[tuple[Task, tuple[int, ...]]],
) -> list[tuple[Task, tuple[int, ...]]]:
    """The sweeps of blocks that share a row: before one with scans, one for each part's total."""
    steps: list[tuple[Task, tuple[int, ...]]] = []
    for task, after in found:
        if task.scans:
            steps.append((Task(totals=task.scans), ()))
        steps.append((task, after))
    return steps


def finish(
    program: Program, task: Task, found: Accumulator, total: str, text: Lines, declare: Declare
) -> None:
    """Declare what an accumulator of a whole row gives.

    Args:
        program: The program.
        task: The sweep that it belongs to.
        found: The accumulator.
        total: Its value, as an expression.
        text: Takes the statements.
        declare: Writes values at rest.
    """
    if task.pair and len(found.reductions) == 2:
        _finish_pair(program, task.pair, found, total, text, declare)
    else:
        text.extend(finished(program, found, total))


def _finish_pair(
    program: Program, both: Pair, found: Accumulator, total: str, text: Lines, declare: Declare
) -> None:
    first, second = (program.values[i].name for i in found.reductions)
    whole = f"{found.name}_whole_"
    text.add(f"const {found.type} {whole} = {total};")
    if both.kind == "moments":
        text.add(f"const float {first} = {whole}.mean * {whole}.count;")
        declare(program.passes[0].after)
        text.add(f"const float {second} = {whole}.squares;")
        return
    text.add(f"const float {first} = {whole}.top;")
    declare(program.passes[0].after)
    # The distance from an infinite maximum is NaN, and the sum with it.
    lost = f"isinf({first}) ? NAN : " if both.base == both.first else ""
    text.add(f"const float {second} = {lost}{whole}.sum;")
