"""Owns the niches of the search: which algorithm a kernel stands for, and the best one of each.

A population that only keeps what is fastest now ends as many tunings of one algorithm. So kernels
are told apart by what changes the algorithm: the techniques of the catalogue that do, how many
kernels a call launches, and whether the library does a part. How wide a loop is unrolled is no
algorithm. Where no such technique is named, as by a model that uses words of its own, what the
source shows stands in.
"""

import re

from evokernel.attempt import Attempt
from evokernel.memory.start_points import StartPoint
from evokernel.proposers.techniques import catalogue
from evokernel.record import RunRecord

PLAIN = "plain"
"""The niche of kernels with nothing that tells them apart."""

_TRAITS = {
    "tensor-cores": r"\bwmma::|\bmma\.sync|\btl\.dot\b",
    "shared-memory": r"\b__shared__\b",
    "vectors": r"\b_mm(?:256|512)_\w+\(|\bvector_size\b|\bomp\b.*\bsimd\b",
}
"""Names of what the text of a source shows, the most telling first, and its pattern."""


def niche(attempt: Attempt) -> str:
    """The algorithm that a kernel stands for, e.g. `online-softmax`, `vectors, 2 kernels`."""
    known = catalogue()
    named = {n for n in attempt.proposal.techniques if n in known and known[n].is_algorithm}
    told = ["+".join(sorted(named)) or _trait(attempt.proposal.candidate.source)]
    if contract := attempt.evaluation.contract:
        count = len(contract.own_kernels)
        told += [f"{count} kernels"] if count > 1 else []
        told += ["library"] if contract.library_calls else []
    return ", ".join(told)


def niche_in(record: RunRecord, number: int) -> str:
    """The niche of one attempt of a run; empty for one that is not feasible, or not there."""
    attempt = record.attempt(number)
    return niche(attempt) if attempt and attempt.evaluation.status.is_feasible else ""


def neglected(points: tuple[StartPoint, ...]) -> StartPoint | None:
    """The fastest start point of the niche that was worked on least.

    Returns:
        None where there is one niche only, or all but one are given up.
    """
    alive: dict[str, list[StartPoint]] = {}
    for point in points:
        if not point.is_pruned:
            alive.setdefault(point.niche, []).append(point)
    if len(alive) < 2:
        return None
    least = min(alive.values(), key=lambda own: (_work(own), _fastest(own).median_ms))
    return _fastest(least)


def archive(record: RunRecord) -> dict[str, Attempt]:
    """The fastest feasible attempt of each niche, the fastest niche first."""
    found: dict[str, Attempt] = {}
    for attempt in sorted(_timed(record), key=lambda a: (a.median_ms, a.number)):
        found.setdefault(niche(attempt), attempt)
    return found


def _timed(record: RunRecord) -> list[Attempt]:
    return [attempt for attempt in record.attempts() if attempt.median_ms is not None]


def _trait(source: str) -> str:
    return next((name for name, text in _TRAITS.items() if re.search(text, source)), PLAIN)


def _work(points: list[StartPoint]) -> int:
    """Kernels that were made in a niche or from it."""
    return len(points) + sum(point.children for point in points)


def _fastest(points: list[StartPoint]) -> StartPoint:
    return min(points, key=lambda point: (point.median_ms, point.candidate))
