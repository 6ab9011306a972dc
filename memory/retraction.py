"""Owns what a retraction means for the values: whose rewards do not count any more."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from evokernel.memory.experience import BELIEVED, Experience, ExperienceStatus

CLAIMS = frozenset({"kernel", "edit", "fix"})
"""Kinds that say of a candidate that it may be used: they fall together with it."""


class Yardstick(NamedTuple):
    """What one reward was computed from."""

    step: str
    best_ms: float | None
    """The run's best time before the step, milliseconds; None for what no best was needed."""
    latency_ms: float | None
    """The step's own time; None where its candidate failed."""

    @property
    def run(self) -> str:
        """The run of its step."""
        return self.step.rpartition("/")[0]


class Discount:
    """Whose rewards leave the fold, carried on from one look at the reward log to the next.

    Those of steps that made a retracted kernel were earned by it. Later ones of the same run whose
    reward was measured against its time, while it was the run's best, were told too little.

    Args:
        retracted: Steps that made what was withdrawn.
        known: Every reward that was given so far.
    """

    def __init__(self, retracted: Collection[str], known: Iterable[Yardstick]) -> None:
        self.retracted = frozenset(retracted)
        found = list(known)
        self._false_ms = frozenset(self._false(found))
        self.steps = self.retracted | self._measured_falsely(found)
        """Steps whose rewards leave the fold."""

    def take_in(self, news: Iterable[Yardstick]) -> bool:
        """Look at rewards that were given since.

        Returns:
            False where they bring a false time to light, so that all have to be looked at again.
        """
        found = list(news)
        if not self._false_ms.issuperset(self._false(found)):
            return False
        self.steps |= self._measured_falsely(found)
        return True

    def _false(self, rewards: Iterable[Yardstick]) -> set[tuple[str, float]]:
        """Run and milliseconds of what was withdrawn."""
        return {(r.run, r.latency_ms) for r in rewards if r.step in self.retracted and r.latency_ms}

    def _measured_falsely(self, rewards: Iterable[Yardstick]) -> frozenset[str]:
        return frozenset(r.step for r in rewards if (r.run, r.best_ms) in self._false_ms)


def same_source(experience: Experience, known: Iterable[Experience]) -> list[str]:
    """Ids of what else claims something of the candidate that an experience is about, any run."""
    candidate = experience.origin.candidate
    if not candidate or experience.kind not in CLAIMS:
        return []
    return [
        other.id
        for other in known
        if other.origin.candidate == candidate
        and other.kind in CLAIMS
        and other.id != experience.id
    ]


def may_fall(status: ExperienceStatus) -> bool:
    """Whether an experience can become suspect: nothing that is hidden already."""
    return status in BELIEVED
