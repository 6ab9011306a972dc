"""Owns the choice by `hybrid`: similarity and a shrunk value, with steps set apart to explore."""

import math
from collections.abc import Mapping, Sequence

from evokernel.memory.choice import NULL, PROBE, USUAL, Occasion, PoolItem
from evokernel.memory.joint import PRIOR_VISITS
from evokernel.memory.rules import z_scores
from evokernel.memory.slots import Draw, Slotwise

SHARE = 0.5
"""Of the value in the score, as MemRL (arXiv 2601.03192)."""
VALUE_FLOOR = 0.2
"""Smallest spread of values in a pool: a wiggle of one item is not three deviations (ours)."""
SIMILARITY_FLOOR = 0.05
"""The same of similarities; those of one family differ by about 0.1 (ours)."""
OPTIMISM = 0.3
"""What is added to the value of something never tried, times sqrt(n0): OPTIMISM / sqrt(n + n0). The
0.3 was not searched (ours)."""
TEMPERATURE = 0.05
"""Of the draw, in units of the score: nearly greedy, and every chance is known (ours)."""
UNDER_TRIED = 3
"""A probe tries what has less evidence than so many rewards (ours)."""
PROBE_FLOOR = 0.05
"""Share of every slot of a probe step that is spread evenly over the pool (ours)."""
LATE = 0.8
"""Share of the budget after which nothing is tried out any more (ours)."""
REACH = 4
"""So many times the configured lambda the pool may grow to: 16 to 64 items for four slots (ours;
EvoKernel grows lambda from 2 to 30)."""


class HybridRule(Slotwise):
    """Nearly greedy on half similarity, half value; probe steps and null steps are set apart.

    Score: (1 - s) z(similarity) + s z(Q + 0.3 / sqrt(n + n0)), z-scores with a floor on the spread.
    A slot is drawn by softmax(score / T) over what is left: Plackett-Luce, so that the chance of
    the whole sequence is the product of the logged ones. In a *probe* step the last slot is drawn
    evenly from what passed the gate and was hardly tried, the others mix in an even share, and
    each choice is held back by a coin. A *null* step shows nothing: what memory as a whole is worth
    is the difference to it. Neither happens in the last fifth of a budget. All of this is ours but
    the half (MemRL) and the growing pool (EvoKernel); the values come from `Joint`.

    Args:
        probe: Chance of a probe step.
        null: Chance of a null step.
        withhold: Chance of each choice to be held back in a probe step.
        name: `hybrid`, or `placebo` for the same choice by shuffled rewards.
    """

    def __init__(self, probe: float, null: float, withhold: float, name: str = "hybrid") -> None:
        self.name = name
        self._probe, self._null, self._withhold = probe, null, withhold
        self.parameters = {
            "probe": probe,
            "null": null,
            "withhold": withhold,
            "share": SHARE,
            "optimism": OPTIMISM,
            "temperature": TEMPERATURE,
        }

    def arms(self, occasion: Occasion) -> Mapping[str, float]:
        """Probe, null and usual steps; only usual ones where the budget ends."""
        if occasion.spent is not None and occasion.spent >= LATE:
            return {USUAL: 1.0}
        usual = 1.0 - self._probe - self._null
        chances = {USUAL: usual, PROBE: self._probe, NULL: self._null}
        return {arm: chance for arm, chance in chances.items() if chance > 0}

    def scores(self, pool: Sequence[PoolItem]) -> tuple[float, ...]:
        """Both z-scores mixed, the value with a little optimism for what was hardly tried."""
        hoped = [item.q + OPTIMISM / math.sqrt(item.weight + PRIOR_VISITS) for item in pool]
        near = z_scores([item.similarity for item in pool], SIMILARITY_FLOOR)
        good = z_scores(hoped, VALUE_FLOOR)
        return tuple((1 - SHARE) * a + SHARE * b for a, b in zip(near, good, strict=True))

    def chances(self, items: Sequence[PoolItem], draw: Draw) -> tuple[float, ...]:
        """Softmax of the scores; even over the hardly tried in the last slot of a probe step."""
        if draw.arm == NULL:
            return (0.0,) * len(items)
        usual = _softmax([item.score / TEMPERATURE for item in items])
        if draw.arm == USUAL:
            return usual
        targets = [item.weight < UNDER_TRIED for item in items]
        if draw.slot == draw.slots - 1 and any(targets):
            usual = tuple(is_target / sum(targets) for is_target in targets)
        even = PROBE_FLOOR / len(items)
        return tuple((1 - PROBE_FLOOR) * chance + even for chance in usual)

    def shown_chance(self, arm: str) -> float:
        """In a probe step each choice may be held back."""
        return 1.0 - self._withhold if arm == PROBE else 1.0

    def pool_factor(self, factor: int, seasoned: int) -> float:
        """Lambda grows with evidence, from the configured one to four times as much."""
        return factor * min(REACH, 1 + seasoned / SEASONED)


SEASONED = 16
"""Experiences with three rewards that widen the pool by the configured lambda (ours)."""


def _softmax(scores: Sequence[float]) -> tuple[float, ...]:
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    total = math.fsum(powers)
    return tuple(power / total for power in powers)
