"""Owns contrastive groups: variants of one task from different levels of speed, side by side.

A model that is shown scored variants, and has to say why one is faster, writes faster ones; trained
or not (CUDA-L1, arXiv 2507.14111).
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

from evokernel.errors import ConfigError
from evokernel.frozen import Frozen
from evokernel.training.turns import Turn

SCHEMA = "evokernel.contrast/1.0"


class Contrast(Frozen):
    """How groups are drawn. CUDA-L1 names neither temperature nor buckets; they are ours."""

    variants: int = 2
    """Variants of a group, each from a bucket of its own (CUDA-L1: 2)."""
    groups: int = 8
    """Groups of a task at most; the same set of variants is never given twice."""
    buckets: int = 5
    """Levels of speed, of equal width in ln(speedup)."""
    temperature: float = 1.0
    """tau: the larger, the less the faster buckets are preferred."""
    seed: int = 0


class Variant(Frozen):
    """One kernel of a group."""

    run: str
    attempt: int
    source: str
    techniques: tuple[str, ...]
    median_ms: float | None
    eager: float
    """Speedup over eager."""
    bucket: int
    """Its level of speed, 0 the slowest."""
    probability: float
    """Chance of its bucket for the first draw."""


class Group(Frozen):
    """Variants of one task, the slowest first; a row."""

    schema_version: str = SCHEMA
    task: str
    task_sha: str
    reference: str
    family: str
    backend: str
    contract: str
    device: str
    variants: tuple[Variant, ...]
    ratio: float
    """How many times as fast the last one is as the first."""


def contrasts(rows: Iterable[Turn], settings: Contrast) -> tuple[Group, ...]:
    """Draw groups, task by task.

    Successful kernels are put into buckets by speed; a bucket b with mean m_b is drawn with P(b) =
    exp((m_b - m) / tau) / sum over j of exp((m_j - m) / tau), m the mean of all, without putting it
    back; then one kernel of each bucket, each as likely as the other. Source: CUDA-L1, Eq. 1. Means
    are of ln(speedup) (ours: a ratio of 100 would leave the others no chance).

    Raises:
        ConfigError: fewer than two variants, buckets that do not suffice, or tau not positive.
    """
    if settings.variants < 2 or settings.buckets < settings.variants or settings.temperature <= 0:
        raise ConfigError(
            f"groups of {settings.variants} variants from {settings.buckets} buckets at "
            f"temperature {settings.temperature} cannot be drawn; expected at least 2 variants, as "
            "many buckets, and a temperature above 0"
        )
    tasks: dict[tuple[str, ...], dict[str, Turn]] = defaultdict(dict)
    for row in rows:
        if row.is_right and row.eager is not None and row.eager > 0 and row.confirmed is not False:
            key = (row.task_sha, row.backend, row.contract, row.device)
            tasks[key].setdefault(row.source, row)
    found = (_of_task(tuple(known.values()), settings) for known in tasks.values())
    return tuple(group for groups in found for group in groups)


def _of_task(rows: Sequence[Turn], settings: Contrast) -> list[Group]:
    buckets = _buckets(rows, settings.buckets)
    if len(buckets) < settings.variants:
        return []
    chances = _chances(buckets, settings.temperature)
    dice = random.Random(f"{settings.seed}/{rows[0].task_sha}")
    drawn: dict[tuple[str, ...], Group] = {}
    # So many tries that a task with few kernels gives what it has, and ends.
    for _ in range(4 * settings.groups):
        if len(drawn) == settings.groups:
            break
        chosen = _drawn(buckets, chances, settings.variants, dice)
        drawn.setdefault(tuple(row.source for _, row in chosen), _group(chosen, chances))
    return list(drawn.values())


def _buckets(rows: Sequence[Turn], count: int) -> dict[int, list[Turn]]:
    """Kernels by level of speed; empty levels are left out."""
    logs = [math.log(row.eager or 1.0) for row in rows]
    low, high = min(logs), max(logs)
    found: dict[int, list[Turn]] = defaultdict(list)
    for row, log in zip(rows, logs, strict=True):
        level = int((log - low) / (high - low) * count) if high > low else 0
        found[min(level, count - 1)].append(row)
    return dict(sorted(found.items()))


def _chances(buckets: dict[int, list[Turn]], temperature: float) -> dict[int, float]:
    means = {
        level: math.fsum(math.log(row.eager or 1.0) for row in rows) / len(rows)
        for level, rows in buckets.items()
    }
    top = max(means.values())
    powers = {level: math.exp((mean - top) / temperature) for level, mean in means.items()}
    total = math.fsum(powers.values())
    return {level: power / total for level, power in powers.items()}


def _drawn(
    buckets: dict[int, list[Turn]],
    chances: dict[int, float],
    count: int,
    dice: random.Random,
) -> list[tuple[int, Turn]]:
    left = dict(chances)
    levels = []
    for _ in range(count):
        (level,) = dice.choices(list(left), list(left.values()))
        left.pop(level)
        levels.append(level)
    return [(level, dice.choice(buckets[level])) for level in sorted(levels)]


def _group(chosen: Sequence[tuple[int, Turn]], chances: dict[int, float]) -> Group:
    first = chosen[0][1]
    variants = tuple(
        Variant(
            run=row.run,
            attempt=row.attempt,
            source=row.source,
            techniques=row.techniques,
            median_ms=row.median_ms,
            eager=row.eager or 1.0,
            bucket=level,
            probability=chances[level],
        )
        for level, row in chosen
    )
    return Group(
        task=first.task,
        task_sha=first.task_sha,
        reference=first.reference,
        family=first.family,
        backend=first.backend,
        contract=first.contract,
        device=first.device,
        variants=variants,
        ratio=variants[-1].eager / variants[0].eager,
    )
