"""Owns the audit of a task: would its own comparison tell an answer that took no work?

It runs the reference in this process; no candidate is needed and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from evokernel.bench import correctness, influence, null_answers
from evokernel.bench.oracle import Oracle
from evokernel.bench.reference import agree
from evokernel.bench.rehearsal import Finding, Rehearsal, named_output
from evokernel.frozen import Frozen
from evokernel.opgraph import CaptureFailed, OpGraph, capture
from evokernel.program import Program
from evokernel.task import Task, Workload

Name = Literal[
    "seeded",
    "drawn",
    "repeatable",
    "finite",
    "precise",
    "varied",
    "inputs",
    "weights",
    "answers",
]


class Check(Frozen):
    """One question about one workload, answered."""

    name: Name
    """`seeded`: the same seed gives the same inputs and weights. `drawn`: another seed gives other
    inputs. `repeatable`: the reference agrees with itself. `finite`: its outputs are. `precise`: it
    is close enough to fp64 to be compared with. `varied`: no output is constant along a dimension.
    `inputs`, `weights`: each of them changes the output. `answers`: null answers are refused."""
    workload: str
    """Whose inputs were used."""
    passed: bool
    detail: str
    """In words: what holds, or what does not and what to do."""


class Audit(Frozen):
    """What was found about one task."""

    task: str
    sha: str
    """Hash of the task's source."""
    checks: tuple[Check, ...]
    """By workload, in order. Those that rest on one that failed are left out: nothing can be
    compared with a reference that contradicts itself or gives no finite output."""

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong."""
        return all(check.passed for check in self.checks)


def audit(task: Task, seed: int = 0) -> Audit:
    """Ask every question about every workload.

    Args:
        task: Its sizes are used as they are; `Task.resized` makes it quick.
        seed: Chooses inputs and weights.

    Raises:
        TaskError: The file does not run, or does not fit into memory.
    """
    program = task.program()
    graphs = [_captured(program, workload) for workload in program.workloads()]
    oracle = Oracle(program, seed, graphs[0])
    try:
        checks = [
            check
            for workload, graph in zip(program.workloads(), graphs, strict=True)
            for check in _checks(oracle, workload, graph)
        ]
    finally:
        oracle.close()
    return Audit(task=task.name, sha=task.sha, checks=tuple(checks))


def _captured(program: Program, workload: Workload) -> OpGraph | None:
    try:
        return capture(program, workload)
    except CaptureFailed:
        return None


def _checks(oracle: Oracle, workload: Workload, graph: OpGraph | None) -> Iterator[Check]:
    rehearsal = Rehearsal(oracle, workload, graph)
    for name, look, is_ground in _LOOKS:
        found = look(rehearsal)
        yield Check(name=name, workload=workload.name, passed=found.passed, detail=found.detail)
        if is_ground and not found.passed:
            return


def _seeded(rehearsal: Rehearsal) -> Finding:
    """Whether inputs and weights follow the seed, as those of every process that judges must."""
    program, workload = rehearsal.program, rehearsal.workload
    seed = rehearsal.oracle.derive("again")
    weights = [program.build(seed).state_dict() for _ in range(2)]
    inputs = [program.make_inputs(workload, seed) for _ in range(2)]
    for made, what in ((weights, "the constructor"), (inputs, "the inputs' function")):
        if correctness.same_bits(*made):
            return Finding(
                False,
                f"{what} makes other values for the same seed, so that candidate and reference "
                "would not get the same; draw everything from `torch`, `random` or "
                "`numpy.random`, which are seeded",
            )
    return Finding(True, "the same seed gives the same inputs and weights")


def _drawn(rehearsal: Rehearsal) -> Finding:
    if correctness.same_bits(rehearsal.inputs, rehearsal.other_inputs):
        return Finding(True, "another seed gives other inputs")
    return Finding(
        False,
        "the inputs are the same for every seed, so that a candidate may know the answer by heart; "
        "draw them at random",
    )


def _repeatable(rehearsal: Rehearsal) -> Finding:
    again = rehearsal.call(rehearsal.inputs)
    for (path, one), two in zip(rehearsal.outputs, again, strict=True):
        if not agree(one, two):
            return Finding(
                False,
                f"{named_output(path)} of the reference differs from one call to the next on the "
                "same inputs, so that nothing can be compared with it; with dropout, say "
                '`EVOKERNEL = {"mode": "eval"}`',
            )
    return Finding(True, "two calls on the same inputs agree")


def _finite(rehearsal: Rehearsal) -> Finding:
    for path, value in rehearsal.outputs:
        strange = int((~value.isfinite()).sum())
        if strange:
            return Finding(
                False,
                f"{strange} of {value.numel()} elements of {named_output(path)} are infinite or no "
                "number on the task's own inputs; choose inputs that the reference can take",
            )
    return Finding(True, "every output is finite")


def _precise(rehearsal: Rehearsal) -> Finding:
    for number, limits in enumerate(rehearsal.expected.limits):
        if not limits.is_evidence:
            return Finding(
                False,
                f"the reference is so far from its own result in fp64 that {limits.judged} of "
                f"{limits.finite} elements of {rehearsal.output_name(number)} can be judged; "
                "choose inputs for which it is accurate",
            )
    return Finding(True, "the reference is close to its own result in fp64")


_LOOKS: tuple[tuple[Name, Callable[[Rehearsal], Finding], bool], ...] = (
    ("seeded", _seeded, True),
    ("drawn", _drawn, False),
    ("repeatable", _repeatable, True),
    ("finite", _finite, True),
    ("precise", _precise, True),
    ("varied", null_answers.constancy, False),
    ("inputs", influence.of_inputs, False),
    ("weights", influence.of_weights, False),
    ("answers", null_answers.refusals, False),
)
"""Name, look, and whether the looks after it make no sense where it fails."""
