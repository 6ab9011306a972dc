"""Owns what an author outside hands in, what becomes of it, and whose place it takes."""

from collections import Counter

from evokernel.attempt import Attempt, Backend, Fault, Proposal, Usage
from evokernel.frozen import Frozen
from evokernel.opgraph import OpGraph
from evokernel.proposers import Exhausted, Request
from evokernel.task import Task

ALIKE = 0.5
"""Share of common lines from which on a candidate counts as made from an earlier one (ours)."""


class Submission(Frozen):
    """What an author outside hands in."""

    source: str
    """A Python module with `ModelNew`."""
    parent: int | None = None
    """Number of the attempt that it was made from; 0 is from nothing, None the most similar one."""
    techniques: tuple[str, ...] = ()
    """Techniques that it applies; names of the catalogue."""
    rationale: str = ""
    """What was done and why, in a sentence or two."""
    prompt: str = ""
    """What its author was shown, in full."""
    reply: str = ""
    """What its author answered, in full."""
    fault: Fault | None = None
    """Why there is nothing to judge; `source` is a stand-in then."""
    usage: Usage = Usage()
    used: tuple[str, ...] = ()
    """Ids of shown experiences that its author made use of."""


class Judged(Frozen):
    """What became of a submission."""

    number: int
    """Of the attempt, counted from 1."""
    attempt: Attempt
    """With its verdict, and the reward that what was shown got."""
    repeats: int | None = None
    """An earlier attempt with the same source, whose verdict was used again."""
    is_best: bool = False
    """It is the fastest feasible one of the run so far."""


class ExternalAuthor:
    """Stands where a proposer stands, and never proposes: its candidates are handed in."""

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, task: Task, graph: OpGraph | None, backend: Backend) -> None:
        """Serve every task."""

    def propose(self, request: Request) -> Proposal:
        """Never.

        Raises:
            Exhausted: always.
        """
        raise Exhausted("the author is outside")


def most_alike(source: str, attempts: tuple[Attempt, ...]) -> Attempt | None:
    """The earlier attempt that a source shares most lines with; None where no half is the same."""
    lines = _lines(source)
    best, share = None, ALIKE
    for attempt in attempts:
        others = _lines(attempt.proposal.candidate.source)
        common = sum((lines & others).values()) / max(lines.total(), others.total(), 1)
        if common >= share and attempt.proposal.fault is None:
            best, share = attempt, common
    return best


def _lines(source: str) -> Counter[str]:
    return Counter(line.strip() for line in source.splitlines() if line.strip())
