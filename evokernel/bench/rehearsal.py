"""Owns the rehearsal of a task: the reference in this process, and what passes for its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from evokernel.bench import correctness, pieces
from evokernel.bench.oracle import Case, Oracle
from evokernel.bench.reference import Expectation, copied
from evokernel.opgraph import OpGraph
from evokernel.task import Workload

if TYPE_CHECKING:
    import torch


class Finding(NamedTuple):
    """What one look at a task found."""

    passed: bool
    detail: str
    """In words: what holds, or what does not and what to do."""


class Rehearsal:
    """One workload of a task, on normal inputs, with the weights that its oracle chose.

    Args:
        oracle: Knows the expected values.
        workload: Whose inputs are taken.
        graph: The operators of this workload, if they could be captured.

    Raises:
        TaskError: The file does not run.
    """

    def __init__(self, oracle: Oracle, workload: Workload, graph: OpGraph | None) -> None:
        self.oracle = oracle
        self.program = oracle.program
        self.workload = workload
        self.graph = graph
        self.case = Case(workload, "normal")
        self.module = self.program.build(oracle.reference.weights_seed)
        self.inputs = oracle.inputs(self.case)
        self.outputs = correctness.tensors(self.program.call(self.module, copied(self.inputs)))
        """Path and tensor of everything that the reference returns."""

    def call(self, inputs: list[Any]) -> list[torch.Tensor]:
        """What the reference makes of other inputs, which are left alone.

        Raises:
            TaskError: It refuses them.
        """
        found = correctness.tensors(self.program.call(self.module, copied(inputs)))
        return [value for _, value in found]

    def cases(self, chosen: Iterable[str]) -> Iterator[Case]:
        """Usable cases of its workload, family after family: most need never be computed."""
        for family in chosen:
            yield from self.oracle.cases((family,), self.workload)

    @cached_property
    def other_inputs(self) -> list[Any]:
        """Inputs of the same workload from another seed."""
        return self.program.make_inputs(self.workload, self.oracle.derive("other inputs"))

    @cached_property
    def other_outputs(self) -> list[torch.Tensor]:
        """What the reference makes of them."""
        return self.call(self.other_inputs)

    @cached_property
    def expected(self) -> Expectation:
        """What is right on the normal inputs.

        Raises:
            TaskError: The reference shows nothing on them, or disagrees with itself.
        """
        return self.oracle.expected(self.case)

    def passes(self, outputs: list[torch.Tensor]) -> bool:
        """Whether the comparison would take these for the reference's answer to its inputs."""
        numbers = range(len(self.expected.forms))
        return len(outputs) == len(numbers) and all(
            accepts(self.expected, number, outputs[number]) for number in numbers
        )

    def output_name(self, number: int) -> str:
        """One output in words, for messages."""
        return named_output(self.outputs[number][0])


def accepts(want: Expectation, number: int, answer: torch.Tensor) -> bool:
    """Whether the comparison would take a tensor for one of the expected outputs."""
    if tuple(answer.shape) != want.forms[number].shape:
        return False
    with pieces.calm_threads():
        return correctness.compare(want.limits[number], answer).wrong == 0


def named_output(path: str) -> str:
    """An output in words, for messages."""
    return f"output `{path}`" if path else "the output"
