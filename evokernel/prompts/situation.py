"""Owns what a prompt is written from, as seen from here: a proposer's `Request` fits it."""

from typing import Literal, Protocol

from evokernel.attempt import Attempt, Backend, Stage
from evokernel.memory.experience import Experience
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
    def backend(self) -> Backend:
        """The language of the kernels."""

    @property
    def stage(self) -> Stage:
        """Draft (and repair) or refine."""

    @property
    def parents(self) -> tuple[Attempt, ...]:
        """The failed attempt to repair, the start point to edit, or two to recombine."""

    @property
    def children(self) -> tuple[Attempt, ...]:
        """Attempts already made from the first parent; for a draft, earlier drafts."""

    @property
    def shown(self) -> tuple[Experience, ...]:
        """What memory brought back, best first."""

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
