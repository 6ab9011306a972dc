"""Owns what a policy is asked and what it answers: `PoolItem`, `Occasion`, `Selection`."""

import random
from typing import NamedTuple

from pydantic import Field

from evokernel.attempt import Stage
from evokernel.frozen import Frozen
from evokernel.memory.experience import Kind

CHOSEN = "chosen"
"""`PoolItem.fate` of what is shown."""

USUAL, PROBE, NULL = "usual", "probe", "null"
"""The arms of a decision: the rule itself; a step that explores; a step that shows nothing."""


class PoolItem(Frozen):
    """One experience that could have been shown, with what was known of it then."""

    id: str
    """Of the experience."""
    kind: Kind
    """What the experience claims."""
    similarity: float
    """Cosine similarity of its situation to the query's, -1..1."""
    q: float
    """Value for the query's stage at that time."""
    n: int
    """Visits behind that value."""
    evidence: float | None = None
    """Visits by weight: less than `n` where credit was shared unevenly or evidence is stale. None
    where every visit counts in full."""
    spread: float | None = None
    """Standard deviation of `q`, in units of the rewards; None where the policy has none."""
    prior: float = 0.0
    """What its techniques have been worth in situations like this one, in units of rewards."""
    score: float = 0.0
    """What the policy ranked by."""
    is_pinned: bool = False
    """Whether a person wants it in every pool that it fits into."""
    chance: float | None = None
    """Largest chance that it had for a slot; None where older versions did not log it."""
    fate: str = ""
    """`chosen`, or why not, in words; empty where older versions did not log it."""
    keys: dict[str, str] = Field(default={}, exclude=True)
    """By what it is a duplicate of others: how alike, in words, by key. Not logged."""

    @property
    def weight(self) -> float:
        """Visits by weight."""
        return self.n if self.evidence is None else self.evidence


class Occasion(NamedTuple):
    """The step for which a policy chooses."""

    stage: Stage
    """Whether the step drafts or refines."""
    slots: int
    """N, how many to show at most."""
    rng: random.Random
    """From `dice`, so that the same step chooses the same."""
    spent: float | None = None
    """Share of the task's budget that is spent, 0..1; None where nobody knows."""


class Choice(Frozen):
    """One item of the pool put into a slot."""

    item: PoolItem
    """What was put there."""
    propensity: float
    """Chance of this item for this slot, given the arm and the slots before; 0..1."""
    reason: str
    """One phrase in words."""


class Selection(Frozen):
    """What a policy chose for one step, and by what chances."""

    arm: str = USUAL
    """`usual`, `probe` or `null`."""
    arm_chance: float = 1.0
    """Chance of that arm."""
    choices: tuple[Choice, ...] = ()
    """What is shown, in the order of the slots."""
    withheld: tuple[Choice, ...] = ()
    """What was chosen and then held back by a coin, to learn what it is worth."""
    shown_chance: float = 1.0
    """Chance of each choice to pass that coin."""
    pool: tuple[PoolItem, ...] = ()
    """Every item of the pool with its score, its largest chance and its fate."""

    @property
    def propensity(self) -> float:
        """Chance of exactly this decision: of the arm, of each slot in turn, and of each coin."""
        chance = self.arm_chance
        for choice in (*self.choices, *self.withheld):
            chance *= choice.propensity
        chance *= self.shown_chance ** len(self.choices)
        return float(chance * (1 - self.shown_chance) ** len(self.withheld))
