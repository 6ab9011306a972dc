"""Owns `Draws`: verdicts on recorded plans, their times drawn anew from what was measured."""

import math
import random
from functools import cached_property

from evokernel.attempt import Candidate
from evokernel.evaluation import (
    Contract,
    Correctness,
    Evaluation,
    Interval,
    Promotion,
    Speedup,
    Timing,
)
from evokernel.profile import Profile
from evokernel.study.recording import Point, Recording, typical

VERDICT = 9
"""Times drawn for a verdict: as many clean blocks as the standard measurement asks for."""
PROMOTED = 27
"""Times drawn for a second look: three fresh processes of such blocks."""
QUARTILE_SE = 1.3626
"""Standard error of a lower quartile over that of a mean, for a normal distribution: the root of
p (1 - p) over the density at the quantile (Kendall and Stuart, 10.10)."""
Z95 = 1.96


class Drawn:
    """One point as a source of verdicts."""

    def __init__(self, recording: Recording, point: Point, task: str) -> None:
        self.point = point
        self._recording = recording
        self._task = task

    def evaluation(self, candidate: Candidate, rng: random.Random) -> Evaluation:
        """The verdict on this plan's kernel, with a time of its own."""
        known = self._bare
        updates: dict[str, object] = {"candidate": candidate.sha}
        if self.point.is_feasible:
            updates["timing"] = self._timing(rng)
        return known.model_copy(update=updates)

    def profile(self) -> Profile:
        """What bound it when it was recorded."""
        return Profile(bound_by=self.point.bound_by, roofline_share=None, limits=self.point.limits)

    def times(self, rng: random.Random, count: int) -> list[float]:
        """That many times, milliseconds, drawn with replacement."""
        return rng.choices(self.point.times_ms, k=count)

    def eager(self, rng: random.Random, count: int) -> list[float]:
        """The same of the reference."""
        return rng.choices(self.point.eager_ms, k=count)

    @cached_property
    def _bare(self) -> Evaluation:
        point = self.point
        passed = point.is_feasible
        compiles = None if point.status.value == "invalid_source" else True
        if point.status.value.startswith("compile"):
            compiles = False
        return Evaluation(
            candidate=point.candidate,
            task=self._task,
            status=point.status,
            reason=point.reason,
            compiles=compiles,
            correctness=_RIGHT if passed else None,
            contract=_KEPT if passed else None,
            harness=self._recording.harness,
            device=self._recording.device,
            measurement="quick",
        )

    def _timing(self, rng: random.Random) -> Timing:
        times, eager = self.times(rng, VERDICT), self.eager(rng, VERDICT)
        ratio = ratio_of(eager, times)
        speedup = Speedup(
            against="eager",
            ratio=ratio,
            opponent_ms=typical(eager),
            is_faster=ratio.low > 1.01,
            is_slower=ratio.high < 0.99,
        )
        return Timing(
            median_ms=typical(times),
            spread=0.0,
            samples=VERDICT,
            dropped=0,
            processes=1,
            speedups=(speedup,),
            threads=self._recording.subject.threads,
        )


def answer(
    claim: str,
    child: Drawn,
    sha: str,
    parent: Drawn | None,
    parent_sha: str | None,
    rng: random.Random,
) -> Promotion:
    """A second look at a claim, from fresh draws."""
    other = parent.times(rng, PROMOTED) if parent else child.eager(rng, PROMOTED)
    is_fix = claim == "fix"
    return Promotion.model_validate(
        {
            "candidate": sha,
            "parent": parent_sha,
            "claim": claim,
            "holds": True,
            "ratio": None if is_fix else ratio_of(other, child.times(rng, PROMOTED)),
            "processes": 3,
        }
    )


def ratio_of(opponent: list[float], mine: list[float]) -> Interval:
    """Opponent's time over mine, with a normal 95 % interval of the logarithm of the quartiles."""
    centre = math.log(typical(opponent)) - math.log(typical(mine))
    half = Z95 * math.hypot(_error(opponent), _error(mine))
    value = math.exp(centre)
    return Interval(value=value, low=value * math.exp(-half), high=value * math.exp(half))


def _error(times: list[float]) -> float:
    """Standard error of the logarithm of their quartile."""
    logs = [math.log(ms) for ms in times]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((value - mean) ** 2 for value in logs) / max(1, len(logs) - 1))
    return QUARTILE_SE * spread / math.sqrt(len(logs))


_RIGHT = Correctness(
    is_right=True,
    families=("recorded",),
    workloads=("default",),
    comparisons=1,
    worst_ratio=0.0,
    tolerance="as it was recorded",
)
_KEPT = Contract(policy="own_kernels_only", is_kept=True, own_kernels=("recorded",))
