"""Owns the null answers: outputs that took no work, which the comparison has to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from evokernel.bench import families
from evokernel.bench.oracle import Case
from evokernel.bench.reference import Expectation
from evokernel.bench.rehearsal import Finding, Rehearsal, accepts
from evokernel.nested import leaves

Maker = Callable[[Case, Expectation], torch.Tensor | None]
"""The answer for one case; None where there is none."""


def constancy(rehearsal: Rehearsal) -> Finding:
    """Whether some output is the same all along one of its dimensions, within the tolerance."""
    faults = []
    for number, (_, value) in enumerate(rehearsal.outputs):
        same = [dim for dim in range(value.dim()) if _is_constant(rehearsal, number, dim)]
        if same:
            which = "all its dimensions" if len(same) == _wide(value) else _along(same)
            faults.append(f"{rehearsal.output_name(number)} is constant along {which}")
    if faults:
        return Finding(
            False,
            f"{' and '.join(faults)} on the task's own inputs: most of the work can be left out; "
            "choose inputs and weights that give every element a value of its own, or return "
            "the smaller tensor",
        )
    return Finding(True, "no output is constant along a dimension")


def refusals(rehearsal: Rehearsal) -> Finding:
    """Whether each null answer is refused on the inputs of at least one family.

    A candidate passes only if it is right on all of them, and a task whose inputs are all positive,
    say, takes a copy of them for their ReLU until they are negated. That NaN or denormal values
    come out otherwise does not count: they leave most elements as they are.
    """
    passing: list[str] = []
    told: dict[str, str] = {}
    for number in range(len(rehearsal.outputs)):
        waiting = dict(_answers(rehearsal, number))
        for case in rehearsal.cases(families.TELLING):
            told |= {name: case.family for name in _refused(rehearsal, number, waiting, case)}
            if not waiting:
                break
        name = rehearsal.output_name(number)
        passing += [f"{answer} would pass for {name}" for answer in waiting]
    if passing:
        return Finding(
            False,
            f"{', '.join(passing)} on the inputs of every family: a candidate that computes "
            "nothing cannot be told from one that does; choose other inputs, weights or a tighter "
            "tolerance",
        )
    late = [
        f"{name} only on `{family}` inputs" for name, family in told.items() if family != NORMAL
    ]
    return Finding(True, "; ".join([f"refused: {', '.join(told)}", *late]))


NORMAL = families.FAMILIES[0]


def _refused(rehearsal: Rehearsal, number: int, waiting: dict[str, Maker], case: Case) -> list[str]:
    """Take the answers out of `waiting` that are wrong for this case.

    Returns:
        Their names.
    """
    want = rehearsal.oracle.expected(case)
    if not want.limits[number].is_evidence:
        return []
    made = {name: make(case, want) for name, make in waiting.items()}
    found = [n for n, answer in made.items() if answer is None or not accepts(want, number, answer)]
    for name in found:
        del waiting[name]
    return [name for name in found if made[name] is not None]


def _answers(rehearsal: Rehearsal, number: int) -> Iterator[tuple[str, Maker]]:
    like = rehearsal.outputs[number][1]
    yield "zeros", lambda case, want: torch.zeros_like(like)
    yield "ones", lambda case, want: torch.ones_like(like)
    if like.numel() > 1:
        yield "the mean of the right answer", lambda case, want: _mean(want, number, like)
    yield "the answer to other inputs", lambda case, want: rehearsal.other_outputs[number]
    for place, (path, leaf) in enumerate(leaves(rehearsal.inputs)):
        if isinstance(leaf, torch.Tensor) and leaf.shape == like.shape:
            yield f"a copy of input `{path}`", _copy_of(rehearsal, place, like)


def _copy_of(rehearsal: Rehearsal, place: int, like: torch.Tensor) -> Maker:
    def make(case: Case, want: Expectation) -> torch.Tensor:
        _, leaf = leaves(rehearsal.oracle.inputs(case))[place]
        return _cast(leaf, like)

    return make


def _cast(leaf: Any, like: torch.Tensor) -> torch.Tensor:
    copy: torch.Tensor = leaf.to(like.dtype)
    return copy


def _mean(want: Expectation, number: int, like: torch.Tensor) -> torch.Tensor:
    values = want.limits[number].values.double()
    finite = values[values.isfinite()]
    return torch.full_like(like, float(finite.mean()) if finite.numel() else 0.0)


def _is_constant(rehearsal: Rehearsal, number: int, dim: int) -> bool:
    """Whether the first index along a dimension would do for all others."""
    _, value = rehearsal.outputs[number]
    if value.shape[dim] < 2:
        return False
    return accepts(rehearsal.expected, number, value.narrow(dim, 0, 1).expand_as(value))


def _wide(value: torch.Tensor) -> int:
    return sum(size > 1 for size in value.shape)


def _along(dims: list[int]) -> str:
    return ("dimension " if len(dims) == 1 else "dimensions ") + ", ".join(map(str, dims))
