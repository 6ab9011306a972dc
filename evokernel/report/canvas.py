"""Owns how plots look: the canvas, colours and how numbers stand on an axis."""

from pathlib import Path
from typing import Any

BEST = "#d95f02"
PASSED = "#1b6ca8"
FAILED = "#b2182b"
SPOILED = "#8a8a8a"
INK = "#222222"
FAINT = "#b8b8b8"
DPI = 150
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 20, 50, 100, 200, 500)
"""Speedups that a logarithmic axis may name."""
NEAR = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.75, 2)
"""Those of an axis that shows a narrow range around 1."""


def canvas(width: float, height: float) -> tuple[Any, Any]:
    """A figure and its axes, inches; nothing is shown on a screen and no global state is used."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Any, file: Path) -> None:
    """Write a PNG, whole or not at all."""
    half = file.with_name(f".{file.name}.part")
    figure.savefig(half, format="png", metadata={"Software": "EvoKernel"})
    half.replace(file)


def speed_axis(axis: Any, low: float, high: float) -> None:
    """A logarithmic axis of speedups that names round ones within its range."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ticks = NEAR if low >= NEAR[0] and high <= NEAR[-1] else TICKS
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
