"""Owns `Triton`: candidates in Triton, for GPUs."""

from __future__ import annotations

from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.call import free_inputs
from evokernel.proposers.templates.choices import Plan, Space
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program, Source
from evokernel.proposers.templates.halves import fitted_in_float32
from evokernel.proposers.templates.naming import identifier
from evokernel.proposers.templates.reference import Reference
from evokernel.proposers.templates.triton import pipeline, structures
from evokernel.proposers.templates.triton.kernel import Extent, Written
from evokernel.proposers.templates.triton.module import size_text, write_module
from evokernel.proposers.templates.triton.promise import promise
from evokernel.task import Task


class Triton:
    """Writes `@triton.jit` kernels and their launches; implements `Language`."""

    def program(self, graph: OpGraph) -> Program | Pipeline:
        """What the graph becomes."""
        return fitted_in_float32(graph)

    def space(self, program: Program | Pipeline) -> Space:
        """Every plan for a program."""
        if isinstance(program, Pipeline):
            return pipeline.space(program)
        return structures.space(program)

    def promise(self, technique: str, program: Program | Pipeline) -> float:
        """What we expect of a technique."""
        return promise(technique, program)

    def source(self, task: Task, graph: OpGraph, program: Program | Pipeline, plan: Plan) -> str:
        """The text of a plan's candidate."""
        free = free_inputs(program, graph)
        name = f"{identifier(task.name)}_kernel"
        first = Reference(source=task.source).free("rows_")
        if isinstance(program, Pipeline):
            policy = task.options.precision
            written = pipeline.written(program, plan.choices, name, first, policy)
        else:
            written = _one(program, plan, name, first, free)
        techniques = self.space(program).techniques(plan)
        return write_module(task, graph, program, plan, written, techniques)


def _one(program: Program, plan: Plan, name: str, first: str, free: tuple[Source, ...]) -> Written:
    """The kernels of one program."""
    domain = program.domain
    count = domain.rows if domain.outer else domain.cols
    rows = size_text(count, free[0].shape[0], first) if free else str(domain.rows)
    extent = Extent(rows=rows, is_free=bool(free))
    keys = [output.name for output in program.outputs]
    return structures.written(program, plan.choices, name, keys, extent)
