"""Owns `Changes`: what has become different in a memory since a moment."""

from collections.abc import Iterator, Sequence
from typing import Any

from evokernel.frozen import Frozen
from evokernel.memory.experience import Entry, ExperienceStatus
from evokernel.memory.journal import Journal
from evokernel.memory.revision import Revision
from evokernel.memory.technique_table import TechniqueUse, technique_table
from evokernel.memory.values import Change, Learner


class Move(Frozen):
    """One experience got another status."""

    experience: str
    before: ExperienceStatus
    after: ExperienceStatus
    reason: str
    at: float
    """Unix seconds."""


class Revised(Frozen):
    """A person changed one experience."""

    experience: str
    change: Revision
    reason: str
    at: float
    """Unix seconds."""


class TechniqueChange(Frozen):
    """What one technique has been worth, then and now."""

    before: TechniqueUse
    now: TechniqueUse


class Changes(Frozen):
    """What has become different since a moment."""

    since: float
    """Unix seconds."""
    added: tuple[str, ...]
    """Ids of the experiences that entered this memory, oldest first."""
    moved: tuple[Move, ...]
    """Oldest first; how an experience entered is no move."""
    revised: tuple[Revised, ...]
    """Oldest first."""
    rewards: int
    """Rewards that steps have earned since; a merged memory brings its own times along."""
    values: tuple[Change, ...]
    """What the rewards since have done to the values, by the rule and the retractions of today;
    largest change first."""
    techniques: tuple[TechniqueChange, ...]
    """Those of which more was tried, or was withdrawn; most newly tried first."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all has happened."""
        return not (self.added or self.moved or self.revised or self.rewards)


def changes_since(
    since: float, journal: Journal, entries: Sequence[Entry], then: Learner, now: Learner
) -> Changes:
    """Compare a memory with what it was.

    Args:
        since: The moment, Unix seconds.
        journal: Where from.
        entries: The experiences whose techniques are counted.
        then: A learner that has learned nothing yet, of the rule of `now`.
        now: The values of today.
    """
    history = journal.history()
    rewards = journal.rewards_after(0)
    then.uncounted = now.uncounted
    then.fold(event for event in rewards if event.at < since)
    moved = now.differences(then)
    return Changes(
        since=since,
        added=_added(history, since),
        moved=tuple(_moves(history, since)),
        revised=tuple(revised_since(since, journal)),
        rewards=sum(event.at >= since for event in rewards),
        values=tuple(
            Change(experience=c.experience, stage=c.stage, before=c.after, after=c.before)
            for c in sorted(moved, key=lambda c: -abs(c.before.q - c.after.q))
        ),
        techniques=_techniques(history, since, entries, then, now),
    )


def revised_since(since: float, journal: Journal) -> Iterator[Revised]:
    """What people have changed since a moment, oldest first."""
    for row in journal.revisions():
        if row.at >= since:
            yield Revised(
                experience=row.experience,
                change=Revision.model_validate_json(row.body),
                reason=row.reason,
                at=row.at,
            )


def _added(history: Sequence[Any], since: float) -> tuple[str, ...]:
    first: dict[str, float] = {}
    for row in history:
        first.setdefault(row.experience, row.at)
    return tuple(id for id, at in first.items() if at >= since)


def _moves(history: Sequence[Any], since: float) -> Iterator[Move]:
    last: dict[str, ExperienceStatus] = {}
    for row in history:
        before, after = last.get(row.experience), ExperienceStatus(row.status)
        last[row.experience] = after
        if row.at >= since and before not in {None, after}:
            yield Move(
                experience=row.experience,
                before=before or after,
                after=after,
                reason=row.reason,
                at=row.at,
            )


def _techniques(
    history: Sequence[Any], since: float, entries: Sequence[Entry], then: Learner, now: Learner
) -> tuple[TechniqueChange, ...]:
    """What was counted then: what was there, with the status that it had."""
    statuses = {row.experience: row.status for row in history if row.at < since}
    were = [
        entry.model_copy(update={"status": ExperienceStatus(statuses[entry.experience.id])})
        for entry in entries
        if entry.experience.id in statuses
    ]
    before = {use.technique: use for use in technique_table(were, then)}
    after = {use.technique: use for use in technique_table(entries, now)}
    found = (
        TechniqueChange(
            before=before.get(name, TechniqueUse(technique=name)),
            now=after.get(name, TechniqueUse(technique=name)),
        )
        for name in {**before, **after}
    )
    different = [c for c in found if _counts(c.before) != _counts(c.now)]
    different.sort(key=lambda c: (c.before.attempts - c.now.attempts, c.now.technique))
    return tuple(different)


def _counts(use: TechniqueUse) -> tuple[int, int, int]:
    return use.attempts, use.feasible, use.edits
