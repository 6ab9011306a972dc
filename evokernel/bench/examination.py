"""Owns the examination of a task: would its own comparison tell an answer that took no work?

It runs the reference in this process; no candidate is needed and nothing is compiled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch

from evokernel.bench import algebra, correctness, influence, null_answers, removal
from evokernel.bench.oracle import Oracle
from evokernel.bench.reference import agree, copied, free_bytes
from evokernel.bench.rehearsal import Finding, Rehearsal, named_output
from evokernel.errors import TaskTooLarge
from evokernel.frozen import Frozen
from evokernel.opgraph import CaptureFailed, OpGraph, capture
from evokernel.program import Program
from evokernel.program.estimate import plan_reference, size_text
from evokernel.task import Task, Workload
from evokernel.wording import counted, milliseconds

LEAST_RATIO = 2.0
"""A reference call has to take this many times as long as one operator on one element (ours): what
is compared below is how a call is made, not what is computed."""
CALLS_S = 0.02
"""Seconds over which calls are timed, at least one of them."""
REMOVAL_S, BRIEF_S = 20.0, 3.0
"""Seconds of a workload after which no further operator is taken out of the reference; in the brief
form, also after which no further weight is disturbed."""

Name = Literal[
    "fits",
    "seeded",
    "drawn",
    "repeatable",
    "finite",
    "precise",
    "timed",
    "varied",
    "inputs",
    "answers",
    "algebra",
    "weights",
    "operators",
]


Look = tuple[Name, Callable[[Rehearsal], Finding], bool]
"""Name, look, and whether the looks after it make no sense where it fails."""


class Check(Frozen):
    """One question about one workload, answered."""

    name: Name
    """`fits`: judging it fits into memory. `seeded`: the same seed gives the same inputs and
    weights. `drawn`: another seed gives other inputs. `repeatable`: the reference agrees with
    itself. `finite`: its outputs are. `precise`: it is close enough to fp64 to be compared with.
    `timed`: a call takes long enough to be timed. `varied`: no output is constant along a
    dimension. `inputs`, `weights`: each of them changes the output. `answers`: null answers are
    refused. `algebra`: no product is summed over its own columns or rows. `operators`: none can be
    taken out."""
    workload: str
    """Whose inputs were used."""
    passed: bool
    detail: str
    """In words: what holds, or what does not and what to do."""


class Examination(Frozen):
    """What was found about one task."""

    task: str
    sha: str
    """Hash of the task's source."""
    checks: tuple[Check, ...]
    """By workload, in order. Those that rest on one that failed are left out: nothing can be
    compared with a reference that contradicts itself or gives no finite output."""
    is_brief: bool = False
    """The first workload only, and fewer seconds for `operators`: the form that a run begins
    with."""
    seconds: float = 0.0
    """Wall seconds that it took."""

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong."""
        return all(check.passed for check in self.checks)

    @property
    def failed(self) -> tuple[Name, ...]:
        """Names of the checks that failed, each once."""
        return tuple(dict.fromkeys(check.name for check in self.checks if not check.passed))


def examine(
    task: Task, seed: int = 0, graph: OpGraph | None = None, is_brief: bool = False
) -> Examination:
    """Ask every question about every workload.

    Args:
        task: Its sizes are used as they are; `Task.resized` makes it quick.
        seed: Chooses inputs and weights.
        graph: Operators of its first workload; None captures them.
        is_brief: Only the first workload.

    Raises:
        TaskError: The file does not run.
    """
    began = time.monotonic()
    program = task.program()
    workloads = program.workloads()[: 1 if is_brief else None]
    graphs = [graph if graph and not n else _captured(program, w) for n, w in enumerate(workloads)]
    checks = [
        _fits(program, workload, known) for workload, known in zip(workloads, graphs, strict=True)
    ]
    if all(check.passed for check in checks):
        checks = list(_all(program, seed, list(zip(checks, graphs, strict=True)), is_brief))
    return Examination(
        task=task.name,
        sha=task.sha,
        checks=tuple(checks),
        is_brief=is_brief,
        seconds=round(time.monotonic() - began, 3),
    )


def _captured(program: Program, workload: Workload) -> OpGraph | None:
    try:
        return capture(program, workload)
    except CaptureFailed:
        return None


def _fits(program: Program, workload: Workload, graph: OpGraph | None) -> Check:
    try:
        plan = plan_reference(program, workload, graph, free_bytes() // 2)
    except TaskTooLarge as error:
        return Check(name="fits", workload=workload.name, passed=False, detail=str(error))
    said = plan.label or f"judging it takes about {size_text(plan.estimate.total)} of memory"
    return Check(name="fits", workload=workload.name, passed=True, detail=said)


def _all(
    program: Program, seed: int, known: list[tuple[Check, OpGraph | None]], is_brief: bool
) -> Iterator[Check]:
    oracle = Oracle(program, seed, known[0][1])
    try:
        for workload, (fits, graph) in zip(program.workloads(), known, strict=False):
            yield fits
            yield from _checks(Rehearsal(oracle, workload, graph), is_brief)
    finally:
        oracle.close()


def _checks(rehearsal: Rehearsal, is_brief: bool) -> Iterator[Check]:
    weights = partial(influence.of_weights, seconds=BRIEF_S if is_brief else math.inf)
    operators = partial(removal.of_operators, seconds=BRIEF_S if is_brief else REMOVAL_S)
    looks: tuple[Look, ...] = (
        *_LOOKS,
        ("weights", weights, False),
        ("operators", operators, False),
    )
    for name, look, is_ground in looks:
        found = look(rehearsal)
        yield Check(
            name=name, workload=rehearsal.workload.name, passed=found.passed, detail=found.detail
        )
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


def _timed(rehearsal: Rehearsal) -> Finding:
    """Whether a call takes long enough, against the shortest that there is on the same machine."""
    inputs, least = copied(rehearsal.inputs), partial(torch.nn.ReLU(), torch.zeros(1))
    (took_ms, least_ms), count = _fastest(partial(rehearsal.module, *inputs), least)
    took = f"a call of the reference takes about {milliseconds(took_ms)}"
    if took_ms >= LEAST_RATIO * least_ms:
        return Finding(True, f"{took}, the fastest of {counted(count, 'call')}")
    return Finding(
        False,
        f"{took}, less than {LEAST_RATIO:g} times the {milliseconds(least_ms)} of one operator on "
        "one element: the way to a call would be timed, not the work; make the inputs larger",
    )


def _fastest(*calls: Callable[[], object]) -> tuple[list[float], int]:
    """Milliseconds of each call's fastest time, as disturbances only add, and how often each ran.

    They take turns, so that a machine that becomes busy or slower is so for all.
    """
    best, count, began = [float("inf")] * len(calls), 0, time.perf_counter()
    with torch.no_grad():
        while not count or time.perf_counter() - began < CALLS_S:
            for place, call in enumerate(calls):
                start = time.perf_counter()
                call()
                best[place] = min(best[place], 1e3 * (time.perf_counter() - start))
            count += 1
    return best, count


_LOOKS: tuple[Look, ...] = (
    ("seeded", _seeded, True),
    ("drawn", _drawn, False),
    ("repeatable", _repeatable, True),
    ("finite", _finite, True),
    ("precise", _precise, True),
    ("timed", _timed, False),
    ("varied", null_answers.constancy, False),
    ("inputs", influence.of_inputs, False),
    ("answers", null_answers.refusals, False),
    ("algebra", algebra.shortcuts, False),
)
