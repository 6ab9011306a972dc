"""Owns `Placebo`: the values of `hybrid` by rewards that were dealt out anew, as a control.

A policy that does no better than this one has learned nothing from its rewards: whatever it gains
comes from showing something, from exploring, or from the moments of the rewards.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from evokernel.attempt import Stage
from evokernel.memory.joint import Joint, Sample, Traits
from evokernel.memory.reward_rules import PARENT, RewardRule
from evokernel.memory.values import Rewarded


class _Dealt(NamedTuple):
    sample: Sample
    reward: float


class Placebo(Joint):
    """As `Joint`, but for a random cyclic permutation of the rewards of each stage.

    Source: the noise placebo of arXiv 2608.10441 in the form of a permutation test. Each new event
    changes places with an earlier one of its stage (Sattolo's algorithm, inside out): the rewards
    are exactly those that were earned, on their scale, and from the second on none stays with the
    event that earned it. Drawn by the number of the event, so that computing anew gives the same.
    """

    def __init__(
        self,
        traits: Callable[[str], Traits],
        sigma_floor: float,
        rule: RewardRule = PARENT,
        weigh: Callable[[Rewarded], float] = lambda event: 1.0,
    ) -> None:
        super().__init__(traits, sigma_floor, rule, weigh)
        self._dealt: defaultdict[Stage, list[_Dealt]] = defaultdict(list)

    def rewards(self, stage: Stage) -> tuple[float, ...]:
        """The rewards as they were dealt out, in the order of the events."""
        return tuple(dealt.reward for dealt in self._dealt[stage])

    def _took(self, stage: Stage, sample: Sample, reward: float) -> None:
        dealt = self._dealt[stage]
        dealt.append(_Dealt(sample, reward))
        if len(dealt) > 1:
            other = random.Random(f"placebo {stage.value} {len(dealt)}").randrange(len(dealt) - 1)
            self._swap(stage, other, len(dealt) - 1)

    def _swap(self, stage: Stage, one: int, two: int) -> None:
        dealt, fit = self._dealt[stage], self._stages[stage]
        first, second = dealt[one], dealt[two]
        fit.shift(first.sample, second.reward - first.reward)
        fit.shift(second.sample, first.reward - second.reward)
        dealt[one], dealt[two] = (
            first._replace(reward=second.reward),
            second._replace(reward=first.reward),
        )
