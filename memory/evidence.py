"""Owns the evidence behind experiences: where they were shown and what that earned."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

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
    at: float
    """When it was shown, Unix seconds."""
    rewarded_at: float | None
    """When the step earned its reward, Unix seconds; None without one."""

    @property
    def run(self) -> str:
        """The run of its step."""
        return self.step.rpartition("/")[0]


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
    """Per stage; with the spread that chance alone gives where the rule has none of its own."""
    showings: tuple[Showing, ...]
    """Oldest first."""
    history: tuple[StatusChange, ...]
    """Oldest first; the first one is how it entered."""


def evidence_of(
    journal: Journal,
    entries: Sequence[Entry],
    values: Mapping[str, dict[Stage, Value]],
    uncounted: frozenset[str],
) -> tuple[Evidence, ...]:
    """Gather the journal's events about experiences, in one reading.

    Args:
        journal: Where from.
        entries: Which experiences.
        values: What each is worth, by id.
        uncounted: Steps that are left out of the values.
    """
    ids = frozenset(entry.experience.id for entry in entries)
    showings, history = _showings(journal, ids, uncounted), _history(journal, ids)
    return tuple(
        Evidence(
            entry=entry,
            values=values[entry.experience.id],
            showings=tuple(showings[entry.experience.id]),
            history=tuple(history[entry.experience.id]),
        )
        for entry in entries
    )


def _history(journal: Journal, ids: frozenset[str]) -> defaultdict[str, list[StatusChange]]:
    found: defaultdict[str, list[StatusChange]] = defaultdict(list)
    rows = journal.history(*ids) if len(ids) == 1 else journal.history()
    for row in rows:
        if row.experience in ids:
            change = StatusChange(status=row.status, reason=row.reason, step=row.step, at=row.at)
            found[row.experience].append(change)
    return found


def _showings(
    journal: Journal, ids: frozenset[str], uncounted: frozenset[str]
) -> defaultdict[str, list[Showing]]:
    found: defaultdict[str, list[Showing]] = defaultdict(list)
    for id, showing in _shown(journal, ids, uncounted):
        found[id].append(showing)
    return found


def _shown(
    journal: Journal, ids: frozenset[str], uncounted: frozenset[str]
) -> Iterator[tuple[str, Showing]]:
    earned = {row.step: row for row in journal.earned()}
    for row in journal.retrieval_heads():
        reward = earned.get(row.step)
        for choice in json.loads(row.chosen):
            if choice["id"] in ids:
                yield (
                    choice["id"],
                    Showing(
                        step=row.step,
                        stage=Stage(row.stage),
                        task=row.task,
                        policy=row.policy,
                        propensity=choice["propensity"],
                        reward=reward.value if reward else None,
                        counts=row.step not in uncounted,
                        at=row.at,
                        rewarded_at=reward.at if reward else None,
                    ),
                )
