"""Owns `State`, the only thing that changes while the workflow runs, and `Services`, what it uses.

The state holds plain JSON values and numbers of steps; sources, prompts and logs lie in the run
folder. A checkpoint that carried them would be written anew at every node and grow quadratically.
"""

import math
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol, TypedDict

from langgraph.runtime import Runtime

from evokernel.bench import Evaluator
from evokernel.config import RunConfig
from evokernel.errors import EvoKernelError
from evokernel.graphs.stop import Stop
from evokernel.memory.experience import Experience
from evokernel.memory.store import Memory
from evokernel.opgraph import OpGraph
from evokernel.proposers import Proposer
from evokernel.record import RunRecord
from evokernel.task import Task


class State(TypedDict, total=False):
    """Where the run stands; each node returns the keys that it changes."""

    number: int
    """The step at work; everything known of it lies in the run folder under this number."""
    stage: str
    """`draft` or `refine`: who proposes next."""
    status: str
    """The failed candidate's `Status`, `skipped` without a candidate, empty while all is well."""
    is_best: bool
    """The step's kernel has just replaced an earlier best one."""
    reason: str
    """Why the run ends, in words; empty while it goes on."""


@dataclass(frozen=True)
class Services:
    """What the nodes work with, given to the workflow as its run context."""

    record: RunRecord
    task: Task
    graph: OpGraph | None
    """The task's operators; None where the reference could not be captured."""
    evaluator: Evaluator
    proposer: Proposer
    memory: Memory
    stop: Stop = field(default_factory=Stop)
    """Whether the user wants the run to end here."""
    told: set[int] = field(default_factory=set)
    """Which batches of promotions memory has been told by this process."""
    recalled: dict[str, Experience] = field(default_factory=dict)
    """What memory brought back in this process, by id: spares asking it again a node later."""

    @property
    def config(self) -> RunConfig:
        """The run's resolved config."""
        return self.record.config


class Node(Protocol):
    """One step of the workflow."""

    __name__: str

    def __call__(self, state: State, runtime: Runtime[Services]) -> State:
        """Return the keys of the state that change."""


def plain(node: Node) -> Node:
    """Refuse a state that a checkpoint could not give back as it was, before langgraph sees it.

    Raises (at the node's turn):
        EvoKernelError: names the path of a value that is not plain.
        KeyboardInterrupt: the run must stop.
    """

    @wraps(node)
    def checked(state: State, runtime: Runtime[Services]) -> State:
        runtime.context.stop.check()
        update = node(state, runtime)
        require_plain(update, f"what node `{node.__name__}` returned")
        return update

    return checked


def require_plain(value: Any, place: str) -> None:
    """Accept JSON values only, numbers within 64 bits.

    Numpy scalars and records of ours break or change in a checkpoint, tuples come back as lists,
    lone surrogates as question marks.

    Raises:
        EvoKernelError: names the path of the first bad value.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            require_plain(inner, f"{place}.{key}")
            _require(type(key) is str, f"{place}.{key}", key)
    elif type(value) is list:
        for index, inner in enumerate(value):
            require_plain(inner, f"{place}[{index}]")
    else:
        _require(_is_plain(value), place, value)


def _is_plain(value: Any) -> bool:
    if value is None or type(value) is bool:
        return True
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is str and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _require(holds: bool, place: str, value: Any) -> None:
    if not holds:
        kind = type(value)
        raise EvoKernelError(
            f"`{place}` is {value!r:.60} ({kind.__module__}.{kind.__qualname__}); the workflow's "
            "state holds plain JSON values only: convert it in the node"
        )
