"""Owns which step comes next: whose turn it is, whether to draft, repair, edit or recombine.

The start points of all trajectories are one population. Memory's start-point table chooses by
value and niche; what is decided here depends on the seed and the step alone, so that a resumed run
goes on as it would have.
"""

import hashlib
import random

from evokernel.attempt import Attempt, Stage
from evokernel.config import RunConfig
from evokernel.frozen import Frozen
from evokernel.graphs import niches
from evokernel.memory.store import Memory
from evokernel.record import RunRecord


class Plan(Frozen):
    """`plan.json`: what one step sets out to do."""

    number: int
    step: str
    """Unique id, `<run>/<number>`."""
    seed: int
    """Seed of the step's random choices, below 2**32."""
    trajectory: int
    """Which of the `width` trajectories has its turn, from 0."""
    stage: Stage
    option: str
    """What is asked of the proposer; it is not asked again once that was in vain."""
    why: str
    """The decision in words."""
    parents: tuple[str, ...] = ()
    """Hashes of the failed draft to repair, the start point to edit, or two to recombine."""
    niche: str = ""
    """Algorithm of the start point; empty for a draft."""
    start: int | None = None
    """Which of the user's own kernels is evaluated, from 1; None asks the proposer."""
    shown: tuple[str, ...] = ()
    """Ids of the experiences that memory brought back."""


DRAFT = "draft"
"""The option of writing one from nothing."""


def plan(record: RunRecord, memory: Memory) -> Plan | None:
    """Decide on the next step.

    Returns:
        None when nothing is left that the proposer was not already asked in vain.
    """
    return _Turn(record, memory).plan()


def turns(record: RunRecord) -> int:
    """Attempts that trajectories have made; the user's own kernels are not among them."""
    return len(record.attempts()) - _starts_done(record)


def step_seed(seed: int, number: int) -> int:
    """Seed of one step: below 2**32, the same for every run with the same seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def _starts_done(record: RunRecord) -> int:
    return min(len(record.config.search.start), len(record.attempts()))


class _Turn:
    """One decision, and what it looks at."""

    def __init__(self, record: RunRecord, memory: Memory) -> None:
        self.record = record
        self.memory = memory
        self.config: RunConfig = record.config
        self.number = record.next_number()
        self.step = f"{record.id}/{self.number}"
        self.seed = step_seed(self.config.search.seed, self.number)
        self.tried_in_vain = set(record.skipped())
        self.trajectory = turns(record) % self.config.search.width
        starts = len(self.config.search.start)
        self.own = [
            attempt
            for attempt in record.attempts()[starts:]
            if attempt.trajectory == self.trajectory
        ]

    def plan(self) -> Plan | None:
        if self.number <= len(self.config.search.start):
            why = f"the user's own kernel {self.number}"
            return self._plan(Stage.DRAFT, f"start:{self.number}", why, start=self.number)
        return self._first() or self._refine() or self._draft("there is no start point to refine")

    def _first(self) -> Plan | None:
        """Begin the trajectory with a draft of its own, or repair it.

        As many trajectories as the user has given working kernels begin with those instead.
        """
        if self.own:
            return self._repair()
        given = self.record.attempts()[: len(self.config.search.start)]
        if self.trajectory < sum(a.evaluation.status.is_feasible for a in given):
            return None
        return self._draft("each trajectory begins with its own")

    def _plan(
        self,
        stage: Stage,
        option: str,
        why: str,
        parents: tuple[str, ...] = (),
        start: int | None = None,
    ) -> Plan | None:
        if option in self.tried_in_vain:
            return None
        return Plan(
            number=self.number,
            step=self.step,
            seed=self.seed,
            trajectory=self.trajectory,
            stage=stage,
            option=option,
            why=why,
            parents=parents,
            niche=niches.niche(self._attempt_of(parents[0])) if stage is Stage.REFINE else "",
            start=start,
        )

    def _draft(self, why: str) -> Plan | None:
        return self._plan(Stage.DRAFT, DRAFT, why)

    def _repair(self) -> Plan | None:
        """Repair the trajectory's last draft, if it failed and has not been repaired too often."""
        last = self.own[-1]
        if last.proposal.stage is not Stage.DRAFT or last.evaluation.status.is_feasible:
            return None
        if self._repairs() >= self.config.search.repairs:
            return None
        sha = last.proposal.candidate.sha
        why = f"repair attempt {last.number}, which ended as {last.evaluation.status}"
        return self._plan(Stage.DRAFT, f"repair:{sha}", why, (sha,))

    def _repairs(self) -> int:
        """Repairs since the trajectory's last draft from nothing."""
        count = 0
        for attempt in reversed(self.own):
            if not attempt.proposal.parents:
                break
            count += 1
        return count

    def _refine(self) -> Plan | None:
        vain = [option.removeprefix("refine:") for option in self.tried_in_vain]
        wanted = 2 if self._chance("recombine") < self.config.search.recombine else 1
        return (self._explore(vain) if wanted == 1 else None) or self._of_value(vain, wanted)

    def _of_value(self, vain: list[str], wanted: int) -> Plan | None:
        """Edit the start point of the highest value, or combine it with one of another niche."""
        parents = self._chosen(wanted, vain)
        if not parents:
            return None
        numbers = " and ".join(str(self._attempt_of(sha).number) for sha in parents)
        why = f"{'recombine' if len(parents) > 1 else 'edit'} attempt {numbers}"
        return self._plan(Stage.REFINE, f"refine:{parents[0]}", why, parents)

    def _explore(self, vain: list[str]) -> Plan | None:
        """Now and then, give an algorithm another chance that the search has turned away from."""
        if self._chance("explore") >= self.config.search.explore:
            return None
        points = self.memory.start_points(self.record.id)
        point = niches.neglected(tuple(p for p in points if p.candidate not in vain))
        if point is None:
            return None
        parents = self._chosen(1, [p.candidate for p in points if p != point])
        number = self._attempt_of(point.candidate).number
        why = f"edit attempt {number}, the best of the niche that was worked on least"
        return self._plan(Stage.REFINE, f"refine:{point.candidate}", why, parents)

    def _chosen(self, wanted: int, hidden: list[str]) -> tuple[str, ...]:
        seed = self.config.search.seed
        return self.memory.choose_start(self.record.id, self.step, seed, wanted, hidden)

    def _chance(self, of: str) -> float:
        """A number from 0 to 1 that depends on the seed and the step alone."""
        return random.Random(f"{self.config.search.seed}/{self.number}/{of}").random()

    def _attempt_of(self, sha: str) -> Attempt:
        return next(a for a in self.record.attempts() if a.proposal.candidate.sha == sha)
