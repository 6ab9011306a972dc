"""Owns a report's tables on the search: trajectories, niches, and the tools that a model used."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from evokernel.attempt import Attempt, ToolUse
from evokernel.graphs import niches
from evokernel.report.story import Story
from evokernel.wording import milliseconds


class Table(NamedTuple):
    """One table, ready to be written."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def tables(story: Story) -> list[Table]:
    """Those that have something to say: more than one trajectory or niche, or any tool."""
    found = [_trajectories(story), _niches(story)]
    return [table for table in found if len(table.rows) > 1] + _tools(story)


def _trajectories(story: Story) -> Table:
    by_number: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in story.outcome.attempts:
        by_number[attempt.trajectory].append(attempt)
    rows = [
        (
            str(number),
            ", ".join(str(attempt.number) for attempt in own),
            str(sum(attempt.evaluation.status.is_feasible for attempt in own)),
            _best(own),
        )
        for number, own in sorted(by_number.items())
    ]
    return Table("Trajectories", ("trajectory", "attempts", "right", "its best"), rows)


def _niches(story: Story) -> Table:
    found: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in story.outcome.attempts:
        if attempt.evaluation.status.is_feasible:
            found[niches.niche(attempt)].append(attempt)
    order = [name for name in niches.archive(story.record) if name in found]
    rows = [(name, str(len(found[name])), _best(found[name])) for name in order]
    return Table("Niches: the algorithms that were tried", ("niche", "right", "its best"), rows)


def _tools(story: Story) -> list[Table]:
    used: dict[str, list[ToolUse]] = defaultdict(list)
    for attempt in story.outcome.attempts:
        for use in attempt.proposal.tools:
            used[use.tool].append(use)
    rows = [
        (
            f"`{name}`",
            str(len(uses)),
            str(sum(use.is_error for use in uses)),
            f"{sum(use.seconds for use in uses):.1f}",
        )
        for name, uses in sorted(used.items())
    ]
    return [Table("Tools that the model used", ("tool", "calls", "refused", "s"), rows)] * bool(
        rows
    )


def _best(attempts: list[Attempt]) -> str:
    timed = [(a.median_ms, a.number) for a in attempts if a.median_ms is not None]
    return f"attempt {min(timed)[1]}, {milliseconds(min(timed)[0])}" if timed else "none"
