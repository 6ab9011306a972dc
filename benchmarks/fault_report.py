"""Tells what became of planted faults: counts by class, what was missed, and what was no fault."""

import os
from collections import Counter
from typing import Any

import torch
from fault import CLASSES

from evokernel.bench import processor

RIGHT = "right"
"""The kind of a kernel without a fault."""
STOCK = (1e-2, 1e-4)
"""Limits of the check that is usual elsewhere."""


def table(found: list[dict[str, Any]]) -> list[str]:
    """Counts by class, then the totals."""
    columns = ("planted", "found", "missed", "stock 1e-2", "stock 1e-4", "within", "no fault")
    lines = [f"{'class':20}" + "".join(f"{column:>12}" for column in columns)]
    groups = [(kind, [a for a in found if a["kind"] == kind]) for kind in CLASSES]
    for name, group in [*groups, ("all", found)]:
        count = Counter(answer["outcome"] for answer in group)
        real = [a for a in group if a["outcome"] in {"found", "missed"}]
        stock = [sum(a["stock"][place] for a in real) for place in range(len(STOCK))]
        lines.append(
            f"{name:20}{len(real):12}{count['found']:12}{count['missed']:12}{stock[0]:12}"
            f"{stock[1]:12}{count['within tolerance']:12}{count['no fault']:12}"
        )
    return lines


def report(found: list[dict[str, Any]], command: str, version: str) -> str:
    """The table, what was missed, and what stayed within the limits.

    `version` is a hash of the sources that judged.
    """
    right = [a for a in found if a["kind"] == RIGHT]
    real = [a for a in found if a["outcome"] in {"found", "missed"}]
    hits = sum(a["outcome"] == "found" for a in real)
    most = Counter(a["kind"] for a in real).most_common(1)[0]
    tasks = len({a["task"] for a in real})
    parts = [
        command,
        f"{processor.name()}, {len(os.sched_getaffinity(0))} cores, 2 threads, "
        f"torch {torch.__version__}, sources {version}",
        "",
        *table(found),
        "",
        f"{hits} of {len(real)} faults found ({hits / len(real):.2%}), in {tasks} tasks and "
        f"{len({a['kind'] for a in real})} classes; the largest, {most[0]}, has "
        f"{most[1] / len(real):.1%}",
        f"{sum(a['outcome'] == 'passed' for a in right)} of {len(right)} right kernels passed",
        "stock: five normal inputs, `allclose` with rtol = atol = 1e-2, 1e-4",
    ]
    for outcome, words in (
        ("refused", "Right kernels that were refused"),
        ("missed", "Missed: beyond the limits on some of 10,000 random inputs"),
        ("not told", "Not told: the comparison on random inputs broke off"),
        ("within tolerance", "Within the limits on 10,000 random inputs: too weak to be a fault"),
    ):
        named = [a for a in found if a["outcome"] == outcome]
        parts += ["", f"{words} ({len(named)})"]
        parts += [
            f"  {a['task']} ({a['form']}), {a['kind']}: {a['what']}{_worst(a)}" for a in named
        ]
    return "\n".join(parts) + "\n"


def _worst(answer: dict[str, Any]) -> str:
    share = answer.get("random", {}).get("worst")
    return "" if share is None else f" (at most {share:.2g} of what is allowed)"
