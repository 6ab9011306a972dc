"""Owns `Card`: what is needed of an experience to decide whether it may be shown."""

from typing import NamedTuple

from evokernel.memory.contest import Contest
from evokernel.memory.environment import Environment, differs
from evokernel.memory.experience import Kind, Outcome
from evokernel.memory.retraction import CLAIMS


class Card(NamedTuple):
    """What is needed to decide whether an experience may be shown."""

    id: str
    seq: int
    """Number of the event that added it."""
    kind: Kind
    backend: str
    family: str
    fingerprint: str
    task: str
    run: str
    step: str
    candidate: str
    content: str
    """Hash by which duplicates are recognised."""
    outcome: Outcome
    """As it was added."""
    techniques: tuple[str, ...]
    """As they were added."""
    bottleneck: str
    device: str
    tools: str
    proposer: str
    parent: str
    """Hash of the candidate it was made from, the first of two."""
    gain: float | None
    """As it was added: ln(parent / child) of an edit, ln(eager / itself) of a kernel."""
    shape: str
    """Hash of the canonical form of its source, or empty."""

    @property
    def environment(self) -> Environment:
        """Where it was measured, and who wrote it."""
        return Environment(device=self.device, tools=self.tools, proposer=self.proposer)

    @property
    def collection(self) -> str:
        """Name of the collection of the vector index that holds it."""
        return f"{self.backend}-{self.kind}"

    @property
    def contest(self) -> Contest:
        """With what its time may be compared."""
        return Contest(self.fingerprint, self.backend, self.device)


def is_stale(card: Card, here: Environment) -> bool:
    """Whether it claims something that was measured on another device or with other tools."""
    return card.kind in CLAIMS and differs(card.environment, here)
