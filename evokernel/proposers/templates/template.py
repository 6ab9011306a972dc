"""Owns the step from a task to its candidates."""

import re

from evokernel.attempt import Candidate
from evokernel.opgraph import OpGraph
from evokernel.proposers.templates import sequence, structures
from evokernel.proposers.templates.choices import Plan, Space
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.lower_contractions import with_products
from evokernel.proposers.templates.module import write_module
from evokernel.proposers.templates.stages import fitted
from evokernel.task import Task


class Template:
    """Writes the candidates of one task."""

    def __init__(self, task: Task, graph: OpGraph) -> None:
        """Match the task's graph.

        Raises:
            Unsupported: names what has no place in a fused kernel.
        """
        self.task = task
        self.graph = graph
        self.program: Program | Pipeline = fitted(with_products(graph))
        self.space: Space = _space(self.program)
        self._candidates: dict[str, Candidate] = {}

    def kernel(self, plan: Plan) -> Kernel:
        """The C++ of a plan."""
        name = f"{_identifier(self.task.name)}_kernel"
        if isinstance(self.program, Pipeline):
            return sequence.kernel(self.program, plan.choices, name)
        return structures.kernel(self.program, plan.choices, name)

    def source(self, plan: Plan) -> str:
        """The text of a plan's candidate: a Python module with `ModelNew`."""
        techniques = self.space.techniques(plan)
        kernel = self.kernel(plan)
        return write_module(self.task, self.graph, self.program, plan, kernel, techniques)

    def candidate(self, plan: Plan) -> Candidate:
        """The candidate of a plan, written once."""
        if plan.line not in self._candidates:
            self._candidates[plan.line] = Candidate(source=self.source(plan), backend="cpp")
        return self._candidates[plan.line]


def _space(program: Program | Pipeline) -> Space:
    if isinstance(program, Pipeline):
        return sequence.space(program)
    return structures.space(program)


def _identifier(name: str) -> str:
    """A file's stem as a name in C++ and Python; those of KernelBench begin with a number."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"task_{plain}" if plain[:1].isdigit() else plain
