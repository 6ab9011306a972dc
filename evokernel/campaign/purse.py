"""Owns the common budget of a campaign: what the next run may spend of it."""

from typing import Any

from evokernel.campaign import Campaign, Purse
from evokernel.config import Budget, RunConfig
from evokernel.frozen import Frozen
from evokernel.record import RunRecord
from evokernel.record.spending import spending

WHOLE = ("attempts", "tokens")
"""Limits that are whole numbers."""


class Spent(Frozen):
    """What runs have spent, or may still spend."""

    attempts: float = 0
    tokens: float = 0
    usd: float = 0

    def plus(self, other: "Spent") -> "Spent":
        """Both together."""
        fields = Spent.model_fields
        return Spent(**{name: getattr(self, name) + getattr(other, name) for name in fields})


def spent_by(record: RunRecord) -> Spent:
    """What a run has spent so far."""
    done = spending(record)
    return Spent(attempts=len(record.attempts()), tokens=done.tokens, usd=done.usd)


def reserved_by(config: RunConfig) -> Spent:
    """What a run that is under way may spend in all."""
    budget = config.budget
    return Spent(attempts=budget.attempts, tokens=budget.tokens or 0, usd=budget.usd or 0)


def share(
    campaign: Campaign, config: RunConfig, taken: Spent, seconds: float, waiting: int
) -> RunConfig | None:
    """The config of the next run, its budget cut to an equal share of what is left.

    What a run leaves over goes back to the others.

    Args:
        campaign: The campaign.
        config: As the run was asked for.
        taken: What ended runs have spent, and what those under way may spend.
        seconds: Wall-clock seconds of the campaign so far.
        waiting: Runs that have not begun, this one included.

    Returns:
        None where nothing is left.
    """
    purse, budget = campaign.budget, config.budget.model_dump()
    for name in ("attempts", "tokens", "usd"):
        limit = getattr(purse, name)
        if limit is not None:
            left = limit - getattr(taken, name)
            part = left / waiting
            if name in WHOLE:  # one at least, while there is one
                part = max(int(part), min(1, int(left)))
            budget[name] = _least(budget[name], part)
    if purse.minutes is not None:
        left = purse.minutes - seconds / 60
        budget["minutes"] = _least(budget["minutes"], min(left, left * campaign.jobs / waiting))
    if any(budget[name] is not None and budget[name] <= 0 for name in Purse.model_fields):
        return None
    return config.model_copy(update={"budget": Budget.model_validate(budget)})


def is_empty(purse: Purse, taken: Spent, seconds: float) -> str:
    """Which limit is reached, in words; nothing while there is something left."""
    limits: dict[str, Any] = {"attempts": taken.attempts, "tokens": taken.tokens, "usd": taken.usd}
    limits["minutes"] = seconds / 60
    for name, done in limits.items():
        limit = getattr(purse, name)
        if limit is not None and done >= limit:
            return f"all {limit:g} {name} of the campaign are spent"
    return ""


def _least(own: float | None, part: float) -> float:
    return part if own is None else min(own, part)
