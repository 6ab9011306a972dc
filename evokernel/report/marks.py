"""Owns how verdicts are coloured on pages, and what the marks of plots say."""

from evokernel.evaluation import Status
from evokernel.report.html.figure import Mark
from evokernel.report.story import Row, Story
from evokernel.wording import milliseconds, with_interval

ANSWER_MARKS = {"yes": "passed", "no": "failed", "unknown": "spoiled", "not asked": "faint"}
"""Class of a verdict."""
LETTERS = {"yes": "y", "no": "n", "unknown": "?", "not asked": "-"}
"""A verdict in one letter."""


def status_mark(status: Status) -> str:
    """Class of a status."""
    if status is Status.INFRASTRUCTURE:
        return "spoiled"
    return "passed" if status.is_feasible else "failed"


def place(number: int) -> str:
    """Where a page tells of an attempt."""
    return f"#attempt-{number}"


def marks(story: Story) -> dict[str, Mark]:
    """By gid: what the mark of each attempt says, and where it leads."""
    said = {row.number: Mark(_said(row), place(row.number)) for row in story.rows}
    numbers = {f"number-{number}": mark for number, mark in said.items()}
    return {**{f"attempt-{number}": mark for number, mark in said.items()}, **numbers}


def _said(row: Row) -> str:
    lines = [f"attempt {row.number}, {row.stage}: {row.change or 'no reason given'}"]
    if row.ratio is not None:
        looks = f"{row.processes} fresh processes" if row.processes > 1 else "one process"
        lines.append(f"{with_interval(row.ratio)} as fast as eager ({looks})")
    if row.median_ms is not None:
        lines.append(milliseconds(row.median_ms))
    if row.is_refuted:
        lines.append("not confirmed in fresh processes")
    if not row.status.is_feasible:
        lines.append(f"{row.status.value}: {row.reason}")
    return "\n".join(lines)
