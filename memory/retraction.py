"""Owns what a retraction means for the values: whose rewards do not count any more."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from evokernel.memory.experience import Experience, ExperienceStatus

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


def uncounted(retracted: Collection[str], rewards: Iterable[Yardstick]) -> frozenset[str]:
    """Steps whose rewards leave the fold.

    Those that made a retracted kernel earned theirs by it. Later ones of the same run whose reward
    was measured against its time, while it was the run's best, were told too little.

    Args:
        retracted: Steps that made what was withdrawn.
        rewards: Every reward that was given.
    """
    if not retracted:
        return frozenset()
    known = list(rewards)
    false_ms = {(r.run, r.latency_ms) for r in known if r.step in retracted and r.latency_ms}
    return frozenset(retracted) | {r.step for r in known if (r.run, r.best_ms) in false_ms}


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
    return status in {ExperienceStatus.ACTIVE, ExperienceStatus.QUARANTINE}
