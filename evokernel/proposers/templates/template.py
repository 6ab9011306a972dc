"""Owns the step from a task to its candidates."""

import re

from evokernel.attempt import Candidate
from evokernel.opgraph import OpGraph
from evokernel.proposers.templates import structures
from evokernel.proposers.templates.choices import Plan, Space
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.lowering import lower
from evokernel.proposers.templates.module import write_module
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
        self.program: Program = lower(graph)
        self.space: Space = structures.space(self.program)
        self._candidates: dict[str, Candidate] = {}

    def kernel(self, plan: Plan) -> Kernel:
        """The C++ of a plan."""
        name = re.sub(r"\W", "_", self.task.name, flags=re.ASCII)
        return structures.kernel(self.program, plan.choices, f"{name}_kernel")

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
