"""Owns the page of a run: one HTML file that says all there is to say of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evokernel.answers import BASELINES, answers, memory_in_words
from evokernel.evaluation import Evaluation
from evokernel.record.outcome import FASTER, SLOWER
from evokernel.record.spending import Spending, dollars, spending
from evokernel.report import run_tables, words
from evokernel.report.card import answers_table, cards
from evokernel.report.gains import TechniqueGains, gains_figure, technique_gains
from evokernel.report.html import write_page
from evokernel.report.html.figure import Mark, inline
from evokernel.report.html.table import Table, row, table
from evokernel.report.lineage import lineage_figure
from evokernel.report.marks import marks, place
from evokernel.report.population import tables as population_tables
from evokernel.report.roofline import Roofs, roofline_figure, roofs
from evokernel.report.speed import speed_figure
from evokernel.report.story import Story
from evokernel.report.weak import weaknesses
from evokernel.wording import call_time, counted, duration, times, with_interval

if TYPE_CHECKING:
    from markupsafe import Markup


class Tile(NamedTuple):
    """One large figure."""

    figure: str
    words: str
    mark: str = ""


def write_run_page(story: Story, file: Path) -> None:
    """Write it.

    Raises:
        RecordError: It cannot be written.
    """
    gains = technique_gains(story)
    told = story.outcome.best or (story.outcome.attempts or (None,))[-1]
    write_page(
        file,
        "run.html",
        title=story.task.title.rstrip("."),
        subtitle=words.headline(story),
        story=story,
        warnings=_warnings(story),
        tiles=_tiles(story),
        introduction=words.introduction(story),
        claim=run_tables.claim(story),
        measured=tuple(_measured(told.evaluation)) if told else (),
        told=told,
        answers=answers_table(answers(told.evaluation)) if told else None,
        plots=_plots(story, gains),
        history=run_tables.history(story),
        attempts=run_tables.attempts(story),
        techniques=run_tables.techniques(gains),
        population=_population(story),
        memory=run_tables.memory(story),
        memory_effect=run_tables.memory_effect(story),
        costs=tuple(_costs(story)),
        failures=run_tables.failures(story),
        cards=tuple(cards(story)),
        weaknesses=weaknesses(story),
        commands=words.commands(story),
        again=words.AGAIN,
        environment=table(("what", "value"), _rows(words.environment(story)), is_long=True),
    )


def _warnings(story: Story) -> list[str]:
    found = [f"Its best kernel is {story.standing}."] if story.is_fallen else []
    label = story.record.header.label
    found += [f"{label[:1].upper()}{label[1:]}."] if label else []
    going = words.ending(story)
    return [*found, *([] if story.ending else [f"The run has not ended: {going}."])]


def _tiles(story: Story) -> tuple[Tile, ...]:
    best = story.outcome.best
    tiles = list(_ratio_tiles(story))
    if best is not None and best.evaluation.timing is not None:
        timing = best.evaluation.timing
        spread = f"a call of the best kernel, attempt {best.number}"
        tiles.append(Tile(call_time(timing.median_ms, timing.wall_ms), spread))
    if (share := words.roofline_share(story)) is not None:
        bound = words.roofline(story).rpartition("; ")[2]
        tiles.append(Tile(f"{share:.0%}", f"of what this machine can do; {bound}"))
    right = sum(told.status.is_feasible for told in story.rows)
    spent = f"attempts were right, in {duration(story.outcome.seconds)}"
    return (*tiles, Tile(f"{right} of {len(story.rows)}", spent))


def _ratio_tiles(story: Story) -> Iterator[Tile]:
    for name, known in BASELINES.items():
        ratio = story.outcome.ratio(name)
        if ratio is None:
            continue
        look = story.outcome.second_look(name)
        again = look is not None and look.ratio is not None
        held = f"in {look.processes} fresh processes" if look and again else "in one process"
        between = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}, {held}"
        mark = {FASTER: "best", SLOWER: "failed"}.get(story.outcome.verdict(ratio), "")
        yield Tile(times(ratio.value), f"as fast as {known}; {between}", mark)


def _measured(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """How the claim was measured."""
    timing, right, contract = evaluation.timing, evaluation.correctness, evaluation.contract
    if timing is not None:
        yield "time", f"{call_time(timing.median_ms, timing.wall_ms)} a call, median"
        yield (
            "repetitions",
            f"{timing.samples} clean, {timing.dropped} dropped as disturbed; in alternation with "
            f"each opponent, {counted(timing.threads, 'thread')}, {timing.cache_state} caches",
        )
        yield "spread", f"{timing.spread:.1%} between the quartiles, of the median"
        if said := memory_in_words(timing):
            yield "memory", said
    if right is not None:
        yield "tolerance", right.tolerance
    if contract is not None:
        yield "contract", contract.policy
    yield "judged by", f"{evaluation.harness}, measurement {evaluation.measurement}"


class Plots(NamedTuple):
    """The plots, each where there is something to draw."""

    speed: "Markup | None" = None
    lineage: "Markup | None" = None
    roofline: "Markup | None" = None
    gains: "Markup | None" = None


def _plots(story: Story, gains: tuple[TechniqueGains, ...]) -> Plots:
    if not story.rows:
        return Plots()
    pointed, name = marks(story), story.task.name
    found, is_timed = roofs(story), any(told.median_ms for told in story.rows)
    return Plots(
        inline(
            speed_figure(story), "speed", f"speed of each attempt of {name} over eager", pointed
        ),
        inline(
            lineage_figure(story),
            "lineage",
            f"which attempt of {name} was made from which",
            pointed,
        ),
        _roofline(story, found, pointed) if found and is_timed else None,
        _gains(story, gains) if any(each.gains for each in gains) else None,
    )


def _roofline(story: Story, found: Roofs, pointed: dict[str, Mark]) -> "Markup":
    said = f"the kernels of {story.task.name} below the rates of memory and arithmetic"
    return inline(roofline_figure(story, found), "roofline", said, pointed)


def _gains(story: Story, gains: tuple[TechniqueGains, ...]) -> "Markup":
    pointed = {}
    for each in gains:
        for gain in each.gains:
            ratio = with_interval(gain.measured) if gain.measured else f"about {times(gain.ratio)}"
            said = f"{each.name}\nattempt {gain.attempt} over attempt {gain.parent}: {ratio}"
            pointed[f"gain-{each.name}-{gain.attempt}"] = Mark(said, place(gain.attempt))
    figure = gains_figure(story, gains)
    return inline(figure, "gains", f"what each technique gained for {story.task.name}", pointed)


def _population(story: Story) -> list[tuple[str, Table]]:
    return [
        (
            each.title,
            table(each.head, (row(*(cell.strip("`") for cell in line)) for line in each.rows)),
        )
        for each in population_tables(story)
    ]


def _costs(story: Story) -> Iterator[tuple[str, str]]:
    yield "time", f"{duration(story.outcome.seconds)} of wall time, all sessions together"
    yield "of it, judging", _phases(story)
    cost = spending(story.record)
    yield "model", _model_cost(cost) if cost.calls else "no model was asked"
    budget = story.record.config.budget
    given = {"minutes": budget.minutes, "tokens": budget.tokens, "US dollars": budget.usd}
    limits = [f"{value:g} {name}" for name, value in given.items() if value is not None]
    yield "budget", ", ".join([counted(budget.attempts, "attempt"), *limits])


def _phases(story: Story) -> str:
    total: dict[str, float] = {}
    for attempt in story.outcome.attempts:
        for name, seconds in attempt.evaluation.seconds.items():
            total[name] = total.get(name, 0.0) + seconds
    shown = {name.replace("_", " "): seconds for name, seconds in total.items() if seconds >= 1}
    return (
        ", ".join(f"{name} {duration(seconds)}" for name, seconds in shown.items()) or "under 1 s"
    )


def _model_cost(cost: Spending) -> str:
    dearest = f"; the dearest reply {dollars(cost.dearest_usd)}" if cost.dearest_usd else ""
    return f"{cost.in_words()}{dearest}"


def _rows(facts: dict[str, str]) -> Iterator[Any]:
    return (row(name, text) for name, text in facts.items())
