"""Owns the contract of those who write candidates: what they are shown and what they hand back."""

from typing import Literal, Protocol

from evokernel.attempt import Attempt, Backend, Proposal, Stage
from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience
from evokernel.memory.values import Value
from evokernel.opgraph import OpGraph
from evokernel.task import Task


class Request(Frozen):
    """Everything a proposer may look at for one step."""

    task: Task
    """What is to be made fast."""
    graph: OpGraph | None
    """None where the reference could not be captured."""
    backend: Backend
    """Language of the kernels."""
    stage: Stage
    """Whether to draft or to refine."""
    step: str
    """Unique id of the step; the same step and seed give the same proposal."""
    seed: int
    """Seed of this step's random choices."""
    parents: tuple[Attempt, ...] = ()
    """Draft: the failed attempt to repair, if any. Refine: one start point, or two to recombine."""
    children: tuple[Attempt, ...] = ()
    """Attempts already made from the first parent; for a draft from nothing, earlier ones."""
    tried: tuple[str, ...] = ()
    """Hashes of every candidate of this run: proposing one of them again is useless."""
    history: tuple[Attempt, ...] = ()
    """Every attempt of the run so far, oldest first."""
    workloads: tuple[str, ...] = ()
    """Further shapes that have to be right, in words; hidden ones are only counted."""
    shown: tuple[Experience, ...] = ()
    """What memory brought back, best first."""
    values: dict[str, Value] = {}
    """What memory holds each of them to be worth in this stage, by id."""
    machine: tuple[str, ...] = ()
    """Facts about the device, one a line, for people and models."""
    baselines: dict[str, float] = {}
    """The times to beat by name, milliseconds."""
    contract: Literal["own_kernels_only", "library_allowed"] = "own_kernels_only"
    """What a candidate may call."""


EXTERNAL = "external"
"""Name of the proposer whose candidates come from the caller of a run."""


class Exhausted(Exception):
    """The proposer has nothing new to propose."""


class BudgetSpent(Exception):
    """The next call could take more than is left of the run's tokens or dollars; it says which."""


class Proposer(Protocol):
    """Who writes candidates."""

    name: str
    """`templates`, `external`, or the model's name."""

    def check(self, task: Task, graph: OpGraph | None, backend: Backend) -> None:
        """Refuse a task that cannot be served, before anything is compiled.

        Raises:
            UsageError: names what is missing and what to do instead.
        """

    def propose(self, request: Request) -> Proposal:
        """Write one candidate.

        Raises:
            Exhausted: nothing new is left to propose.
            BudgetSpent: it would cost more than is left; nothing was asked.
            ModelError: the model could not be asked; the step stays open.
        """
