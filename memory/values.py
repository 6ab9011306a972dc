"""Owns the Q-values: a fold of the journal's reward events, computed anew or carried on.

One scalar per experience and stage, constant step size, no discount, the same reward for every
experience that was shown together: the rule of the EvoKernel paper (arXiv 2603.10846).
"""

import hashlib
from collections.abc import Iterable

from evokernel.attempt import Stage
from evokernel.config import Credit
from evokernel.frozen import Frozen
from evokernel.memory.rewards import Normaliser


class Rewarded(Frozen):
    """One reward event, with what was shown in its step."""

    seq: int
    """Number of the event; values are folded in this order."""
    step: str
    stage: Stage
    value: float
    """The reward as computed, before it is standardised."""
    shown: tuple[str, ...]
    """Ids of the experiences that share it."""
    weights: dict[str, float] = {}
    """What share of it each one is due, 0..1; those not named, all of it."""


class Value(Frozen):
    """What an experience is worth for one stage: how much better a step goes when it is shown."""

    q: float = 0.0
    """0 at birth (ours; the paper names none). Draft: -1..1. Refine: in standard deviations."""
    visits: int = 0
    """Rewards behind it."""


class Change(Frozen):
    """One value that came out differently when it was computed anew."""

    experience: str
    stage: Stage
    before: Value
    after: Value


UNSEEN = Value()


class Values:
    """The fold: give it every reward event once, in order."""

    def __init__(self, alpha: float, sigma_floor: float, credit: Credit = "equal") -> None:
        self.alpha = alpha
        self.credit = credit
        self.normaliser = Normaliser(sigma_floor)
        self.watermark = 0
        """Number of the last event folded."""
        self.uncounted: frozenset[str] = frozenset()
        """Steps whose rewards are left out: what earned them was retracted."""
        self.table: dict[tuple[str, Stage], Value] = {}

    def fold(self, events: Iterable[Rewarded]) -> None:
        """Take further events in; those up to the watermark are in already and are skipped."""
        for event in events:
            if event.seq > self.watermark:
                if event.step not in self.uncounted:
                    self._apply(event)
                self.watermark = event.seq

    @property
    def uncounted_hash(self) -> str:
        """Knows again what was left out; empty where nothing was."""
        text = "\n".join(sorted(self.uncounted))
        return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""

    def of(self, experience: str, stage: Stage) -> Value:
        """The value of one experience for one stage; zero where it was never shown."""
        return self.table.get((experience, stage), UNSEEN)

    def differences(self, other: "Values") -> tuple[Change, ...]:
        """Every value that `other` has differently, in a fixed order."""
        keys = sorted({*self.table, *other.table})
        return tuple(
            Change(experience=id, stage=stage, before=self.of(id, stage), after=other.of(id, stage))
            for id, stage in keys
            if self.of(id, stage) != other.of(id, stage)
        )

    def _apply(self, event: Rewarded) -> None:
        """Q <- Q + alpha (r - Q) for everything shown; a refine reward is standardised first.

        With evidence of who contributed (ours) alpha is smaller for whoever did not. The
        normaliser takes every refine reward, also of steps in which nothing was shown.
        """
        reward = event.value
        if event.stage is Stage.REFINE:
            reward = self.normaliser.standardise(reward)
        for id in event.shown:
            old = self.of(id, event.stage)
            share = event.weights.get(id, 1.0) if self.credit == "evidence" else 1.0
            self.table[id, event.stage] = Value(
                q=old.q + self.alpha * share * (reward - old.q), visits=old.visits + 1
            )
