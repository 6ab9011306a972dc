"""Owns what trainers make of rewards: returns over turns, advantages within a group, weights."""

import math
from collections.abc import Sequence
from typing import Literal

Form = Literal["sum", "max"]

GAMMA: dict[Form, float] = {"sum": 0.4, "max": 0.8}
"""Discounts of Kevin (arXiv 2507.11948): `sum` was best with many turns, `max` with few."""
SMOOTH_CLIP = 1.5
"""k of CUDA-L1's smoothing (arXiv 2507.14111): one outlier of 100 times must not steer."""
SPEED_TEMPERATURE = 0.1
"""lambda of DRTriton's weights (arXiv 2603.21465)."""


def returns(rewards: Sequence[float], gamma: float, form: Form = "sum") -> tuple[float, ...]:
    """What each turn of one trajectory led to.

    `sum`: R_t = sum over i >= t of gamma^(i-t) S_i. `max`: R_t = max over i >= t of
    gamma^(i-t) S_i. A bad turn that leads to a good one is rewarded. Source: Kevin (arXiv
    2507.11948); Dr. Kernel (arXiv 2602.05885) takes `sum` with gamma 1.
    """
    found: list[float] = []
    after: float | None = None
    for reward in reversed(rewards):
        if after is None:
            after = reward
        elif form == "sum":
            after = reward + gamma * after
        else:
            after = max(reward, gamma * after)
        found.append(after)
    return tuple(reversed(found))


def leave_one_out(values: Sequence[float]) -> tuple[float, ...] | None:
    """A_i = G_i - mean over j != i of G_j = N / (N - 1) (G_i - mean G).

    Nobody is in its own baseline, as in GRPO. Source: Dr. Kernel (arXiv 2602.05885), TRLOO.

    Returns:
        None for a group of one, which has nothing to be compared with.
    """
    count = len(values)
    if count < 2:
        return None
    total = math.fsum(values)
    return tuple(value - (total - value) / (count - 1) for value in values)


def smoothed(values: Sequence[float]) -> tuple[float, ...]:
    """clip((r - mean) / sigma, -1.5, 1.5) within a group; all 0 where they are equal.

    Source: CUDA-L1 (arXiv 2507.14111), Eq. 2 and the text after it.
    """
    mean = math.fsum(values) / len(values)
    sigma = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    if sigma == 0:
        return (0.0,) * len(values)
    return tuple(max(-SMOOTH_CLIP, min(SMOOTH_CLIP, (v - mean) / sigma)) for v in values)


def speed_weights(
    speedups: Sequence[float | None], temperature: float = SPEED_TEMPERATURE
) -> tuple[float | None, ...]:
    """w_i = exp(ln s_i / lambda) / sum over the right ones: speed ranked among the right only.

    Source: DRTriton (arXiv 2603.21465), which decouples being right from being fast, with the log
    of the speedup as its score.

    Args:
        speedups: Of a group; None where a candidate is wrong.
        temperature: lambda.

    Returns:
        Weights that add up to 1 over the right ones; None for the others.
    """
    scores = [None if s is None or s <= 0 else math.log(s) / temperature for s in speedups]
    top = max((score for score in scores if score is not None), default=0.0)
    powers = [None if score is None else math.exp(score - top) for score in scores]
    total = math.fsum(power for power in powers if power is not None)
    return tuple(None if power is None else power / total for power in powers)
