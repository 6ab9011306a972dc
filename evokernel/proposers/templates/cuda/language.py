"""Owns `Cuda`: candidates in CUDA C++, for NVIDIA's GPUs from Ampere on."""

from __future__ import annotations

from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.choices import Plan, Space
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.cuda import sequence, structures
from evokernel.proposers.templates.cuda.kernel import Kernel, joined
from evokernel.proposers.templates.cuda.module import write_module
from evokernel.proposers.templates.cuda.promise import promise
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.halves import fitted_in_float32
from evokernel.proposers.templates.naming import identifier
from evokernel.task import Task


class Cuda:
    """Writes one CUDA file per candidate; implements `Language`."""

    def program(self, graph: OpGraph) -> Program | Pipeline:
        """What the graph becomes; half precision lies in memory and is computed in float32."""
        made = fitted_in_float32(graph)
        # Grids of several stages are numbers: their rows are those of the capture.
        return (
            made.model_copy(update={"moving": frozenset()}) if isinstance(made, Pipeline) else made
        )

    def space(self, program: Program | Pipeline) -> Space:
        """Every plan for a program."""
        if isinstance(program, Pipeline):
            return sequence.space(program)
        return structures.space(program)

    def promise(self, technique: str, program: Program | Pipeline) -> float:
        """What we expect of a technique."""
        return promise(technique, program)

    def kernel(self, task: Task, program: Program | Pipeline, plan: Plan) -> Kernel:
        """The CUDA text of a plan."""
        name = identifier(task.name)
        if isinstance(program, Pipeline):
            return sequence.kernel(program, plan.choices, name)
        return joined([structures.part(program, plan.choices, f"{name}_kernel")])

    def source(self, task: Task, graph: OpGraph, program: Program | Pipeline, plan: Plan) -> str:
        """The text of a plan's candidate."""
        techniques = self.space(program).techniques(plan)
        kernel = self.kernel(task, program, plan)
        return write_module(task, graph, program, plan, kernel, techniques)
