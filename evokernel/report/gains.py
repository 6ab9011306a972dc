"""Owns what each technique gained in a run: what became of the steps that changed it."""

import math
import statistics
from typing import Any, NamedTuple

from evokernel.evaluation import Interval
from evokernel.report.canvas import BEST, FAILED, INK, PASSED, canvas, speed_axis
from evokernel.report.story import Story


class Gain(NamedTuple):
    """What one step gained over the kernel that it was made from."""

    attempt: int
    parent: int
    ratio: float
    """The parent's time over its child's."""
    measured: Interval | None
    """Where both were measured side by side; else `ratio` comes by way of eager."""


class TechniqueGains(NamedTuple):
    """One technique or parameter."""

    name: str
    attempts: tuple[int, ...]
    """That took it up or changed it."""
    right: int
    """Of these, how many passed."""
    gains: tuple[Gain, ...]

    @property
    def mean(self) -> float | None:
        """Geometric mean of the gains."""
        if not self.gains:
            return None
        return math.exp(statistics.fmean(math.log(gain.ratio) for gain in self.gains))


def technique_gains(story: Story) -> tuple[TechniqueGains, ...]:
    """By technique, the largest mean gain first; a step that changed several counts for each."""
    steps: dict[str, list[tuple[int, bool, Gain | None]]] = {}
    by_sha = story.outcome.by_sha()
    for attempt in story.outcome.attempts:
        proposal = attempt.proposal
        parent = by_sha.get(proposal.parents[0]) if proposal.parents else None
        gain = None
        if parent is not None:
            measured = story.outcome.measured_gain(attempt, parent)
            ratio = measured.value if measured else story.outcome.estimated_gain(attempt, parent)
            gain = Gain(attempt.number, parent.number, ratio, measured) if ratio else None
        step = (attempt.number, attempt.evaluation.status.is_feasible, gain)
        for name in dict.fromkeys(proposal.changed or proposal.techniques):
            steps.setdefault(name, []).append(step)
    found = [_gains(name, done) for name, done in steps.items()]
    return tuple(sorted(found, key=lambda each: -(each.mean or 0)))


def _gains(name: str, steps: list[tuple[int, bool, Gain | None]]) -> TechniqueGains:
    return TechniqueGains(
        name=name,
        attempts=tuple(number for number, _, _ in steps),
        right=sum(is_right for _, is_right, _ in steps),
        gains=tuple(gain for _, _, gain in steps if gain is not None),
    )


MOST = 14
"""Techniques that are drawn; the table has all of them."""


def gains_figure(story: Story, found: tuple[TechniqueGains, ...]) -> Any:
    """Draw every gain of the techniques that have any; the mean is a line."""
    drawn = [each for each in found if each.gains][:MOST]
    figure, axes = canvas(7.0, 1.3 + 0.3 * len(drawn))
    ends = [end for each in drawn for gain in each.gains for end in _ends(gain)]
    low, high = min([*ends, 1 / 1.1]) / 1.04, max([*ends, 1.1]) * 1.04
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    speed_axis(axes.xaxis, low, high)
    axes.axvline(1.0, color=INK, linewidth=1, linestyle=(0, (5, 3)))
    for line, each in enumerate(drawn):
        _draw(axes, len(drawn) - 1 - line, each)
    axes.set_yticks(range(len(drawn)), [each.name for each in reversed(drawn)])
    axes.set_ylim(-0.6, len(drawn) - 0.4)
    axes.set_xlabel("times as fast as the kernel it was made from")
    axes.set_title(
        f"{story.task.name}: what was changed, and what it gained", loc="left", color=INK
    )
    return figure


def _ends(gain: Gain) -> tuple[float, float]:
    """Of the interval, as far as a plot shows it: a few wild ones would hide the others."""
    if gain.measured is None:
        return gain.ratio, gain.ratio
    return max(gain.measured.low, gain.ratio / 3), min(gain.measured.high, gain.ratio * 3)


def _draw(axes: Any, line: int, each: TechniqueGains) -> None:
    for index, gain in enumerate(each.gains):
        color = PASSED if gain.ratio >= 1 else FAILED
        at = line + 0.25 - 0.5 * (index + 0.5) / len(each.gains)  # one below the other
        if gain.measured is not None:
            ends = [gain.measured.low, gain.measured.high]
            axes.plot(ends, [at, at], color=color, linewidth=1.2)
        axes.plot(
            gain.ratio,
            at,
            "o",
            color=color,
            markerfacecolor=color if gain.measured else "white",
            markersize=5,
            gid=f"gain-{each.name}-{gain.attempt}",
        )
    assert each.mean is not None
    axes.plot([each.mean] * 2, [line - 0.33, line + 0.33], color=BEST, linewidth=2)
