"""Owns the plot of what techniques have gained, over all runs that a memory knows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evokernel.evaluation import Interval
from evokernel.memory.technique_table import TechniqueUse
from evokernel.report.canvas import FAILED, FAINT, INK, PASSED, canvas, speed_axis
from evokernel.report.html.figure import Mark, inline
from evokernel.wording import counted, times, with_interval

if TYPE_CHECKING:
    from markupsafe import Markup

MOST = 24
"""Techniques that are drawn, by how often they were tried; the table has all of them."""
ROOM = 2.0
"""How far an interval is drawn beyond the outermost estimates, as a ratio."""


def technique_plot(uses: Sequence[TechniqueUse]) -> "Markup | None":
    """Geometric means with their intervals, largest first; None where nothing was compared."""
    drawn = [(n, use, use.gain) for n, use in enumerate(uses, 1) if use.gain is not None][:MOST]
    if not drawn:
        return None
    drawn.sort(key=lambda each: each[2].value)
    figure, axes = canvas(7.0, 1.1 + 0.3 * len(drawn))
    values = [gain.value for _, _, gain in drawn]
    low, high = min([*values, 1 / 1.1]) / ROOM, max([*values, 1.1]) * ROOM
    low = max(low, min([gain.low for _, _, gain in drawn] + [1 / 1.1]) / 1.08)
    high = min(high, max([gain.high for _, _, gain in drawn] + [1.1]) * 1.08)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    speed_axis(axes.xaxis, low, high)
    axes.axvline(1.0, color=INK, linewidth=1, linestyle=(0, (5, 3)))
    for line, (number, use, gain) in enumerate(drawn):
        _draw(axes, line, f"gain-{number}", use, gain)
    axes.set_yticks(range(len(drawn)), [use.technique for _, use, _ in drawn])
    axes.set_ylim(-0.6, len(drawn) - 0.4)
    axes.set_xlabel("times as fast with it")
    marks = {f"gain-{n}": Mark(_said(use, gain), f"#technique-{n}") for n, use, gain in drawn}
    return inline(figure, "gains", "What each technique has gained, largest first", marks)


def _draw(axes: Any, line: int, name: str, use: TechniqueUse, gain: Interval) -> None:
    color = FAINT
    if use.edits > 1 and not gain.low <= 1 <= gain.high:
        color = PASSED if gain.value > 1 else FAILED
    axes.plot([gain.low, gain.high], [line, line], color=color, linewidth=1.6)
    face = color if use.edits > 1 else "white"
    axes.plot(gain.value, line, "o", color=color, markerfacecolor=face, markersize=6, gid=name)


def _said(use: TechniqueUse, gain: Interval) -> str:
    told = with_interval(gain) if use.edits > 1 else times(gain.value)
    return f"{use.technique}: {told} over {counted(use.edits, 'edit')}"
