"""Owns `Cpp`: candidates in C++ with OpenMP, for processors."""

from __future__ import annotations

from evokernel.opgraph import OpGraph
from evokernel.proposers.templates import sequence, structures
from evokernel.proposers.templates.choices import Plan, Space
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.lower_contractions import with_products
from evokernel.proposers.templates.module import write_module
from evokernel.proposers.templates.naming import identifier
from evokernel.proposers.templates.promise import promise
from evokernel.proposers.templates.stages import fitted
from evokernel.task import Task


class Cpp:
    """Writes one C++ function per candidate; implements `Language`."""

    def program(self, graph: OpGraph) -> Program | Pipeline:
        """What the graph becomes; half precision is refused."""
        return fitted(with_products(graph))

    def space(self, program: Program | Pipeline) -> Space:
        """Every plan for a program."""
        if isinstance(program, Pipeline):
            return sequence.space(program)
        return structures.space(program)

    def promise(self, technique: str, program: Program | Pipeline) -> float:
        """What we expect of a technique."""
        return promise(technique, program)

    def kernel(self, task: Task, program: Program | Pipeline, plan: Plan) -> Kernel:
        """The C++ of a plan."""
        name = f"{identifier(task.name)}_kernel"
        if isinstance(program, Pipeline):
            return sequence.kernel(program, plan.choices, name)
        return structures.kernel(program, plan.choices, name)

    def source(self, task: Task, graph: OpGraph, program: Program | Pipeline, plan: Plan) -> str:
        """The text of a plan's candidate."""
        techniques = self.space(program).techniques(plan)
        kernel = self.kernel(task, program, plan)
        return write_module(task, graph, program, plan, kernel, techniques)
