"""Owns `Stats`: the state of a memory in numbers."""

import json
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from evokernel.attempt import Stage
from evokernel.frozen import Frozen
from evokernel.memory.catch_up import pending
from evokernel.memory.index import VectorIndex
from evokernel.memory.journal import Journal
from evokernel.memory.shelf import Shelf
from evokernel.memory.values import Learner, Rewarded


class Group(Frozen):
    """How many experiences share backend, kind and status."""

    backend: str
    kind: str
    status: str
    count: int


class StageStats(Frozen):
    """Retrievals, rewards and values of one stage."""

    stage: Stage
    retrievals: int
    shown: int
    """Experiences shown, all retrievals together."""
    rewards: int
    mean_reward: float | None
    """Of the rewards as computed, before they are standardised."""
    values: int
    """Experiences that have a value."""
    lowest: float | None
    median: float | None
    highest: float | None
    visited_thrice: int
    """Experiences whose value rests on three rewards or more."""


class IndexStats(Frozen):
    """How far the vector index follows the journal."""

    watermark: int
    """Number of the last event that it reflects."""
    behind: int
    """Experiences that it must still take in or out; until then they are compared exactly."""
    owner: str
    """Id of the process that owns it now, or empty."""


class Stats(Frozen):
    """The state of a memory in numbers."""

    place: str
    embedder: str
    bank_version: int
    """Number of the last event."""
    experiences: int
    groups: tuple[Group, ...]
    stages: tuple[StageStats, ...]
    policies: dict[str, int]
    """Retrievals by policy."""
    runs: int
    """Runs that left experiences."""
    index: IndexStats | None
    """None for a memory without files."""


def stats_of(
    journal: Journal, shelf: Shelf, values: Learner, index: VectorIndex | None, embedder: str
) -> Stats:
    """Count everything; `shelf` and `values` are up to the journal."""
    retrievals, rewards = journal.retrieval_heads(), journal.rewards_after(0)
    counted = Counter(
        (card.backend, card.kind, shelf.statuses[card.id].value) for card in shelf.cards.values()
    )
    return Stats(
        place=journal.label,
        embedder=embedder,
        bank_version=shelf.watermark,
        experiences=len(shelf.cards),
        groups=tuple(
            Group(backend=backend, kind=kind, status=status, count=count)
            for (backend, kind, status), count in sorted(counted.items())
        ),
        stages=tuple(_stage(retrievals, rewards, values, stage) for stage in Stage),
        policies=dict(Counter(row.policy for row in retrievals)),
        runs=len({card.run for card in shelf.cards.values()}),
        index=_index(shelf, index) if index else None,
    )


def _stage(
    retrievals: Sequence[Any], rewards: Sequence[Rewarded], values: Learner, stage: Stage
) -> StageStats:
    retrieved = [row for row in retrievals if row.stage == stage.value]
    earned = [event.value for event in rewards if event.stage is stage]
    found = [value for (_, of), value in values.table.items() if of is stage]
    qs = [value.q for value in found]
    return StageStats(
        stage=stage,
        retrievals=len(retrieved),
        shown=sum(len(json.loads(row.chosen)) for row in retrieved),
        rewards=len(earned),
        mean_reward=fmean(earned) if earned else None,
        values=len(qs),
        lowest=min(qs, default=None),
        median=median(qs) if qs else None,
        highest=max(qs, default=None),
        visited_thrice=sum(value.visits >= 3 for value in found),
    )


def _index(shelf: Shelf, index: VectorIndex) -> IndexStats:
    watermark = index.watermark
    return IndexStats(
        watermark=watermark,
        behind=len(pending(shelf, watermark)),
        owner=index.owner,
    )
