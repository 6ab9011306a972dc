"""Owns the step from a task to its candidates."""

from evokernel.attempt import Backend, Candidate
from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.choices import Plan, Space
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.cpp import Cpp
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.languages import LANGUAGES
from evokernel.task import Task


class Template:
    """Writes the candidates of one task in one backend's language."""

    def __init__(self, task: Task, graph: OpGraph, backend: Backend = "cpp") -> None:
        """Match the task's graph.

        Raises:
            Unsupported: names what has no place in a fused kernel.
        """
        self.task = task
        self.graph = graph
        self.backend: Backend = backend
        self.language = LANGUAGES[backend]
        self.program: Program | Pipeline = self.language.program(graph)
        self.space: Space = self.language.space(self.program)
        self._candidates: dict[str, Candidate] = {}

    def kernel(self, plan: Plan) -> Kernel:
        """The C++ of a plan; for the backend `cpp` alone."""
        return Cpp().kernel(self.task, self.program, plan)

    def promise(self, technique: str) -> float:
        """How much a technique should help: 0 nothing, 1 a little, 3 a lot."""
        return self.language.promise(technique, self.program)

    def source(self, plan: Plan) -> str:
        """The text of a plan's candidate: a Python module with `ModelNew`."""
        return self.language.source(self.task, self.graph, self.program, plan)

    def candidate(self, plan: Plan) -> Candidate:
        """The candidate of a plan, written once."""
        if plan.line not in self._candidates:
            source = self.source(plan)
            self._candidates[plan.line] = Candidate(source=source, backend=self.backend)
        return self._candidates[plan.line]
