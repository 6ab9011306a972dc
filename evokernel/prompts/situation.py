"""Owns what a prompt is written from, as seen from here: a proposer's `Request` fits it."""

from collections.abc import Mapping
from typing import Literal, Protocol

from evokernel.attempt import Attempt, Backend, Stage
from evokernel.memory.experience import Experience
from evokernel.memory.values import Value
from evokernel.opgraph import OpGraph
from evokernel.task import Task


class Situation(Protocol):
    """One step: what is asked, and what is known."""

    @property
    def task(self) -> Task:
        """What is to be made fast."""

    @property
    def graph(self) -> OpGraph | None:
        """Its operators; None where they are not known."""

    @property
    def workloads(self) -> tuple[str, ...]:
        """Further shapes that have to be right, one a line, hidden ones only counted."""

    @property
    def backend(self) -> Backend:
        """The language of the kernels."""

    @property
    def stage(self) -> Stage:
        """Draft (and repair) or refine."""

    @property
    def seed(self) -> int:
        """Seed of this step's random choices."""

    @property
    def parents(self) -> tuple[Attempt, ...]:
        """The failed attempt to repair, the start point to edit, or two to recombine."""

    @property
    def children(self) -> tuple[Attempt, ...]:
        """Attempts already made from the first parent; for a draft, earlier drafts."""

    @property
    def history(self) -> tuple[Attempt, ...]:
        """Every attempt of the run so far, oldest first; never shown as a whole."""

    @property
    def shown(self) -> tuple[Experience, ...]:
        """What memory brought back, best first."""

    @property
    def values(self) -> Mapping[str, Value]:
        """What memory holds each of them to be worth in this stage, by id."""

    @property
    def machine(self) -> tuple[str, ...]:
        """Facts about the device, one a line."""

    @property
    def baselines(self) -> dict[str, float]:
        """The times to beat by name, milliseconds."""

    @property
    def contract(self) -> Literal["own_kernels_only", "library_allowed"]:
        """What a candidate may call."""


class TechniqueNote(Protocol):
    """A technique as a prompt names it."""

    @property
    def name(self) -> str:
        """As replies name it, too."""

    @property
    def does(self) -> str:
        """What changes in the kernel."""

    @property
    def helps(self) -> str:
        """When it makes a kernel faster."""

    @property
    def costs(self) -> str:
        """What it costs."""

    @property
    def bottlenecks(self) -> tuple[str, ...]:
        """What binds the kernels that it helps, as `Profile.bound_by`."""
