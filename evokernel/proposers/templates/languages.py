"""Owns `Language`, what templates need of the writer of a backend, and which backend has which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from evokernel.attempt import Backend
from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.choices import Plan, Space
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.cpp import Cpp
from evokernel.proposers.templates.cuda import Cuda
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.triton.language import Triton
from evokernel.task import Task


class Language(Protocol):
    """Writes the candidates of one backend; the search over plans is the same for all."""

    def program(self, graph: OpGraph) -> Program | Pipeline:
        """What the graph becomes.

        Raises:
            Unsupported: names what has no place in this backend's kernels.
        """
        ...

    def space(self, program: Program | Pipeline) -> Space:
        """Every plan for a program; the plain one is the first draft."""
        ...

    def promise(self, technique: str, program: Program | Pipeline) -> float:
        """How much a technique should help a program: 0 nothing, 1 a little, 3 a lot."""
        ...

    def source(self, task: Task, graph: OpGraph, program: Program | Pipeline, plan: Plan) -> str:
        """The text of a plan's candidate: a Python module with `ModelNew`, `plan.line` in it.

        Raises:
            Unsupported: an input is nested in a way that the graph does not tell.
        """
        ...


LANGUAGES: Mapping[Backend, Language] = {"cpp": Cpp(), "cuda": Cuda(), "triton": Triton()}
"""The writer of each backend that templates can write."""
