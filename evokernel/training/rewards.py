"""Owns the rewards that published trainers use, each computed from one verdict.

Right and fast are mixed only where a name asks for it: `Turn` carries the facts, and both apart.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from evokernel.attempt import Attempt, Stage
from evokernel.errors import ConfigError
from evokernel.evaluation import Evaluation
from evokernel.task.constants import nearest

MARGIN = 1.05
"""How much faster counts for a milestone (CUDA Agent)."""
KEVIN_CORRECT = 0.3
"""What being right is worth beside the speedup (Kevin)."""
SIGMOID_SHIFT = 1.8
"""delta of Makora's sample value."""
SPEED_CAP = 3.0
"""Speedup beyond which Dr. Kernel pays nothing more."""


class Facts(NamedTuple):
    """What a reward may look at."""

    stage: Stage
    is_right: bool
    """Compiles, right, and by its own means: nothing else has a valid time."""
    eager: float | None
    """Speedup over eager."""
    compile: float | None
    """Speedup over torch.compile; None where it was not measured."""
    coverage: float | None
    """Share of a call inside its own kernels."""
    best_ms: float | None
    """Best median of the run before, milliseconds."""
    median_ms: float | None


Reward = Callable[[Facts], float | None]
"""None where a part is missing that the rule needs."""


def facts(attempt: Attempt, best_ms: float | None) -> Facts:
    """What rewards look at of one attempt."""
    evaluation = attempt.evaluation
    return Facts(
        stage=attempt.proposal.stage,
        is_right=evaluation.status.is_feasible,
        eager=speedup(evaluation, "eager"),
        compile=speedup(evaluation, "compile"),
        coverage=evaluation.contract.coverage if evaluation.contract else None,
        best_ms=best_ms,
        median_ms=attempt.median_ms,
    )


def speedup(evaluation: Evaluation, against: str) -> float | None:
    """How many times as fast as a baseline; None where that was not measured."""
    found = evaluation.timing.against(against) if evaluation.timing else None
    return found.ratio.value if found and math.isfinite(found.ratio.value) else None


def evokernel(given: Facts) -> float | None:
    """Draft: +1 right, -1 not. Refine: -1 not right, else tanh(ln b - ln l).

    b is the best time of the run before, l its own; not standardised here. Source: EvoKernel (arXiv
    2603.10846), rewards r1 and r2.
    """
    if not given.is_right:
        return -1.0
    if given.stage is Stage.DRAFT or not given.best_ms or not given.median_ms:
        return 1.0
    return math.tanh(math.log(given.best_ms / given.median_ms))


def kevin(given: Facts) -> float | None:
    """S = 0.3 C + C s: 0 wrong, else 0.3 plus the speedup over eager.

    Source: Kevin (arXiv 2507.11948). Paying for a build or a call that ends makes a model fit that.
    """
    if not given.is_right:
        return 0.0
    return None if given.eager is None else KEVIN_CORRECT + given.eager


def milestone(given: Facts) -> float | None:
    """-1 wrong, 1 right, 2 over 5 % faster than eager, 3 over 5 % faster than eager and compile.

    Source: CUDA Agent (arXiv 2602.24286), in place of the raw speedup. Where torch.compile was not
    timed there are at most 2 (ours).
    """
    if not given.is_right:
        return -1.0
    if given.eager is None:
        return None
    beats_eager = given.eager > MARGIN
    return 1.0 + beats_eager + (beats_eager and (given.compile or 0.0) > MARGIN)


def sigmoid(given: Facts) -> float | None:
    """V = 1 / (1 + exp(-(r - 1.8))), r = 1 + max(0, s) where right, else 0.

    s is the speedup over torch.compile, so that parity is 0.55 and more speed saturates. Source:
    Makora (arXiv 2602.11000). Where torch.compile was not timed s is over eager (ours).
    """
    s = given.compile if given.compile is not None else given.eager
    if given.is_right and s is None:
        return None
    r = 1.0 + max(0.0, s or 0.0) if given.is_right else 0.0
    return 1 / (1 + math.exp(SIGMOID_SHIFT - r))


def cuda_l1(given: Facts) -> float | None:
    """The speedup over eager, r = T_ref / T_k; 0 where wrong.

    Source: CUDA-L1 (arXiv 2507.14111); `returns.smoothed` clips it over its group.
    """
    return given.eager if given.is_right else 0.0


def dr_kernel(given: Facts) -> float | None:
    """R = C + C min(s, 3) + C PR, PR the share of the device's time in its own kernels.

    Source: Dr. Kernel (arXiv 2602.05885). Where PR cannot be measured it counts as 0 (ours).
    """
    if not given.is_right:
        return 0.0
    if given.eager is None:
        return None
    return 1.0 + min(given.eager, SPEED_CAP) + (given.coverage or 0.0)


REWARDS: dict[str, Reward] = {
    "evokernel": evokernel,
    "kevin": kevin,
    "milestone": milestone,
    "sigmoid": sigmoid,
    "cuda-l1": cuda_l1,
    "dr-kernel": dr_kernel,
}
"""By name."""


def reward_of(name: str) -> Reward:
    """The reward of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in REWARDS:
        raise ConfigError(
            f"there is no reward `{name}`; expected one of "
            f"{', '.join(f'`{known}`' for known in REWARDS)}.{nearest(name, REWARDS)}"
        )
    return REWARDS[name]
