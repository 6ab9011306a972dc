"""Owns the plots of an ablation: speed over attempts, attempts to the target, learning."""

from pathlib import Path
from typing import Any

from evokernel.study.ablation import CONTROL, ORACLE, PLAIN, Setting
from evokernel.study.effects import curves, learning
from evokernel.study.results import Results
from evokernel.study.searches import SEARCHES

DPI = 150
COLOURS = {
    CONTROL: "#222222",
    PLAIN: "#8a8a8a",
    "random": "#c9b28f",
    "similarity": "#1b6ca8",
    "evokernel": "#d95f02",
    "memrl": "#7570b3",
    "hybrid": "#1b9e4b",
    "placebo": "#b2182b",
    ORACLE: "#e6b800",
}
STYLES = dict(zip(SEARCHES, (":", "--", "-."), strict=True))
GREY = "#555555"


def draw(found: Results, folder: Path) -> tuple[Path, ...]:
    """Draw all plots into a folder; gives their files."""
    folder.mkdir(parents=True, exist_ok=True)
    settings: tuple[Setting, ...] = ("adaptation", "transfer")
    made = [_curves(found, setting, folder) for setting in settings]
    made.append(_needed(found, folder))
    made.append(_learning(found, folder))
    return tuple(made)


def _curves(found: Results, setting: Setting, folder: Path) -> Path:
    figure, axes = _canvas(7.0, 4.4)
    for arm, values in curves(found.outcomes, setting, found.design.budget).items():
        axes.plot(range(1, len(values) + 1), values, label=arm, **_style(arm))
    axes.axhline(found.design.target, color="#b8b8b8", linewidth=0.8)
    axes.set_xlabel("attempts")
    axes.set_ylabel("speed held, share of the best known")
    titles = {
        "adaptation": "within a stream of tasks",
        "transfer": "frozen bank, held-out tasks",
    }
    axes.set_title(titles[setting], loc="left")
    axes.legend(fontsize=7, frameon=False, ncols=2)
    return _save(figure, folder / f"ablation_{setting}.png")


def _needed(found: Results, folder: Path) -> Path:
    figure, axes = _canvas(7.0, 5.2)
    place = 0
    labels: list[str] = []
    for setting in ("adaptation", "transfer"):
        for effect in (e for e in found.effects if e.setting == setting):
            if effect.ratio is not None:
                low, high = effect.ratio.low, effect.ratio.high
                colour = _style(effect.arm)["color"]
                axes.plot([low, high], [place, place], color=colour, linewidth=2)
                marker = "o" if setting == "adaptation" else "s"
                axes.plot(effect.ratio.value, place, marker, color=colour)
                labels.append(f"{effect.arm} ({setting})")
                place += 1
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    axes.axvline(0.5, color="#b8b8b8", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(place), labels, fontsize=7)
    axes.set_xlabel(f"attempts to 95 % of the best known speed, over `{CONTROL}`")
    axes.invert_yaxis()
    return _save(figure, folder / "ablation_needed.png")


def _learning(found: Results, folder: Path) -> Path:
    figure, axes = _canvas(7.0, 4.0)
    for arm, values in learning(found.outcomes, found.design.budget).items():
        if arm not in STYLES:
            axes.plot(range(1, len(values) + 1), values, label=arm, **_style(arm))
    axes.set_xlabel("place in the stream of tasks")
    axes.set_ylabel("attempts to the target")
    axes.legend(fontsize=7, frameon=False, ncols=2)
    return _save(figure, folder / "ablation_learning.png")


def _style(arm: str) -> dict[str, Any]:
    dashes = STYLES.get(arm, "-")
    return {"color": COLOURS.get(arm, GREY), "linestyle": dashes, "linewidth": 1.4}


def _canvas(width: float, height: float) -> tuple[Any, Any]:
    """A figure and its axes, inches, without a screen or global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, file: Path) -> Path:
    figure.savefig(file, format="png", metadata={"Software": "EvoKernel"})
    return file
