"""Owns when a budget is spent: attempts, minutes, turns, tokens, dollars, as they are stored."""

from evokernel.config import Budget
from evokernel.graphs.selection import turns
from evokernel.record import RunRecord
from evokernel.record.spending import Spending, dollars, spending


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
    return overspent(budget, spending(record))


def overspent(budget: Budget, done: Spending) -> str:
    """Say why no further call may be made; nothing while there is room for one.

    Room is taken to be what the longest, or the dearest, call so far took.
    """
    if budget.tokens is not None and done.tokens + done.longest > budget.tokens:
        left = f"; a call has taken up to {done.longest:,}" if done.tokens < budget.tokens else ""
        return f"{done.tokens:,} of {budget.tokens:,} tokens are spent{left}"
    if budget.usd is None:
        return ""
    if done.unpriced:
        return f"the price of a call is unknown, so that {dollars(budget.usd)} cannot be kept"
    if done.usd + done.dearest_usd > budget.usd or done.usd >= budget.usd:
        left = f"; a call has cost up to {dollars(done.dearest_usd)}"
        left = left if done.usd < budget.usd else ""
        return f"{dollars(done.usd)} of {dollars(budget.usd)} are spent{left}"
    return ""


def node_limit(record: RunRecord) -> int:
    """Most nodes that a run within its budget can pass; beyond it something loops.

    An attempt passes at most 7 nodes (retrieve, draft or refine, compile, verify, profile, learn,
    promote). A step in vain passes 2 and rules out one option for good: drafting, or the repair or
    refinement of one attempt.
    """
    attempts = record.config.budget.attempts
    return 7 * attempts + 2 * (2 * attempts + 1) + 10
