"""Owns the plot of descent: who was made from whom, what changed, and the way to the best.

Each attempt has a line of its own, below the attempt it was made from and one step to the right,
so that nothing overlaps however many there are.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from evokernel.evaluation import Status
from evokernel.report.canvas import BEST, FAILED, FAINT, INK, PASSED, SPOILED, canvas
from evokernel.report.story import Row, Story
from evokernel.wording import times

LINE = 0.27
"""Inches between two lines."""
STEP = 0.34
"""Inches from parent to child."""
TEXT = 5.6
"""Inches for the words."""
MOST_STEPS = 6.0
"""Inches that all steps together may take; deeper descents have shorter steps."""
LETTERS = 62
"""Letters of a change that fit."""


class Place(NamedTuple):
    """Where an attempt stands."""

    row: Row
    line: int
    depth: int
    parent: int | None
    """Number of the attempt above it."""


def lineage_figure(story: Story) -> Any:
    """Draw the descent of every attempt; what was changed stands beside it.

    Marks have the gid `attempt-N`.
    """
    places = {place.row.number: place for place in placed(story.rows)}
    deepest = max(place.depth for place in places.values())
    step = min(STEP, MOST_STEPS / max(deepest, 1))
    width = 0.5 + step * deepest + TEXT
    height = 0.7 + LINE * len(places)
    figure, axes = canvas(width, height)
    axes.axis("off")
    axes.set_xlim(-0.25, width - 0.25)
    axes.set_ylim(LINE * (len(places) - 0.4), -LINE * 0.8)
    title = f"{story.task.name}: who was made from whom, and what was changed"
    axes.set_title(title, loc="left", color=INK)
    for place in places.values():
        if place.parent is not None:
            _edge(axes, places[place.parent], place, step)
    words = step * deepest + 0.3
    for place in places.values():
        _node(axes, place, step)
        _words(axes, place, step, words)
    return figure


def placed(rows: tuple[Row, ...]) -> Iterator[Place]:
    """Put each attempt below its first parent, the descendants of one before its next sibling."""
    numbers = {row.number for row in rows}
    children: dict[int | None, list[Row]] = {}
    for row in rows:
        above = next((n for n in row.parents if n in numbers and n < row.number), None)
        children.setdefault(above, []).append(row)
    waiting = [(row, 0, None) for row in reversed(children.get(None, []))]
    stack: list[tuple[Row, int, int | None]] = list(waiting)
    line = 0
    while stack:
        row, depth, parent = stack.pop()
        yield Place(row, line, depth, parent)
        line += 1
        below = reversed(children.get(row.number, []))
        stack += [(child, depth + 1, row.number) for child in below]


def _edge(axes: Any, parent: Place, child: Place, step: float) -> None:
    is_best = child.row.is_on_path and parent.row.is_on_path
    x, y = (parent.depth * step, child.depth * step), (parent.line * LINE, child.line * LINE)
    axes.plot(
        [x[0], x[0], x[1]],
        [y[0], y[1], y[1]],
        color=BEST if is_best else FAINT,
        linewidth=2.4 if is_best else 1.2,
        zorder=2 if is_best else 1,
        solid_joinstyle="round",
    )


def _node(axes: Any, place: Place, step: float) -> None:
    row = place.row
    axes.plot(
        [place.depth * step],
        [place.line * LINE],
        "o",
        markersize=13 if row.number < 100 else 15,
        color=_color(row),
        markeredgecolor=BEST if row.is_on_path else _color(row),
        markeredgewidth=2.2 if row.is_on_path else 1,
        gid=f"attempt-{row.number}",
        zorder=3,
    )
    axes.text(
        place.depth * step,
        place.line * LINE,
        str(row.number),
        ha="center",
        va="center_baseline",
        color="white",
        fontsize=6.5,
        zorder=4,
        gid=f"number-{row.number}",
    )


def _words(axes: Any, place: Place, step: float, start: float) -> None:
    """The speed in a column, then what was changed; a faint line leads there."""
    row, y = place.row, place.line * LINE
    axes.plot([place.depth * step, start - 0.08], [y, y], ":", color="#dddddd", lw=0.8, zorder=0)
    weight = "bold" if row.is_best else "normal"
    color = BEST if row.is_best else _color(row)
    style = {"va": "center", "fontsize": 8, "fontweight": weight}
    axes.text(start, y, _result(row), color=color, **style)
    axes.text(start + 1.05, y, _change(row), color=INK, **style)


def _result(row: Row) -> str:
    if row.ratio is not None:
        return times(row.ratio.value)
    return "passed" if row.status.is_feasible else row.status.value


def _change(row: Row) -> str:
    change = row.change if len(row.change) <= LETTERS else f"{row.change[: LETTERS - 1]}…"
    if row.repeats is not None:
        change = f"the same as {row.repeats}"
    others = ", ".join(map(str, row.parents[1:]))
    return f"{row.stage}: {change}{f' (with {others})' if others else ''}"


def _color(row: Row) -> str:
    if row.status is Status.INFRASTRUCTURE:
        return SPOILED
    return PASSED if row.status.is_feasible else FAILED
