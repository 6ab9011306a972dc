"""Owns the plot of speed over attempts."""

from typing import Any

from evokernel.evaluation import Status
from evokernel.report.canvas import BEST, FAILED, INK, PASSED, SPOILED, canvas, speed_axis
from evokernel.report.story import Row, Story
from evokernel.wording import times


def speed_figure(story: Story) -> Any:
    """Draw each attempt's speedup over eager with its interval, the best so far, and baselines.

    Marks have the gid `attempt-N`.
    """
    width = min(16.0, max(6.4, 2.4 + 0.2 * len(story.rows)))
    figure, axes = canvas(width, 4.4)
    low, high = _range(story)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    speed_axis(axes.yaxis, low, high)
    _baselines(story, axes)
    _leaders(story, axes)
    _measured(story, axes)
    _failures(story, axes, low, high)
    _numbers(axes, len(story.rows))
    axes.set_xlabel("attempt")
    axes.set_ylabel("times as fast as eager")
    axes.set_title(f"{story.task.name}: speed over attempts", loc="left", color=INK)
    figure.legend(loc="outside lower left", ncols=4, fontsize=9, frameon=False)
    return figure


def _range(story: Story) -> tuple[float, float]:
    """What the axis shows: every interval and both baselines, with room for marks below."""
    ratios = [i for row in story.rows for i in (row.ratio, row.first) if i is not None]
    values = [
        1.0,
        story.compile_ratio or 1.0,
        *(bound for i in ratios for bound in (i.low, i.high)),
    ]
    low, high = min(values), max(values)
    span = max(high / low, 1.5)
    return low / span**0.22, high * span**0.12


def _baselines(story: Story, axes: Any) -> None:
    axes.axhline(1.0, color=INK, linewidth=1, linestyle=(0, (5, 3)), label="eager")
    if story.compile_ratio is not None:
        label = f"torch.compile ({times(story.compile_ratio)})"
        axes.axhline(story.compile_ratio, color=INK, linewidth=1, linestyle=":", label=label)


def _leaders(story: Story, axes: Any) -> None:
    leaders = story.leaders
    if not leaders:
        return
    steps = [*leaders, (leaders[-1][0] + 0.5, leaders[-1][1])]
    axes.step(*zip(*steps, strict=True), where="post", color=BEST, linewidth=2, label="best so far")
    best = story.best
    if best is not None and best.ratio is not None:
        is_late = best.number > 0.6 * len(story.rows)
        axes.annotate(
            f"{best.number}: {times(best.ratio.value)}",
            (best.number, best.ratio.high),
            xytext=(-2 if is_late else 2, 5),
            textcoords="offset points",
            ha="right" if is_late else "left",
            color=BEST,
            fontweight="bold",
        )


def _measured(story: Story, axes: Any) -> None:
    """First measurements hollow, second looks in fresh processes filled; 95 % intervals."""
    again = [row for row in story.rows if row.processes > 1]
    once = [row for row in story.rows if row.processes == 1]
    _points(axes, once, "o", "white", "one process")
    _points(axes, [row for row in again if not row.is_refuted], "D", PASSED, "fresh processes")
    _points(axes, [row for row in again if row.is_refuted], "D", "white", "not confirmed", FAILED)


def _points(
    axes: Any, rows: list[Row], marker: str, face: str, label: str, color: str = PASSED
) -> None:
    found = [(row.number, row.ratio) for row in rows if row.ratio is not None]
    if found:
        numbers, ratios = zip(*found, strict=True)
        ends = [[r.value - r.low for r in ratios], [r.high - r.value for r in ratios]]
        style = {"color": color, "elinewidth": 1.2, "capsize": 2.5, "zorder": 3}
        axes.errorbar(numbers, [r.value for r in ratios], yerr=ends, fmt="none", **style)
    for index, (number, ratio) in enumerate(found):
        axes.plot(
            [number],
            [ratio.value],
            marker,
            markersize=5,
            color=color,
            markerfacecolor=face,
            label="_" if index else label,
            gid=f"attempt-{number}",
            zorder=3.5,
        )


def _failures(story: Story, axes: Any, low: float, high: float) -> None:
    """Marks at the lower edge, where no speed can be."""
    place = low * (high / low) ** 0.05
    spoiled = Status.INFRASTRUCTURE
    failed = [r.number for r in story.rows if not r.status.is_feasible and r.status is not spoiled]
    uncharged = [row.number for row in story.rows if row.status is spoiled]
    for numbers, color, label in ((failed, FAILED, "failed"), (uncharged, SPOILED, "not measured")):
        for index, number in enumerate(numbers):
            axes.plot(
                [number],
                [place],
                "x",
                color=color,
                markersize=7,
                label="_" if index else label,
                mew=1.8,
                gid=f"attempt-{number}",
            )


def _numbers(axes: Any, count: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0.5, max(count, 1) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=min(count, 16), integer=True, min_n_ticks=1))
