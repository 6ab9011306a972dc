"""Owns `Explanation`: why one step was shown what it was shown, as the journal tells it.

Pool, values, chances and choices are those that were logged. What stood outside the pool is told
from events up to the number that the retrieval logged, so that nothing is computed a second time
that could come out differently.
"""

import difflib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from evokernel.attempt import Stage
from evokernel.errors import StoreError
from evokernel.frozen import Frozen
from evokernel.memory.card import Card, is_stale
from evokernel.memory.choice import PoolItem
from evokernel.memory.environment import Environment
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.journal import Journal
from evokernel.memory.retrieval import Decision

EXAMPLES = 3
"""Ids that are named of each group outside the pool, the newest."""


class Asked(Frozen):
    """The situation that memory was asked about, and what it must not answer with."""

    family: str
    fingerprint: str
    bottleneck: str
    techniques: tuple[str, ...]
    exclude: tuple[str, ...]
    """Ids that the step ruled out: what the start point itself left behind."""
    holdout: tuple[str, ...]
    """Fingerprints of tasks that are held out."""
    environment: Environment = Environment()
    """Where the step took place; nothing is known of it in older versions."""
    hides_stale: bool = False
    """Whether what was measured elsewhere was hidden."""


class Considered(Frozen):
    """One experience of the pool."""

    item: PoolItem
    """As it was logged: similarity, value, visits, score, chance and what became of it."""
    uncertainty: float | None
    """Standard deviation of the value from the chance in its rewards, in units of their spread; at
    most that for drafts. None before the first reward, unless the policy has a prior."""
    propensity: float | None
    """Chance with which it was put into its slot; None where it was not chosen."""
    slot: int | None
    """Place among what was shown, from 1."""
    showings: int
    """Steps in which it had been shown until then."""
    rewards: tuple[float, ...]
    """What those had earned until then, as computed, oldest first."""


class Outside(Frozen):
    """Experiences that were not in the pool for one reason."""

    reason: str
    count: int
    examples: tuple[str, ...]


class Explanation(Frozen):
    """One retrieval with its reasons."""

    step: str
    """The step that asked."""
    task: str
    """Name of its task."""
    stage: Stage
    """Whether it drafts or refines."""
    policy: str
    """Name of the policy that chose."""
    parameters: dict[str, float]
    """Constants of the policy."""
    bank_version: int
    """Number of the last event that counted."""
    seed: int
    """Seed of its random numbers."""
    asked: Asked | None
    """None for a retrieval of an older version, which did not log it."""
    decision: Decision
    """By which arm it was made, and what was held back."""
    reward: float | None
    """What the step earned, as computed; None where it was not charged or has not ended."""
    pool: tuple[Considered, ...]
    """Most similar first."""
    outside: tuple[Outside, ...]
    """What was not in the pool: how many, by reason."""
    reasons: dict[str, str]
    """Why each experience outside the pool was there, by id."""


def explain(
    journal: Journal, cards: Mapping[str, Card], step: str, is_beaten: Callable[[str], bool]
) -> Explanation:
    """Gather what the journal knows of one retrieval.

    Args:
        journal: Where it was logged.
        cards: Of every experience, by id.
        step: Whose retrieval it was.
        is_beaten: Whether a faster kernel of its task stands for an experience, as is known now.

    Raises:
        StoreError: no such step; names the nearest.
    """
    row = journal.retrieval(step)
    if row is None:
        raise StoreError(_unknown(journal, step))
    asked, decided = journal.asked(step), journal.decided(step)
    about = Asked.model_validate_json(asked) if asked else None
    pool = [PoolItem(**item) for item in json.loads(row["pool"])]
    reasons = _reasons(journal, cards, row, pool, about, is_beaten)
    rewards = journal.rewards_after(0)
    return Explanation(
        **{name: row[name] for name in ("step", "task", "stage", "policy", "bank_version", "seed")},
        parameters=json.loads(row["parameters"]),
        asked=about,
        decision=Decision.model_validate_json(decided) if decided else Decision(),
        reward=next((event.value for event in rewards if event.step == step), None),
        pool=_considered(journal, row, pool),
        outside=_groups(reasons),
        reasons=reasons,
    )


def uncertainty(alpha: float, visits: int) -> float | None:
    """Standard deviation of a value after so many rewards of spread 1.

    Q is an average of the rewards with weights alpha (1 - alpha)^k; the squares of the weights add
    up to alpha / (2 - alpha) (1 - (1 - alpha)^2n).
    """
    if not visits:
        return None
    return math.sqrt(alpha / (2 - alpha) * (1 - (1 - alpha) ** (2 * visits)))


def _considered(journal: Journal, row: Mapping[str, Any], pool: list[PoolItem]) -> Any:
    chosen = {choice["id"]: (n, choice) for n, choice in enumerate(json.loads(row["chosen"]), 1)}
    showings, rewards = _evidence(journal, row["bank_version"], {item.id for item in pool})
    alpha = json.loads(row["parameters"])["alpha"]
    return tuple(
        Considered(
            item=item,
            uncertainty=uncertainty(alpha, item.n) if item.spread is None else item.spread,
            propensity=chosen[item.id][1]["propensity"] if item.id in chosen else None,
            slot=chosen[item.id][0] if item.id in chosen else None,
            showings=showings.get(item.id, 0),
            rewards=tuple(rewards.get(item.id, ())),
        )
        for item in pool
    )


def _evidence(
    journal: Journal, upto: int, ids: set[str]
) -> tuple[dict[str, int], dict[str, list[float]]]:
    """How often each was shown, and what that earned, up to one event."""
    showings: dict[str, int] = {}
    rewards: dict[str, list[float]] = {}
    for head in journal.retrieval_heads():
        for id in {choice["id"] for choice in json.loads(head.chosen)} & ids:
            showings[id] = showings.get(id, 0) + (head.seq <= upto)
    for event in journal.rewards_after(0):
        for id in ids.intersection(event.shown) if event.seq <= upto else ():
            rewards.setdefault(id, []).append(event.value)
    return showings, rewards


def _reasons(
    journal: Journal,
    cards: Mapping[str, Card],
    row: Mapping[str, Any],
    pool: list[PoolItem],
    asked: Asked | None,
    is_beaten: Callable[[str], bool],
) -> dict[str, str]:
    inside = {item.id for item in pool}
    statuses = journal.statuses_upto(row["bank_version"])
    parameters = json.loads(row["parameters"])
    size = parameters.get("pool_size", parameters["slots"] * parameters["pool_factor"])
    rest = _rest(int(size), pool, parameters, asked)
    return {
        card.id: _hidden(card, statuses[card.id], row, asked)
        or _beaten(card, row, is_beaten)
        or rest
        for card in cards.values()
        if card.seq <= row["bank_version"] and card.id not in inside
    }


def _hidden(
    card: Card, status: ExperienceStatus, row: Mapping[str, Any], asked: Asked | None
) -> str:
    """The hard filter that hid it, or nothing."""
    if card.backend not in {row["backend"], "neutral"}:
        return f"not for the backend `{row['backend']}`"
    if card.kind == "api":
        return "looked up by exact name only"
    if status is ExperienceStatus.TOMBSTONE:
        return "withdrawn"
    if status is ExperienceStatus.RETIRED:
        return "retired from the bank"
    if status is ExperienceStatus.SUSPECT:
        return "suspect: not confirmed, or made from what was withdrawn"
    if status is ExperienceStatus.QUARANTINE and card.run != row["run"]:
        return "in quarantine, from another run"
    if asked and card.fingerprint in asked.holdout:
        return "its task was held out"
    if asked and asked.hides_stale and is_stale(card, asked.environment):
        return "measured on another device or with other tools"
    if asked and card.id in asked.exclude:
        return "excluded: it is the start point itself"
    return ""


def _beaten(card: Card, row: Mapping[str, Any], is_beaten: Callable[[str], bool]) -> str:
    """Why no draft starts from it, if so."""
    hides = row["stage"] == Stage.DRAFT and is_beaten(card.id)
    return "a faster kernel of its task stands for it at drafts" if hides else ""


def _rest(
    size: int, pool: list[PoolItem], parameters: Mapping[str, float], asked: Asked | None
) -> str:
    """Why something is outside that no filter hid: the pool took the `size` most similar ones.

    It was logged most similar first; what is pinned stands in it besides.
    """
    if size <= 0:
        return "nothing was asked for"
    if size <= len(pool):
        least = pool[size - 1].similarity
        reason = f"less similar than the {size} of the full pool, which goes down to {least:.2f}"
    else:
        reason = f"below the gate: similarity under {parameters['gate']:.3g}"
    return reason if asked else f"{reason}, or held out or excluded, which was not logged then"


def _groups(reasons: Mapping[str, str]) -> tuple[Outside, ...]:
    groups: dict[str, list[str]] = {}
    for id, reason in reasons.items():
        groups.setdefault(reason, []).append(id)
    return tuple(
        Outside(reason=reason, count=len(ids), examples=tuple(reversed(ids[-EXAMPLES:])))
        for reason, ids in sorted(groups.items(), key=lambda group: -len(group[1]))
    )


def _unknown(journal: Journal, step: str) -> str:
    known = [head.step for head in journal.retrieval_heads()]
    near = difflib.get_close_matches(step, known, n=1, cutoff=0.4)
    hint = f"the nearest is `{near[0]}`" if near else "a run with memory makes some"
    return f"no retrieval for the step `{step}` in the memory `{journal.label}`: {hint}"
