"""Owns a row of a suite: one task's run, and a second look at what came out by new processes.

No number is one that its own selection flattered: the best kernel is timed once more alternately
with its baselines, and, in at least three pairs of fresh processes, with the first feasible draft.
"""

import math
from typing import Any

from evokernel.attempt import Attempt
from evokernel.bench import Claim
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.config import RunConfig
from evokernel.evaluation import Evaluation, Interval
from evokernel.opgraph import OpGraph, capture
from evokernel.optimize import RunResult, optimize
from evokernel.record import RunRecord
from evokernel.task import Task

Row = dict[str, Any]
LOOKS = 5
"""How often a comparison with the first draft is tried on a machine that is not quiet."""
CONTRACTIONS = {"contraction", "convolution", "attention"}
"""Families whose time is arithmetic, and whose opponents are the vendors' libraries."""


def measured(task: Task, config: RunConfig) -> tuple[Row, Evaluation, OpGraph]:
    """One task's row: the run, then the second look; and what more columns are made of."""
    result = optimize(task, config)
    verdict, over_draft = second_look(task, config, result)
    graph = capture(task.program())
    row: Row = {
        "task": task.name,
        "family": graph.family,
        "status": str(verdict.status),
        "attempts": result.attempts,
        "seconds": round(result.seconds, 1),
        "techniques": list(result.best.proposal.techniques) if result.best else [],
        "over_draft": plain(over_draft),
    }
    if verdict.timing:
        row |= {"ms": verdict.timing.median_ms, "roofline": verdict.timing.roofline_share}
        row |= {s.against: plain(s.ratio) for s in verdict.timing.speedups}
    return row, verdict, graph


def second_look(
    task: Task, config: RunConfig, result: RunResult
) -> tuple[Evaluation, Interval | None]:
    """The best kernel once more: against the baselines, and against the run's first draft."""
    assert result.best is not None, f"`{task.name}`: the run found no feasible kernel"
    best, draft = result.best.proposal.candidate, first_draft(result).proposal.candidate
    with LocalEvaluator(task, config.bench, config.backend) as evaluator:
        verdict = evaluator.verify(best)
        if best.sha == draft.sha:
            return verdict, Interval(value=1.0, low=1.0, high=1.0)
        claim = Claim(candidate=best, parent=draft, kind="edit")
        looks = (evaluator.promote((claim,)) for _ in range(LOOKS))  # none on a busy machine
        return verdict, next((look.ratio for found in looks for look in found), None)


def first_draft(result: RunResult) -> Attempt:
    """The first feasible attempt of a run."""
    attempts = RunRecord.open(result.path).attempts()
    return next(a for a in attempts if a.median_ms is not None)


def plain(interval: Interval | None) -> list[float] | None:
    """Value, low and high, rounded for reading."""
    return (
        [round(x, 4) for x in (interval.value, interval.low, interval.high)] if interval else None
    )


def geometric_mean(rows: list[Row], column: str) -> tuple[float, int]:
    """Geometric mean of a column and the number of rows that have it."""
    values = [row[column][0] for row in rows if row.get(column)]
    return (math.exp(sum(map(math.log, values)) / len(values)), len(values)) if values else (0.0, 0)
