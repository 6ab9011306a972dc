"""Owns the tables of a memory's page: techniques, experiences and what it holds in all."""

from collections.abc import Iterable, Sequence

from evokernel.attempt import Stage
from evokernel.memory import words
from evokernel.memory.stats import Stats
from evokernel.memory.technique_table import TechniqueUse
from evokernel.memory.values import Value
from evokernel.report.html.table import Cell, Column, Row, Table, row, table
from evokernel.report.knowledge import Known
from evokernel.report.places import STATUS_MARKS, Places, moment
from evokernel.wording import times, with_interval

MOST = 1000
"""Lines of techniques by family, bottleneck and backend, most tried first."""

TRIED = "Judged candidates that applied it."
PASSED = "The share of them that passed, with its 95 % interval (Wilson)."
EDITS = "Edits that brought it in or took it out, with both sides measured."
GAIN = "How many times as fast a kernel is with it: geometric mean over the edits, 95 % interval."
VALUE = "How much better a step goes when it is shown, and the standard deviation of that."


def number(title: str, hint: str = "") -> Column:
    """A column of numbers."""
    return Column(title=title, is_number=True, hint=hint)


def choice(title: str) -> Column:
    """A column whose few values the page offers as a filter."""
    return Column(title=title, is_choice=True)


def techniques(uses: Sequence[TechniqueUse]) -> Table:
    """What each has been worth, over everything; most tried first."""
    heads = (Column(title="technique"), *_counts())
    rows = (
        row(use.technique, *use_cells(use), id=f"technique-{n}")
        for n, use in enumerate(uses, 1)
        if is_known(use)
    )
    return table(heads, rows, is_searched=True)


def divided(uses: Sequence[TechniqueUse]) -> Table:
    """The same by family of tasks, bottleneck and backend."""
    divisions = (choice(name) for name in ("family", "bottleneck", "backend"))
    heads = (Column(title="technique"), *divisions, *_counts())
    rows = (
        row(use.technique, use.family, use.bottleneck, use.backend, *use_cells(use))
        for use in [use for use in uses if is_known(use)][:MOST]
    )
    return table(heads, rows, is_searched=True)


def is_known(use: TechniqueUse) -> bool:
    """Whether there is anything to tell of a technique; notes alone tell nothing."""
    return bool(use.attempts or use.edits or use.valued)


def use_cells(use: TechniqueUse) -> tuple[Cell, ...]:
    """What one technique has been worth."""
    values = (Value(q=use.q[stage]) if stage in use.q else None for stage in Stage)
    return (
        Cell(text=str(use.attempts), value=use.attempts),
        _share(use),
        gain(use),
        Cell(text=str(use.edits), value=use.edits),
        *(value_cell(value) for value in values),
    )


def gain(use: TechniqueUse) -> Cell:
    """The gain with its interval; a single edit has none."""
    if use.gain is None:
        return Cell(text="")
    told = with_interval(use.gain) if use.edits > 1 else times(use.gain.value)
    is_clear = use.edits > 1 and not use.gain.low <= 1 <= use.gain.high
    mark = ("passed" if use.gain.value > 1 else "failed") if is_clear else ""
    return Cell(text=told, value=use.gain.value, mark=mark)


def value_cell(value: Value | None) -> Cell:
    """A value with its standard deviation; empty before the first reward."""
    if value is None:
        return Cell(text="")
    spread = "" if value.spread is None else f" ± {value.spread:.2f}"
    return Cell(text=f"{value.q:+.2f}{spread}", value=value.q)


def whole(text: str, mark: str = "", hint: str = "") -> Cell:
    """A cell of few letters, which stay together."""
    return Cell(text=text, mark=f"{mark} whole", hint=hint)


def wide(text: str) -> Cell:
    """A cell of a sentence."""
    return Cell(text=text, mark="wide")


def experiences(known: Iterable[Known], places: Places) -> Table:
    """One line for each that is shown."""
    heads = (
        Column(title="experience"),
        *(number(f"value to {stage}", VALUE) for stage in Stage),
        number("rewards"),
        number("speed"),
        choice("kind"),
        choice("status"),
        choice("family"),
        choice("backend"),
        Column(title="entered"),
    )
    return table(heads, (_line(one, places) for one in known), is_searched=True, is_long=True)


def groups(stats: Stats) -> Table:
    """How many there are of each backend, kind and status."""
    rows = (row(g.backend, g.kind, g.status, float(g.count)) for g in stats.groups)
    return table(("backend", "kind", "status", number("experiences")), rows)


def stages(stats: Stats) -> Table:
    """What steps were shown and earned."""
    counts = ["steps", "shown in all", "rewards", "mean reward", "with a value"]
    counts += ["by three rewards or more", "lowest", "median", "highest"]
    rows = (
        row(
            stage.stage.value,
            *(float(n) for n in (stage.retrievals, stage.shown, stage.rewards)),
            signed(stage.mean_reward),
            *(float(n) for n in (stage.values, stage.visited_thrice)),
            *(signed(q) for q in (stage.lowest, stage.median, stage.highest)),
        )
        for stage in stats.stages
    )
    return table((Column(title="stage"), *map(number, counts)), rows)


def signed(value: float | None) -> Cell:
    """A number with its sign, or nothing."""
    return Cell(text="") if value is None else Cell(text=f"{value:+.2f}", value=value)


def _counts() -> tuple[Column, ...]:
    values = (number(f"value to {stage}", "Mean over its experiences.") for stage in Stage)
    counts = (number("tried", TRIED), number("passed", PASSED), number("gain", GAIN))
    return (*counts, number("edits", EDITS), *values)


def _share(use: TechniqueUse) -> Cell:
    share = use.share_interval
    if share is None:
        return Cell(text="")
    told = f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"
    return Cell(text=told, value=share.value)


def _line(one: Known, places: Places) -> Row:
    entry, experience = one.entry, one.experience
    speed = experience.measurement.speedup
    values = [one.evidence.values[stage] for stage in Stage]
    return row(
        places.cell(experience.id, experience.summary + (" (pinned)" if entry.is_pinned else "")),
        *(value_cell(value if value.visits else None) for value in values),
        float(sum(value.visits for value in values)),
        Cell(text=words.speed(experience), value=speed.value if speed else None),
        whole(experience.kind),
        whole(entry.status.value, STATUS_MARKS[entry.status], entry.reason),
        whole(experience.family),
        whole(experience.backend),
        whole(moment(one.added_at)[: len("2026-11-01")], hint=moment(one.added_at)),
    )
