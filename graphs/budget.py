"""Owns when a run ends: attempts, minutes and turns, all counted from what the run has stored."""

from evokernel.graphs.selection import turns
from evokernel.record import RunRecord


def spent(record: RunRecord) -> str:
    """Say in words which budget is spent, or nothing while all have something left."""
    budget, search = record.config.budget, record.config.search
    charged = sum(a.evaluation.status.is_charged for a in record.attempts())
    if charged >= budget.attempts:
        return f"all {budget.attempts} attempts are spent"
    if budget.minutes is not None and record.elapsed() >= 60 * budget.minutes:
        return f"all {budget.minutes:g} minutes are spent"
    if search.depth is not None and turns(record) >= search.width * search.depth:
        return f"all {search.depth} turns of each of {search.width} trajectories are made"
    return ""


def node_limit(record: RunRecord) -> int:
    """Most nodes that a run within its budget can pass; beyond it something loops.

    An attempt passes at most 7 nodes (retrieve, draft or refine, compile, verify, profile, learn,
    promote). A step in vain passes 2 and rules out one option for good: drafting, or the repair or
    refinement of one attempt.
    """
    attempts = record.config.budget.attempts
    return 7 * attempts + 2 * (2 * attempts + 1) + 10
