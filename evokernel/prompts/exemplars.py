"""Owns the choice of exemplars: verified kernels of different speeds, to be compared by a model.

Contrast between levels of speed is what helps (CUDA-L1, arXiv 2507.14111, section 2.4: buckets of
speed, a softmax over them with a temperature, then one code evenly from each bucket drawn; random
exemplars gained much less). The scale, the width of a bucket and the temperature are ours.
"""

import math
import random
from collections.abc import Sequence

from evokernel.attempt import Attempt
from evokernel.evaluation import Interval
from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience
from evokernel.prompts.situation import Situation

WIDTH = math.log(1.15)
"""A bucket holds speeds within 15 percent: less is not told from noise."""
TEMPERATURE = 0.5
"""On the logarithm of the speedup: twice as fast is drawn four times as often."""


class Variant(Frozen):
    """One verified kernel."""

    name: str
    """How a prompt calls it: `attempt 3`, or an experience's id."""
    ratio: Interval
    """Speedup over PyTorch eager, as measured with it. Dimensionless."""
    attempt: Attempt | None = None
    experience: Experience | None = None

    @property
    def source(self) -> str:
        """Its text."""
        if self.attempt is not None:
            return self.attempt.proposal.candidate.source
        return self.experience.payload["source"] if self.experience else ""

    @property
    def speedup(self) -> float:
        """Its point estimate."""
        return self.ratio.value

    def is_apart(self, other: "Variant") -> bool:
        """Whether noise cannot be what makes the two differ: their intervals do not overlap."""
        first, second = self.ratio, other.ratio
        return first.low > second.high or second.low > first.high

    @property
    def bucket(self) -> int:
        """Its level of speed."""
        return math.floor(math.log(self.speedup) / WIDTH)


def exemplars(situation: Situation) -> tuple[Variant, ...]:
    """The kernels to be compared in this step, fastest first.

    Two for a draft; for a refinement one, of another level than its start point, which is the
    other side of the comparison; none where they would have to come from one level, for a repair
    (first it has to be right), and for a recombination, whose parents are compared.
    """
    parents = situation.parents
    known = _variants(situation)
    if not parents:
        chosen = draw(known, 2, situation.seed)
        return chosen if len(chosen) == 2 else ()
    if len(parents) > 1 or parents[0].median_ms is None:
        return ()
    start = of_attempt(parents[0])
    others = [v for v in known if start and v.bucket != start.bucket and v.is_apart(start)]
    return draw(others, 1, situation.seed)


def draw(
    variants: Sequence[Variant], count: int, seed: int, temperature: float = TEMPERATURE
) -> tuple[Variant, ...]:
    """Draw from `count` different buckets what noise cannot confuse; fastest first.

    The chance of a bucket is proportional to exp(m / temperature), m being the mean of its ln
    speedup; inside a bucket all have the same. The same seed draws the same.
    """
    dice = random.Random(f"{seed}/exemplars")
    chosen: list[Variant] = []
    left = list(variants)
    while left and len(chosen) < count:
        buckets: dict[int, list[Variant]] = {}
        for variant in left:
            buckets.setdefault(variant.bucket, []).append(variant)
        levels = sorted(buckets)
        means = [_mean(buckets[level]) for level in levels]
        weights = [math.exp((mean - max(means)) / temperature) for mean in means]
        (level,) = dice.choices(levels, weights)
        drawn = dice.choice(buckets[level])
        chosen.append(drawn)
        left = [v for v in left if v.bucket != level and v.is_apart(drawn)]
    return tuple(sorted(chosen, key=lambda variant: -variant.speedup))


def _mean(variants: Sequence[Variant]) -> float:
    return sum(math.log(variant.speedup) for variant in variants) / len(variants)


def _variants(situation: Situation) -> list[Variant]:
    """Every verified kernel of this task, then those of near tasks that memory brought back."""
    family = situation.graph.family if situation.graph else "unknown"
    found = [
        *map(of_attempt, situation.history),
        *(_of_experience(e) for e in situation.shown if family in {"unknown", e.family}),
    ]
    by_source: dict[str, Variant] = {}
    for variant in filter(None, found):
        by_source.setdefault(variant.source, variant)
    return list(by_source.values())


def of_attempt(attempt: Attempt) -> Variant | None:
    """A verified attempt as a side of a comparison; None without a speedup over eager."""
    timing = attempt.evaluation.timing
    eager = timing.against("eager") if timing else None
    if eager is None or eager.ratio.value <= 0:
        return None
    return Variant(name=f"attempt {attempt.number}", ratio=eager.ratio, attempt=attempt)


def _of_experience(experience: Experience) -> Variant | None:
    speedup = experience.measurement.speedup
    if (
        experience.kind != "kernel"
        or speedup is None
        or speedup.value <= 0
        or not experience.payload.get("source")
    ):
        return None
    return Variant(name=experience.id, ratio=speedup, experience=experience)
