"""Owns the reward functions by name: each computes a step's reward from what was measured.

The journal keeps what a reward is computed from, so that `memory refit` under another function
needs no run. Where a part is missing that a function needs, the step does not count.
"""

import difflib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from evokernel.attempt import Stage
from evokernel.errors import ConfigError
from evokernel.memory.rewards import CLIP, WARM_UP, Reward

if TYPE_CHECKING:
    from evokernel.memory.values import Rewarded

RESOLUTION = 0.3
"""tau: ln-gain that is told apart well: 10 % faster earns 0.31, in the paper 0.10 (ours)."""
MARGIN = 1.05
"""How much faster counts for a milestone (CUDA Agent)."""
KEVIN_CORRECT = 0.3
"""What being right is worth beside the speedup (Kevin)."""
SIGMOID_SHIFT = 1.8
"""delta of Makora's sample value."""
CONTRAST_CLIP = 1.5
"""k of CUDA-L1's smoothing: one outlier of 100 times must not steer."""
OUR_WARM_UP = 20
"""Rewards before a spread is believed (ours)."""


class RewardRule(NamedTuple):
    """One reward function, and on what scale it enters."""

    name: str
    of: "Callable[[Rewarded], float | None]"
    """The reward of one event; None where it does not count."""
    standardised: frozenset[Stage]
    """Stages whose rewards are standardised by running statistics."""
    warm_up: int = WARM_UP
    """Rewards that pass unscaled before that."""
    clip: float = CLIP
    """Largest size of a standardised reward."""


def _paper(event: "Rewarded") -> float | None:
    """Draft: +1 or -1. Refine: -1, or tanh(ln best - ln latency).

    Source: EvoKernel (arXiv 2603.10846), rewards r1 and r2; it standardises r2 only.
    """
    return event.value


def _parent(event: "Rewarded") -> float | None:
    """Draft: +1 or -1. Refine: -1, or tanh(y / 0.3), y = ln parent - ln latency; 0 in the noise.

    Against the parent, because a good edit of a slow start point is a success of what was shown;
    the paper measures everything against the best. A change smaller than half the width of the
    measured 95 % interval counts as none. Ours, but for the paper's tanh and -1.
    """
    reward = event.reward
    if event.stage is Stage.DRAFT or reward is None or not reward.feasible:
        return event.value
    gain = reward.gain
    if gain is None and reward.best_ms and reward.latency_ms:
        gain = math.log(reward.best_ms / reward.latency_ms)
    if gain is None:
        return event.value
    if reward.noise is not None and abs(gain) < reward.noise:
        return 0.0
    return math.tanh(gain / RESOLUTION)


def _milestone(event: "Rewarded") -> float | None:
    """-1 wrong, 1 right, 2 over 5 % faster than eager, 3 over 5 % faster than eager and compile.

    Source: CUDA Agent (arXiv 2602.24286), in place of the raw speedup. Where `compile` was not
    measured there are at most 2 (ours).
    """
    reward = event.reward
    if reward is None or not reward.feasible:
        return None if reward is None else -1.0
    eager = reward.speedups.get("eager")
    if eager is None:
        return None
    beats_eager = eager > MARGIN
    return 1.0 + beats_eager + (beats_eager and reward.speedups.get("compile", 0.0) > MARGIN)


def _kevin(event: "Rewarded") -> float | None:
    """0 wrong, else 0.3 + the speedup over eager.

    Source: Kevin (arXiv 2507.11948), the score S = 0.3 C + C s of one kernel; its discounting over
    the turns of a conversation has no counterpart here.
    """
    return _of_speedup(event, lambda speedup: KEVIN_CORRECT + speedup, ("eager",))


def _sigmoid(event: "Rewarded") -> float | None:
    """0 wrong, else 1 / (1 + exp(-(1 + s - 1.8))) with s the speedup over `compile`.

    Source: Makora (arXiv 2602.11000), V = sigmoid(r - 1.8) with r = 1 + max(0, s): parity is 0.55
    and more speed saturates. Where `compile` was not measured s is over eager (ours).
    """

    def squashed(speedup: float) -> float:
        return 1 / (1 + math.exp(SIGMOID_SHIFT - 1 - max(0.0, speedup)))

    return _of_speedup(event, squashed, ("compile", "eager"))


def _contrastive(event: "Rewarded") -> float | None:
    """0 wrong, else the speedup over eager; standardised in both stages and clipped at 1.5.

    Source: CUDA-L1 (arXiv 2507.14111), r = T_ref / T_k smoothed to clip((r - mean) / sigma, +-1.5).
    """
    return _of_speedup(event, lambda speedup: speedup, ("eager",))


def _of_speedup(
    event: "Rewarded", value: Callable[[float], float], opponents: tuple[str, ...]
) -> float | None:
    reward = event.reward
    if reward is None or not reward.feasible:
        return None if reward is None else 0.0
    found = [reward.speedups[name] for name in opponents if name in reward.speedups]
    return value(found[0]) if found else None


_REFINE, _BOTH = frozenset({Stage.REFINE}), frozenset(Stage)
PAPER = RewardRule("evokernel", _paper, _REFINE)
PARENT = RewardRule("parent", _parent, _REFINE, OUR_WARM_UP)
RULES = {
    rule.name: rule
    for rule in (
        PAPER,
        PARENT,
        RewardRule("milestone", _milestone, frozenset()),
        RewardRule("kevin", _kevin, frozenset()),
        RewardRule("sigmoid", _sigmoid, frozenset()),
        RewardRule("cuda-l1", _contrastive, _BOTH, clip=CONTRAST_CLIP),
    )
}


def rule_of(name: str) -> RewardRule:
    """The reward function of that name.

    Raises:
        ConfigError: no such function; the nearest name is suggested.
    """
    if name not in RULES:
        near = difflib.get_close_matches(name, RULES, n=1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        raise ConfigError(f"no reward `{name}`{hint}: expected one of {', '.join(RULES)}")
    return RULES[name]


def start_advance(reward: Reward) -> float:
    """max(0, ln best - ln latency): how far a child moved the run's best; 0 in the noise.

    What a start point earns, against the best where context earns against the parent: we want the
    maximum of its children, not their mean (ours).
    """
    if reward.best_ms is None or reward.latency_ms is None:
        return 0.0
    change = math.log(reward.best_ms / reward.latency_ms)
    return change if change > (reward.noise or 0.0) else 0.0
