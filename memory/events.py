"""Owns the events on their way into the journal and out of it."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evokernel.attempt import Stage
from evokernel.memory.environment import Environment
from evokernel.memory.experience import Experience, ExperienceStatus, Measurement
from evokernel.memory.retraction import Yardstick
from evokernel.memory.rewards import Reward
from evokernel.memory.values import Rewarded

Vector = NDArray[np.float32]
"""An embedding, shape (dimension,)."""


class Addition(NamedTuple):
    """One experience on its way into the journal."""

    experience: Experience
    content: str
    """Hash by which duplicates are recognised."""
    vector: Sequence[float]
    status: ExperienceStatus
    reason: str


class Verdict(NamedTuple):
    """One change of status on its way into the journal."""

    experience: str
    status: ExperienceStatus
    reason: str
    measurement: Measurement | None = None


class News(NamedTuple):
    """What was added after some event, oldest first."""

    version: int
    """Number of the last event."""
    experiences: Sequence[Any]
    """Their columns without the bodies."""
    statuses: Sequence[Any]
    revisions: Sequence[Any]
    rewards: Sequence[Any]


def rewarded(row: Any) -> Rewarded:
    """A row of rewards, with what its step was asked and shown, as values are folded from it."""
    asked = json.loads(row.asked) if row.asked else {}
    chosen = json.loads(row.chosen) if row.chosen else ()
    reward = Reward.model_validate_json(row.body)
    return Rewarded(
        seq=row.seq,
        step=row.step,
        stage=Stage(row.stage),
        value=row.value,
        shown=tuple(json.loads(row.shown)),
        weights=reward.weights,
        reward=reward,
        task=asked.get("fingerprint") or row.task or "",
        family=asked.get("family", ""),
        environment=Environment(**asked.get("environment", {})),
        priors={choice["id"]: choice["prior"] for choice in chosen if choice.get("prior")},
        at=row.at,
    )


def yardstick(row: Any) -> Yardstick:
    """A row of rewards as what it was computed from."""
    body = json.loads(row.body)
    return Yardstick(row.step, body.get("best_ms"), body.get("latency_ms"))
