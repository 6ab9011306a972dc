"""Owns the contract of what an author may have done for it while it writes a candidate."""

from typing import Protocol, runtime_checkable

from evokernel.attempt import Candidate, Proposal
from evokernel.evaluation import Evaluation
from evokernel.memory.experience import Experience
from evokernel.proposers import Request


class Aids(Protocol):
    """What a step offers beside its request: rough verdicts, and a look into the memory.

    Nothing of it is an attempt, earns a reward or enters the memory.
    """

    def compile(self, candidate: Candidate) -> Evaluation | None:
        """Build every kernel; the failed evaluation, or None where all were built."""

    def evaluate(self, candidate: Candidate) -> Evaluation:
        """Judge it by the quick profile, against eager alone, with its values as they stand."""

    def profile(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """Add what bounds a candidate that passed."""

    def recall(self, words: str, most: int) -> tuple[Experience, ...]:
        """Experiences that may be shown to this step and in which the words occur, best first."""

    def read(self, id: str) -> Experience | None:
        """One experience; None where there is none of that id that may be shown to this step."""

    def tell(self, tool: str, outcome: str, seconds: float) -> None:
        """Write down that a tool was used."""


@runtime_checkable
class Aided(Protocol):
    """A proposer that makes use of them."""

    def propose_aided(self, request: Request, aids: Aids) -> Proposal:
        """Write one candidate with their help.

        Raises:
            Exhausted: nothing new is left to propose.
            BudgetSpent: it would cost more than is left; nothing is there to hand over.
            ModelError: the model could not be asked; the step stays open.
        """
