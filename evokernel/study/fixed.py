"""Owns the best single fixed configuration over some recorded tasks: what to beat without memory.

It is chosen in hindsight, with every task in view, so that no first draft that is the same for all
tasks can do better. Choices of one name mean the same in all loop structures; what a task's space
does not offer is left plain there.
"""

import math
import random
from collections.abc import Sequence

from evokernel.proposers.templates.choices import Value
from evokernel.study.recording import Recording

FAILED = 0.01
"""Share of the best speed that a plan counts with which fails (ours)."""
STARTS = 24
"""Random starts of the ascent, beside the plain way (ours)."""

Configuration = dict[str, Value]


def best_fixed(recordings: Sequence[Recording], seed: int = 0) -> Configuration:
    """The configuration with the largest geometric mean of speed, relative to each task's best.

    Found by changing one choice at a time until nothing improves, from several starts.
    """
    values: dict[str, list[Value]] = {}
    for recording in recordings:
        for choice in recording.subject.space.choices:
            known = values.setdefault(choice.name, [])
            known += [value for value in choice.values if value not in known]
    rng = random.Random(seed)
    starts: list[Configuration] = [{}]
    starts += [{name: rng.choice(found) for name, found in values.items()} for _ in range(STARTS)]
    climbed = [_climb(start, values, recordings) for start in starts]
    return max(climbed, key=lambda configuration: worth(configuration, recordings))


def worth(configuration: Configuration, recordings: Sequence[Recording]) -> float:
    """Geometric mean over the tasks of its speed as a share of the best known, 0..1."""
    logs = [math.log(share(configuration, recording)) for recording in recordings]
    return math.exp(sum(logs) / len(logs))


def share(configuration: Configuration, recording: Recording) -> float:
    """Its speed on one task as a share of the best known, 0..1."""
    plan = recording.subject.space.settle(configuration)
    point = recording.by_plan.get(plan.line)
    typical_ms = point.typical_ms if point else None
    return recording.best_ms / typical_ms if typical_ms else FAILED


def _climb(
    start: Configuration, values: dict[str, list[Value]], recordings: Sequence[Recording]
) -> Configuration:
    best, score = start, worth(start, recordings)
    is_better = True
    while is_better:
        is_better = False
        for name, found in values.items():
            for value in found:
                other = {**best, name: value}
                if (reached := worth(other, recordings)) > score + 1e-12:
                    best, score, is_better = other, reached, True
    return best
