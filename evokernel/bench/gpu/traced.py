"""Owns what a trace of a GPU says: how much of the time passes in whose kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from evokernel.bench.messages import Traced

FOREIGN_SHARE = 0.05
"""Share of the device time that kernels of others may have beside copies and fills."""
_MOVES = re.compile(r"Memcpy|Memset|memcpy|memset|FillFunctor|direct_copy|CatArray|copy_device")


def coverage(trace: Sequence[Traced], own: tuple[str, ...]) -> float | None:
    """Share of the device time in a candidate's own kernels."""
    total = sum(event.ns for event in trace)
    return sum(event.ns for event in trace if event.name in own) / total if total else None


def foreign(trace: Sequence[Traced], own: tuple[str, ...]) -> tuple[str, float] | None:
    """The kernel of others that took the most time, with the share of all of them."""
    total = sum(event.ns for event in trace)
    others: Counter[str] = Counter()
    for event in trace:
        if event.name not in own and not _MOVES.search(event.name):
            others[event.name] += event.ns
    if not others or sum(others.values()) <= FOREIGN_SHARE * total:
        return None
    return others.most_common(1)[0][0], sum(others.values()) / total
