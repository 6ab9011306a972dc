"""Owns `Reward`: what a step earned, computed only from evaluations, and its on-line scale."""

import math
from typing import Any

from evokernel.evaluation import Evaluation
from evokernel.frozen import Frozen

WARM_UP = 2
"""Refine rewards that pass unscaled, because a spread needs two samples (ours)."""
CLIP = 3.0
"""Largest size of a standardised reward (ours; the paper asks for a floor on sigma or a clip)."""


class Reward(Frozen):
    """What one charged step earned."""

    value: float
    """Draft: +1 feasible, -1 not. Refine: -1 infeasible, else tanh(ln best - ln latency). -1..1."""
    feasible: bool
    """Whether the step's candidate passed."""
    latency_ms: float | None = None
    """Median time of one call of the candidate, milliseconds."""
    best_ms: float | None = None
    """Best median of the run before this step, milliseconds; None for a draft."""
    parent_ms: float | None = None
    """Median of the start point it was made from, milliseconds."""
    noise: float | None = None
    """Half width of the 95 % interval of ln(speedup); a smaller change is not told from noise."""
    speedups: dict[str, float] = {}
    """How many times as fast as each opponent, by name."""
    weights: dict[str, float] = {}
    """What share of it each experience that was shown is due, 0..1; those not named, all of it."""

    @property
    def gain(self) -> float | None:
        """ln(parent / latency): what the edit alone gained; None where one of them is missing."""
        if self.parent_ms is None or self.latency_ms is None:
            return None
        return math.log(self.parent_ms / self.latency_ms)


def draft_reward(evaluation: Evaluation) -> Reward | None:
    """The paper's first reward: +1 for a feasible kernel, -1 otherwise.

    Returns:
        None where the attempt is not charged: what the machine did wrong is never a reward.
    """
    if not evaluation.status.is_charged:
        return None
    feasible = evaluation.status.is_feasible
    return Reward(
        value=1.0 if feasible else -1.0,
        feasible=feasible,
        latency_ms=evaluation.timing.median_ms if evaluation.timing else None,
        noise=_noise(evaluation),
        speedups=_speedups(evaluation),
    )


def refine_reward(
    evaluation: Evaluation,
    best_ms: float,
    parent_ms: float | None = None,
    noise_gate: bool = False,
) -> Reward | None:
    """The paper's second reward: -1 when infeasible, else tanh(ln b - ln l).

    Args:
        evaluation: The verdict on the step's candidate.
        best_ms: b, the best median of this run before the step, milliseconds.
        parent_ms: Median of the start point, milliseconds; recorded, does not move the value.
        noise_gate: Ours, off in the paper's rule: a change below `Reward.noise` counts as none.

    Returns:
        None where the attempt is not charged.
    """
    if not evaluation.status.is_charged:
        return None
    known: dict[str, Any] = {"best_ms": best_ms, "parent_ms": parent_ms}
    if evaluation.timing is None:
        return Reward(value=-1.0, feasible=False, **known)
    latency, noise = evaluation.timing.median_ms, _noise(evaluation)
    change = math.log(best_ms / latency)
    if noise_gate and noise is not None and abs(change) < noise:
        change = 0.0
    known |= {"latency_ms": latency, "noise": noise, "speedups": _speedups(evaluation)}
    return Reward(value=math.tanh(change), feasible=True, **known)


def _noise(evaluation: Evaluation) -> float | None:
    """Half width of the log of the tightest measured interval; both sides' noise is in it."""
    speedups = evaluation.timing.speedups if evaluation.timing else ()
    widths = [
        math.log(s.ratio.high / s.ratio.low) / 2 for s in speedups if 0 < s.ratio.low < math.inf
    ]
    return min(widths, default=None)


def _speedups(evaluation: Evaluation) -> dict[str, float]:
    speedups = evaluation.timing.speedups if evaluation.timing else ()
    return {s.against: s.ratio.value for s in speedups}


class Normaliser:
    """Running mean and spread of the refine rewards, by Welford's recurrence.

    The paper standardises with running statistics in the manner of PopArt, without rescaling
    weights; its appendix takes those of the *previous* step, so that a reward never scales itself.
    """

    def __init__(self, sigma_floor: float, warm_up: int = WARM_UP, clip: float = CLIP) -> None:
        self.sigma_floor = sigma_floor
        self.warm_up = warm_up
        self.clip = clip
        self.count = 0
        self.mean = 0.0
        self.m2 = 0.0

    @property
    def sigma(self) -> float:
        """Population standard deviation so far, never below the floor."""
        spread = math.sqrt(self.m2 / self.count) if self.count else 0.0
        return max(spread, self.sigma_floor)

    def standardise(self, reward: float) -> float:
        """Scale `reward` by the statistics before it, then take it into them."""
        scaled = reward
        if self.count >= self.warm_up:
            scaled = (reward - self.mean) / self.sigma
        self._include(reward)
        return max(-self.clip, min(self.clip, scaled))

    def _include(self, reward: float) -> None:
        self.count += 1
        delta = reward - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (reward - self.mean)
