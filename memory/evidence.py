"""Owns the evidence behind one experience: where it was shown and what that earned."""

import json

from evokernel.attempt import Stage
from evokernel.frozen import Frozen
from evokernel.memory.experience import Entry
from evokernel.memory.journal import Journal
from evokernel.memory.values import Value


class Showing(Frozen):
    """One step in which it was shown."""

    step: str
    stage: Stage
    task: str
    policy: str
    propensity: float
    reward: float | None
    """Reward of the step as computed; None where the step was not charged or has not ended."""
    counts: bool = True
    """False where what earned the reward was retracted: it is left out of the value."""


class StatusChange(Frozen):
    """One change of its status."""

    status: str
    reason: str
    step: str
    at: float
    """Unix seconds."""


class Evidence(Frozen):
    """Everything that is known of one experience."""

    entry: Entry
    values: dict[Stage, Value]
    """Per stage."""
    showings: tuple[Showing, ...]
    """Oldest first."""
    history: tuple[StatusChange, ...]
    """Oldest first."""


def evidence_of(
    journal: Journal, entry: Entry, values: dict[Stage, Value], uncounted: frozenset[str]
) -> Evidence:
    """Gather the journal's events about one experience; `uncounted` are steps that are left out."""
    return Evidence(
        entry=entry,
        values=values,
        showings=_showings(journal, entry.experience.id, uncounted),
        history=tuple(
            StatusChange(status=row.status, reason=row.reason, step=row.step, at=row.at)
            for row in journal.history(entry.experience.id)
        ),
    )


def _showings(journal: Journal, id: str, uncounted: frozenset[str]) -> tuple[Showing, ...]:
    earned = {event.step: event.value for event in journal.rewards_after(0)}
    return tuple(
        Showing(
            step=row.step,
            stage=Stage(row.stage),
            task=row.task,
            policy=row.policy,
            propensity=choice["propensity"],
            reward=earned.get(row.step),
            counts=row.step not in uncounted,
        )
        for row in journal.retrieval_heads()
        for choice in json.loads(row.chosen)
        if choice["id"] == id
    )
