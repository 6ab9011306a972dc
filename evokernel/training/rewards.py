"""Owns the rewards that published trainers use, each computed from one verdict.

Right and fast are mixed only where a name asks for it: `Turn` carries the facts, and both apart.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from evokernel.attempt import Attempt, Stage
from evokernel.errors import ConfigError
from evokernel.evaluation import Evaluation
from evokernel.task.constants import nearest

if TYPE_CHECKING:
    from evokernel.memory.values import Rewarded

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


def by_rule(name: str) -> Reward:
    """One of the rewards that memory learns from, applied to a verdict alone, not standardised.

    Formulas and sources: `evokernel.memory.reward_rules`.
    """
    from evokernel.memory.reward_rules import rule_of

    rule = rule_of(name)
    return lambda given: rule.of(_event(given))


def _event(given: Facts) -> "Rewarded":
    """What a step with this verdict would have earned."""
    from evokernel.memory.rewards import Reward as Earned
    from evokernel.memory.values import Rewarded

    speedups = {"eager": given.eager, "compile": given.compile}
    earned = Earned(
        value=paper(given),
        feasible=given.is_right,
        latency_ms=given.median_ms,
        best_ms=given.best_ms,
        speedups={name: ratio for name, ratio in speedups.items() if ratio is not None},
    )
    return Rewarded(seq=0, step="", stage=given.stage, value=earned.value, shown=(), reward=earned)


def paper(given: Facts) -> float:
    """Draft: +1 right, -1 not. Refine: -1 not right, else tanh(ln b - ln l).

    b is the best time of the run before, l its own. Source: EvoKernel (arXiv 2603.10846).
    """
    if not given.is_right:
        return -1.0
    if given.stage is Stage.DRAFT or not given.best_ms or not given.median_ms:
        return 1.0
    return math.tanh(math.log(given.best_ms / given.median_ms))


def dr_kernel(given: Facts) -> float | None:
    """R = C + C min(s, 3) + C PR, PR the share of the device's time in its own kernels.

    Source: Dr. Kernel (arXiv 2602.05885). Where PR cannot be measured it counts as 0 (ours).
    """
    if not given.is_right:
        return 0.0
    if given.eager is None:
        return None
    return 1.0 + min(given.eager, SPEED_CAP) + (given.coverage or 0.0)


NAMES = ("evokernel", "kevin", "milestone", "sigmoid", "cuda-l1", "dr-kernel")
"""Of every reward."""


def reward_of(name: str) -> Reward:
    """The reward of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in NAMES:
        raise ConfigError(
            f"there is no reward `{name}`; expected one of "
            f"{', '.join(f'`{known}`' for known in NAMES)}.{nearest(name, NAMES)}"
        )
    return dr_kernel if name == "dr-kernel" else by_rule(name)
