"""Owns the roofline plot: what the machine can do, and where each kernel stands below it.

All kernels of a task have the same work and the same least traffic, and so stand above each other.
"""

from typing import Any, NamedTuple

from evokernel.report.canvas import BEST, FAINT, INK, PASSED, canvas
from evokernel.report.story import Story


class Roofs(NamedTuple):
    """What a run knows of its machine and of its task's work."""

    memory: float
    """Best rate from memory, GB/s."""
    cache: float
    """Best rate inside the caches, GB/s."""
    gflops: float
    """Best rate of arithmetic, GFLOP/s."""
    flops: int
    """Of one call."""
    min_bytes: int
    """That any implementation moves in one call."""

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flops / self.min_bytes

    def rate(self, median_ms: float) -> float:
        """GFLOP/s of a call."""
        return 1e-6 * self.flops / median_ms


def roofs(story: Story) -> Roofs | None:
    """None where machine or work are unknown, or there is no arithmetic to speak of."""
    known, graph = story.record.header.environment, story.graph
    names = ("memory_gbytes_per_s", "cache_gbytes_per_s", "peak_gflops")
    if graph is None or not graph.flops or not graph.min_bytes:
        return None
    try:
        memory, cache, gflops = (float(known[name]) for name in names)
    except (KeyError, ValueError):
        return None  # of a run that an earlier version made
    return Roofs(memory, cache, gflops, graph.flops, graph.min_bytes)


def roofline_figure(story: Story, found: Roofs) -> Any:
    """Draw roofs, baselines and every timed attempt; the best one stands out."""
    figure, axes = canvas(6.0, 4.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = _intensities(found)
    _roof(axes, found.cache, found.gflops, (low, high), "caches", ":")
    _roof(axes, found.memory, found.gflops, (low, high), "memory", "-")
    _baselines(axes, story, found)
    _attempts(axes, story, found)
    axes.set_xlim(low, high)
    axes.set_xlabel("operations for each byte of least traffic")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(f"{story.task.name}: below the roofs of this machine", loc="left", color=INK)
    figure.legend(loc="outside lower left", ncols=3, fontsize=9, frameon=False)
    return figure


def _intensities(found: Roofs) -> tuple[float, float]:
    """The range that shows the kernel and the corner of the memory roof."""
    corner = found.gflops / found.memory
    return min(found.intensity, corner) / 4, max(found.intensity, corner) * 4


def _roof(
    axes: Any, rate: float, gflops: float, ends: tuple[float, float], name: str, style: str
) -> None:
    corner = min(max(gflops / rate, ends[0]), ends[1])
    x = [ends[0], corner, ends[1]]
    y = [min(gflops, rate * at) for at in x]
    axes.plot(x, y, style, color=INK, linewidth=1.4, label=f"{name} {rate:.3g} GB/s")


def _baselines(axes: Any, story: Story, found: Roofs) -> None:
    marks = {"eager": "_", "compile": "_"}
    for name, median_ms in story.baselines.items():
        if name in marks:
            at = (found.intensity, found.rate(median_ms))
            words = {"eager": "eager ", "compile": "torch.compile "}[name]
            side = "right" if name == "eager" else "left"
            axes.plot(*at, marks[name], color=INK, markersize=16, mew=1.4)
            offset = (-9, 0) if name == "eager" else (9, 0)
            axes.annotate(
                words.strip(),
                at,
                xytext=offset,
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=8,
                color=INK,
            )


def _attempts(axes: Any, story: Story, found: Roofs) -> None:
    timed = [row for row in story.rows if row.median_ms is not None]
    for row in sorted(timed, key=lambda row: row.is_best):
        assert row.median_ms is not None
        axes.plot(
            found.intensity,
            found.rate(row.median_ms),
            "D" if row.is_best else "o",
            color=BEST if row.is_best else PASSED,
            markerfacecolor=BEST if row.is_best else "white",
            markersize=9 if row.is_best else 5,
            gid=f"attempt-{row.number}",
            label="_",
        )
    axes.plot([], [], "D", color=BEST, label="the best kernel")
    axes.plot([], [], "o", color=PASSED, markerfacecolor="white", label="other attempts")
    axes.axvline(found.intensity, color=FAINT, linewidth=0.8, zorder=0)
