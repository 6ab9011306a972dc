"""Owns `Slotwise`: a policy that fills slot after slot, every draw with a known chance."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evokernel.memory.choice import CHOSEN, USUAL, Choice, Occasion, PoolItem, Selection


class Draw(NamedTuple):
    """One slot about to be filled."""

    arm: str
    """The arm that was drawn."""
    slot: int
    """From 0."""
    slots: int
    """How many there are."""


class Slotwise(ABC):
    """The part that all policies share; each says how it scores and with what chances it draws.

    Not drawn are items shown already, duplicates of them, and kinds that have filled half of the
    slots, unless nothing else is left. A policy of one arm draws nothing but its slots.
    """

    name: str
    """As it is configured and logged."""
    parameters: Mapping[str, float] = {}
    """Its constants, as recorded with every retrieval."""

    @abstractmethod
    def scores(self, pool: Sequence[PoolItem]) -> tuple[float, ...]:
        """What the rule ranks by, one number for each item of the pool."""

    @abstractmethod
    def chances(self, items: Sequence[PoolItem], draw: Draw) -> tuple[float, ...]:
        """Chance of each scored item to fill the slot: they add up to 1, or to 0 to show none."""

    def arms(self, occasion: Occasion) -> Mapping[str, float]:
        """Chance of each arm; they add up to 1."""
        return {USUAL: 1.0}

    def shown_chance(self, arm: str) -> float:
        """Chance that what was chosen is shown, and not held back."""
        return 1.0

    def pool_factor(self, factor: int, seasoned: int) -> float:
        """Lambda: the pool holds that many items for each slot.

        Args:
            factor: The configured one.
            seasoned: Experiences with three rewards or more in this stage.
        """
        return factor

    def choose(self, pool: Sequence[PoolItem], occasion: Occasion) -> Selection:
        """Decide one step.

        Args:
            pool: What may be shown, most similar first.
            occasion: The step.
        """
        pairs = zip(pool, self.scores(pool) if pool else (), strict=True)
        scored = [item.model_copy(update={"score": score}) for item, score in pairs]
        arms = self.arms(occasion)
        arm = _drawn(arms, occasion) if len(arms) > 1 else next(iter(arms))
        filled = _Slots(scored, occasion)
        filled.fill(self, arm)
        shown, passed = self.shown_chance(arm), filled.choices
        if shown < 1:
            passed = [choice for choice in passed if occasion.rng.random() < shown]
        held = [choice for choice in filled.choices if choice not in passed]
        return Selection(
            arm=arm,
            arm_chance=arms[arm],
            choices=tuple(passed),
            withheld=tuple(held),
            shown_chance=shown,
            pool=tuple(filled.fates({choice.item.id for choice in held})),
        )


class _Slots:
    """The slots of one step while they are filled."""

    def __init__(self, pool: Sequence[PoolItem], occasion: Occasion) -> None:
        self.pool = pool
        self.occasion = occasion
        self.choices: list[Choice] = []
        self._taken: dict[str, str] = {}
        self._kinds: Counter[str] = Counter()
        self._best_chances: dict[str, float] = {}
        self._last = {item.id for item in pool}

    def fill(self, policy: Slotwise, arm: str) -> None:
        slots, rng = self.occasion.slots, self.occasion.rng
        while len(self.choices) < slots:
            allowed = self._allowed()
            draw = Draw(arm, len(self.choices), slots)
            chances = policy.chances(allowed, draw) if allowed else ()
            if not sum(chances):
                break
            self._last = {item.id for item in allowed}
            for item, chance in zip(allowed, chances, strict=True):
                self._best_chances[item.id] = max(chance, self._best_chances.get(item.id, 0.0))
            (place,) = rng.choices(range(len(allowed)), weights=chances)
            is_best = chances[place] == max(chances)
            self._take(
                allowed[place], chances[place], _reason(policy.name, allowed[place], is_best)
            )

    def fates(self, held: set[str]) -> list[PoolItem]:
        """The pool, with what became of each item."""
        return [
            item.model_copy(
                update={
                    "chance": self._best_chances.get(item.id, 0.0),
                    "fate": "chosen, then held back" if item.id in held else self._fate(item),
                }
            )
            for item in self.pool
        ]

    def _take(self, item: PoolItem, chance: float, reason: str) -> None:
        self.choices.append(Choice(item=item, propensity=chance, reason=reason))
        self._taken |= {item.id: item.id, **dict.fromkeys(item.keys, item.id)}
        self._kinds[item.kind] += 1

    def _allowed(self) -> list[PoolItem]:
        fresh = [
            item
            for item in self.pool
            if item.id not in self._taken and self._taken.keys().isdisjoint(item.keys)
        ]
        quota = math.ceil(self.occasion.slots / 2)
        return [item for item in fresh if self._kinds[item.kind] < quota] or fresh

    def _fate(self, item: PoolItem) -> str:
        if item.id in self._taken:
            return CHOSEN
        for key, words in item.keys.items():
            if key in self._taken:
                return f"{words} `{self._taken[key]}`"
        if item.id in self._last:
            return "not drawn"
        return f"enough of kind `{item.kind}` were chosen"


def _drawn(arms: Mapping[str, float], occasion: Occasion) -> str:
    (arm,) = occasion.rng.choices(tuple(arms), weights=tuple(arms.values()))
    return arm


def _reason(policy: str, item: PoolItem, is_best: bool) -> str:
    how = f"best left by `{policy}`" if is_best else f"drawn by `{policy}`"
    return f"{how}: similarity {item.similarity:.2f}, value {item.q:+.2f} after {item.n} visits"
