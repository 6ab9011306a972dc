"""Owns how an experience enters the memory: its situation, its first status, its content's hash."""

import hashlib
import json

from evokernel.memory.embedding import Situation
from evokernel.memory.experience import Experience, ExperienceStatus
from evokernel.opgraph import OpGraph


def situation_of(experience: Experience, graph: OpGraph | None) -> Situation:
    """What is embedded of an experience; `graph` is the one of its task."""
    return Situation(
        graph=graph,
        family=experience.family,
        bottleneck=experience.bottleneck,
        techniques=experience.techniques,
    )


def first_status(experience: Experience) -> tuple[ExperienceStatus, str]:
    """Nothing is believed before its promotion, save a failure that claims no speed."""
    measured = experience.measurement
    claims = measured.median_ms is not None or measured.speedup is not None
    if experience.kind == "lesson" and experience.outcome == "failure" and not claims:
        return ExperienceStatus.ACTIVE, "a lesson from a failure claims no speed"
    return ExperienceStatus.QUARANTINE, "not confirmed yet"


def content_hash(experience: Experience) -> str:
    """By this duplicates are recognised, whatever step or task they come from."""
    kept = sorted((k, v) for k, v in experience.payload.items() if k != "feedback")
    text = json.dumps([experience.kind, experience.backend, experience.techniques, kept])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
