"""Owns the plot of a campaign: how much faster each task became."""

from typing import TYPE_CHECKING, Any

from evokernel.answers import BASELINES
from evokernel.campaign.table import Row
from evokernel.report.canvas import BEST, FAINT, INK, PASSED, canvas, speed_axis
from evokernel.report.html.figure import Mark, inline
from evokernel.wording import with_interval

if TYPE_CHECKING:
    from markupsafe import Markup


def speedups(rows: tuple[Row, ...], names: dict[str, str]) -> "Markup | None":
    """Every task with a timed kernel, the fastest on top; None where there is none.

    Args:
        rows: Of the campaign's table.
        names: By task, its place in the page.
    """
    timed = [each for each in rows if each.speedups]
    if not timed:
        return None
    timed.sort(key=lambda each: max(ratio.value for ratio in each.speedups.values()))
    pointed = {}
    for each in timed:
        for name, ratio in each.speedups.items():
            said = f"{each.task}: {with_interval(ratio)} as fast as {BASELINES[name]}"
            pointed[f"{name}-{names[each.task]}"] = Mark(said, f"#{names[each.task]}")
    said = "speedup of every task over eager and over torch.compile"
    return inline(_figure(timed, names), "tasks", said, pointed)


_LOOKS = {"eager": ("D", BEST, BEST), "compile": ("o", PASSED, "white")}
"""Mark, colour and face by baseline."""


def _figure(timed: list[Row], names: dict[str, str]) -> Any:
    figure, axes = canvas(8.0, 1.5 + 0.26 * len(timed))
    ratios = [ratio for each in timed for ratio in each.speedups.values()]
    low = min([ratio.low for ratio in ratios] + [0.9]) / 1.05
    high = max([ratio.high for ratio in ratios] + [1.1]) * 1.05
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    speed_axis(axes.xaxis, low, high)
    axes.axvline(1.0, color=INK, linewidth=1, linestyle=(0, (5, 3)))
    for line, each in enumerate(timed):
        axes.axhline(line, color=FAINT, linewidth=0.5, zorder=0)
        for name, ratio in each.speedups.items():
            marker, color, face = _LOOKS[name]
            at = line + (0.13 if name == "eager" else -0.13)
            gid = f"{name}-{names[each.task]}"
            axes.plot([ratio.low, ratio.high], [at, at], color=color, linewidth=1.2)
            axes.plot(ratio.value, at, marker, color=color, markerfacecolor=face, ms=5, gid=gid)
    for name, (marker, color, face) in _LOOKS.items():
        style = {"color": color, "markerfacecolor": face, "markersize": 5}
        axes.plot([], [], marker, label=f"over {BASELINES[name]}", **style)
    axes.set_yticks(range(len(timed)), [each.task for each in timed])
    axes.set_ylim(-0.6, len(timed) - 0.4)
    axes.set_xlabel("times as fast, with 95 % intervals")
    figure.legend(loc="outside lower left", ncols=2, fontsize=9, frameon=False)
    return figure
