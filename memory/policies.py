"""Owns the policies: by what rule the experiences of a pool are chosen."""

import difflib
from collections.abc import Callable, Sequence
from typing import Protocol

from evokernel.config import MemoryConfig
from evokernel.errors import ConfigError
from evokernel.frozen import Frozen
from evokernel.memory.experience import Kind


class PoolItem(Frozen):
    """One experience that could have been shown, with what was known of it then."""

    id: str
    kind: Kind
    similarity: float
    """Cosine similarity of its situation to the query's, -1..1."""
    q: float
    """Value for the query's stage at that time."""
    n: int
    """Visits behind that value."""
    score: float = 0.0
    """What the policy ranked by."""
    is_pinned: bool = False
    """Whether a person wants it in every pool that it fits into."""
    chance: float | None = None
    """Largest chance that it had for a slot; None where older versions did not log it."""
    fate: str = ""
    """`chosen`, or why not, in words; empty where older versions did not log it."""


class Policy(Protocol):
    """A rule for one slot; the caller draws, so that every choice has a known propensity."""

    name: str
    parameters: dict[str, float]
    """Its constants, as recorded with every retrieval."""

    def score(self, item: PoolItem) -> float:
        """What the rule ranks by."""

    def chances(self, items: Sequence[PoolItem]) -> tuple[float, ...]:
        """Chance of each item to fill the next slot: they add up to 1, or to 0 to show nothing."""


class NoMemory:
    """Shows nothing: the control of every comparison."""

    name = "none"
    parameters: dict[str, float] = {}

    def score(self, item: PoolItem) -> float:
        """Nothing is ranked."""
        return 0.0

    def chances(self, items: Sequence[PoolItem]) -> tuple[float, ...]:
        """Zero for all."""
        return (0.0,) * len(items)


class RandomChoice:
    """Draws evenly from the pool: does it matter what is shown?"""

    name = "random"
    parameters: dict[str, float] = {}

    def score(self, item: PoolItem) -> float:
        """Nothing is ranked."""
        return 0.0

    def chances(self, items: Sequence[PoolItem]) -> tuple[float, ...]:
        """The same for all."""
        return (1 / len(items),) * len(items)


class Similarity:
    """Takes the most similar: memory without learned values."""

    name = "similarity"
    parameters: dict[str, float] = {}

    def score(self, item: PoolItem) -> float:
        """The similarity."""
        return item.similarity

    def chances(self, items: Sequence[PoolItem]) -> tuple[float, ...]:
        """All on the best."""
        return _mixed(items, epsilon=0.0)


class EvoKernelRule:
    """The paper's rule: similarity only builds the pool, inside it the stage's Q alone ranks.

    Epsilon-greedy per slot: with 1 - epsilon the largest Q, else any of the pool. Ties go to the
    more similar one, then to the older one (ours).
    """

    name = "evokernel"

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.parameters = {"epsilon": epsilon}

    def score(self, item: PoolItem) -> float:
        """The value."""
        return item.q

    def chances(self, items: Sequence[PoolItem]) -> tuple[float, ...]:
        """(1 - epsilon) on the best, epsilon over all."""
        return _mixed(items, self.epsilon)


def _mixed(items: Sequence[PoolItem], epsilon: float) -> tuple[float, ...]:
    best = max(items, key=lambda item: (item.score, item.similarity))
    return tuple(
        (1 - epsilon) * (item is best) + epsilon / len(items)  # the paper's epsilon-greedy
        for item in items
    )


POLICIES: dict[str, Callable[[MemoryConfig], Policy]] = {
    "none": lambda config: NoMemory(),
    "random": lambda config: RandomChoice(),
    "similarity": lambda config: Similarity(),
    "evokernel": lambda config: EvoKernelRule(config.epsilon),
}


def policy_of(config: MemoryConfig) -> Policy:
    """The policy that `config` names.

    Raises:
        ConfigError: no such policy; the nearest name is suggested.
    """
    if config.policy not in POLICIES:
        near = difflib.get_close_matches(config.policy, POLICIES, n=1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        raise ConfigError(
            f"no memory policy `{config.policy}`{hint}: expected one of {', '.join(POLICIES)}"
        )
    return POLICIES[config.policy](config)
