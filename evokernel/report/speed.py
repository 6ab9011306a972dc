"""Owns the plot of speed over attempts."""

from pathlib import Path
from typing import Any

from evokernel.evaluation import Status
from evokernel.report.canvas import BEST, FAILED, INK, PASSED, SPOILED, canvas, save, speed_axis
from evokernel.report.story import Row, Story
from evokernel.wording import times


def draw_speed(story: Story, file: Path) -> None:
    """Draw each attempt's speedup over eager with its interval, the best so far, and baselines."""
    width = min(16.0, max(7.0, 3.0 + 0.2 * len(story.rows)))
    figure, axes = canvas(width, 4.6)
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
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False, borderaxespad=0
    )
    save(figure, file)


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
    if not found:
        return
    values = [ratio.value for _, ratio in found]
    below = [ratio.value - ratio.low for _, ratio in found]
    above = [ratio.high - ratio.value for _, ratio in found]
    axes.errorbar(
        [number for number, _ in found],
        values,
        yerr=[below, above],
        fmt=marker,
        markersize=5,
        color=color,
        markerfacecolor=face,
        elinewidth=1.2,
        capsize=2.5,
        label=label,
        zorder=3,
    )


def _failures(story: Story, axes: Any, low: float, high: float) -> None:
    """Marks at the lower edge, where no speed can be."""
    place = low * (high / low) ** 0.05
    spoiled = Status.INFRASTRUCTURE
    failed = [r.number for r in story.rows if not r.status.is_feasible and r.status is not spoiled]
    uncharged = [row.number for row in story.rows if row.status is spoiled]
    for numbers, color, label in ((failed, FAILED, "failed"), (uncharged, SPOILED, "not measured")):
        if numbers:
            axes.plot(
                numbers,
                [place] * len(numbers),
                "x",
                color=color,
                markersize=7,
                label=label,
                mew=1.8,
            )


def _numbers(axes: Any, count: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0.5, max(count, 1) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=min(count, 16), integer=True, min_n_ticks=1))
