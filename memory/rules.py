"""Owns the published rules of choice and the controls, each as its source has it."""

import math
from collections.abc import Sequence
from statistics import fmean, pstdev

from evokernel.memory.choice import PoolItem
from evokernel.memory.slots import Draw, Slotwise

MEMRL_SHARE = 0.5
"""Lambda of MemRL: share of the value in the score (its own; 0.5 beat 0 and 1)."""
MEMRL_CUT = -0.8
"""MemRL's code shows nothing whose value lies below this."""
CLIP = 3.0
"""Largest size of a z-score (MemRL's code clips Q's; ours clips both)."""


class NoMemory(Slotwise):
    """Shows nothing: the control of every comparison."""

    name = "none"

    def scores(self, pool: Sequence[PoolItem]) -> tuple[float, ...]:
        """Nothing is ranked."""
        return (0.0,) * len(pool)

    def chances(self, items: Sequence[PoolItem], draw: Draw) -> tuple[float, ...]:
        """Zero for all."""
        return (0.0,) * len(items)


class RandomChoice(Slotwise):
    """Draws evenly from the pool: does it matter what is shown?"""

    name = "random"

    def scores(self, pool: Sequence[PoolItem]) -> tuple[float, ...]:
        """Nothing is ranked."""
        return (0.0,) * len(pool)

    def chances(self, items: Sequence[PoolItem], draw: Draw) -> tuple[float, ...]:
        """The same for all."""
        return (1 / len(items),) * len(items)


class Similarity(Slotwise):
    """Takes the most similar: memory without learned values."""

    name = "similarity"

    def scores(self, pool: Sequence[PoolItem]) -> tuple[float, ...]:
        """The similarity."""
        return tuple(item.similarity for item in pool)

    def chances(self, items: Sequence[PoolItem], draw: Draw) -> tuple[float, ...]:
        """All on the best."""
        return greedy(items, epsilon=0.0)


class EvoKernelRule(Slotwise):
    """Similarity only builds the pool, inside it the stage's Q alone ranks.

    Source: EvoKernel (arXiv 2603.10846), "value-driven retrieval": epsilon-greedy per slot, with
    1 - epsilon the largest Q, else any of the pool; the pool grows with time, lambda 2 to 30. Ours:
    epsilon, N, lambda, and that ties go to the more similar one, then to the older one.
    """

    name = "evokernel"

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.parameters = {"epsilon": epsilon}

    def scores(self, pool: Sequence[PoolItem]) -> tuple[float, ...]:
        """The values."""
        return tuple(item.q for item in pool)

    def chances(self, items: Sequence[PoolItem], draw: Draw) -> tuple[float, ...]:
        """(1 - epsilon) on the best, epsilon over all."""
        return greedy(items, self.epsilon)


class MemRLRule(Slotwise):
    """Half similarity, half value, both as z-scores inside the pool.

    Source: MemRL (arXiv 2601.03192), phase B: score = (1 - lambda) z(sim) + lambda z(Q) with
    lambda = 0.5; a spread of 0 counts as 1, z-scores are clipped to 3, and what has Q < -0.8 is
    never shown (its code). Ours: the gate of similarity is the one of all policies, its own is the
    80th percentile of the similarities of tasks; epsilon is the configured one, its own 0 or 0.1.
    """

    name = "memrl"

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.parameters = {"epsilon": epsilon, "share": MEMRL_SHARE, "cut": MEMRL_CUT}

    def scores(self, pool: Sequence[PoolItem]) -> tuple[float, ...]:
        """The two z-scores, mixed."""
        pairs = zip(
            z_scores([item.similarity for item in pool]),
            z_scores([item.q for item in pool]),
            strict=True,
        )
        return tuple((1 - MEMRL_SHARE) * near + MEMRL_SHARE * good for near, good in pairs)

    def chances(self, items: Sequence[PoolItem], draw: Draw) -> tuple[float, ...]:
        """(1 - epsilon) on the best that is not cut, epsilon over all such."""
        kept = [item for item in items if item.q >= MEMRL_CUT]
        if not kept:
            return (0.0,) * len(items)
        chances = dict(zip((item.id for item in kept), greedy(kept, self.epsilon), strict=True))
        return tuple(chances.get(item.id, 0.0) for item in items)


def greedy(items: Sequence[PoolItem], epsilon: float) -> tuple[float, ...]:
    """Chances that add up to 1: (1 - epsilon) on the best score, epsilon over all."""
    best = max(items, key=lambda item: (item.score, item.similarity))
    return tuple((1 - epsilon) * (item is best) + epsilon / len(items) for item in items)


def z_scores(numbers: Sequence[float], floor: float = 0.0) -> tuple[float, ...]:
    """Numbers in standard deviations from their mean, clipped to 3.

    Args:
        numbers: At least one.
        floor: Smallest spread to divide by: without one, the single item with a value of 0.1 among
            nine with none has z = 3. Where the spread is 0 and there is no floor, it counts as 1.
    """
    middle, spread = fmean(numbers), max(pstdev(numbers), floor)
    scale = spread if spread > 1e-12 and math.isfinite(spread) else 1.0
    return tuple(max(-CLIP, min(CLIP, (number - middle) / scale)) for number in numbers)
