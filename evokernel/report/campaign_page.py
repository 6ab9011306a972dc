"""Owns the page of a campaign: the table that everybody reads, and a summary of every task."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evokernel.answers import BASELINES
from evokernel.campaign.folder import CampaignFolder
from evokernel.campaign.table import Against, Excluded, Row
from evokernel.campaign.table import Table as Found
from evokernel.campaign.table import table as found_in
from evokernel.evaluation import Interval
from evokernel.record import RunRecord
from evokernel.report import FILE, Report, run_tables, words
from evokernel.report.campaign_plot import speedups
from evokernel.report.html import write_page
from evokernel.report.html.code import highlighted
from evokernel.report.html.figure import Mark, inline
from evokernel.report.html.table import Cell, Column, Table, row, table
from evokernel.report.marks import marks
from evokernel.report.run_page import Tile
from evokernel.report.speed import speed_figure
from evokernel.report.story import Story
from evokernel.report.weak import weaknesses
from evokernel.wording import counted, duration, milliseconds, times, with_interval

if TYPE_CHECKING:
    from markupsafe import Markup

ROOM = 3_000_000
"""Letters of kernels that are highlighted; the others are plain."""


class Summary(NamedTuple):
    """What is embedded of one run."""

    name: str
    id: str
    headline: str
    mark: str
    flags: tuple[str, ...]
    introduction: str
    claim: Table
    history: Table
    plot: "Markup | None"
    weaknesses: list[str]
    source: "Markup | str | None"
    report: str
    """Its own page, relative to the campaign's; empty where it was not written."""
    command: str


def write_campaign_page(folder: CampaignFolder, file: Path) -> Report:
    """Write it.

    Raises:
        RecordError: A run is damaged, or the page cannot be written.
    """
    found = found_in(folder)
    names = {each.task: _id(number, each.task) for number, each in enumerate(found.rows)}
    write_page(
        file,
        "campaign.html",
        title=found.title,
        subtitle=_headline(found),
        found=found,
        tiles=tuple(_tiles(found)),
        against=_against(found),
        tasks=_tasks(found, names),
        plot=speedups(found.rows, names),
        summaries=tuple(_summaries(found, names, file.parent)),
        excluded=_excluded(found.excluded),
        duration=duration(found.seconds),
    )
    states = {folder.progress(entry).state for entry in folder.campaign.entries}
    attempts = sum(each.attempts for each in found.rows)
    return Report(page=file, attempts=attempts, is_finished=states <= {"ended", "failed"})


def _id(number: int, task: str) -> str:
    return f"task-{number}-{re.sub('[^a-z0-9]+', '-', task.lower()).strip('-')}"


def _headline(found: Found) -> str:
    share = "" if found.share_right is None else f" ({found.share_right:.0%})"
    return f"{found.right} of {counted(found.tasks, 'task')} have a right kernel{share}"


def _tiles(found: Found) -> Iterator[Tile]:
    for name, against in found.against.items():
        if against.geometric_mean is not None:
            said = (
                f"as fast as {BASELINES[name]}, geometric mean of {against.measured} right kernels"
            )
            yield Tile(times(against.geometric_mean), said, "best")
    for name, against in found.against.items():
        if against.measured:
            said = f"tasks measurably faster than {BASELINES[name]}"
            yield Tile(f"{against.faster} of {found.tasks}", said)
    attempts = sum(each.attempts for each in found.rows)
    yield Tile(duration(found.seconds), f"for {counted(attempts, 'attempt')}")


def _against(found: Found) -> Table:
    lines = next(iter(found.against.values())).fast
    shares = [
        Column(title=f"fast_{line}", is_number=True, hint=f"right, and more than {line}x as fast")
        for line in lines
    ]
    others = ("measurably faster", "geometric mean", "median", "right kernels timed")
    columns = [Column(title="against"), *shares]
    columns += [Column(title=title, is_number=True) for title in others]
    return table(columns, [row(*_line(found, name, each)) for name, each in found.against.items()])


def _line(found: Found, name: str, against: Against) -> tuple[Cell | str, ...]:
    means = (against.geometric_mean, against.median)
    return (
        BASELINES[name],
        *(f"{share:.0%}" if against.measured else "" for share in against.fast.values()),
        f"{against.faster} of {found.tasks}" if against.measured else "",
        *("" if mean is None else times(mean) for mean in means),
        f"{against.measured} of {found.right}",
    )


def _tasks(found: Found, names: dict[str, str]) -> Table:
    columns = (
        "task",
        Column(title="precision", is_choice=True),
        Column(title="result", is_choice=True),
        Column(title="attempts", is_number=True),
        Column(title="time", is_number=True),
        Column(title="over eager", is_number=True, hint="times as fast, 95 % interval"),
        Column(title="over torch.compile", is_number=True, hint="times as fast, 95 % interval"),
        Column(title="to know", hint="what to know before believing it"),
    )
    rows = [
        row(
            Cell(text=each.task, link=f"#{names[each.task]}"),
            each.precision,
            Cell(text=each.status, mark=_mark(each)),
            Cell(text=str(each.attempts), value=each.attempts),
            _time(each.median_ms),
            *(_ratio(each.speedups.get(name)) for name in BASELINES),
            "; ".join(each.flags),
        )
        for each in found.rows
    ]
    return table(columns, rows, is_searched=True, is_long=True)


def _mark(each: Row) -> str:
    return {"right": "passed", "going on": "spoiled"}.get(each.status, "failed")


def _color(each: Row) -> str:
    """Of a headline: what is right but not faster has none."""
    is_right = each.status == "right"
    return ("best" if each.is_faster.get("eager") else "") if is_right else _mark(each)


def _time(median_ms: float | None) -> Cell:
    return Cell(text="" if median_ms is None else milliseconds(median_ms), value=median_ms)


def _ratio(ratio: Interval | None) -> Cell:
    return Cell(text="") if ratio is None else Cell(text=with_interval(ratio), value=ratio.value)


def _excluded(excluded: tuple[Excluded, ...]) -> Table:
    rows = (row(each.task, each.reason) for each in excluded)
    return table(("task", "why it does not count"), rows, is_long=True)


def _summaries(found: Found, names: dict[str, str], folder: Path) -> Iterator[Summary]:
    room = ROOM
    for each in found.rows:
        if each.run is None:
            continue
        story = Story(RunRecord.open(each.run))
        best = story.outcome.best
        source = best.proposal.candidate.source if best else None
        room -= len(source or "")
        name = names[each.task]
        yield Summary(
            name=each.task,
            id=name,
            headline=words.headline(story),
            mark=_color(each),
            flags=each.flags,
            introduction=words.introduction(story),
            claim=run_tables.claim(story),
            history=_unlinked(run_tables.history(story)),
            plot=_speed(story, name),
            weaknesses=weaknesses(story),
            source=highlighted(source, name) if source and room > 0 else source,
            report=_report(each.run, folder),
            command=f"evokernel report {each.run}",
        )


def _speed(story: Story, name: str) -> "Markup | None":
    if not any(told.ratio for told in story.rows):
        return None
    pointed = {gid: Mark(mark.said) for gid, mark in marks(story).items()}
    return inline(speed_figure(story), f"speed-{name}", f"speed of {story.task.name}", pointed)


def _unlinked(given: Table) -> Table:
    """Without links to attempts, which stand in the run's own page."""
    cleared = {"link": ""}
    rows = (
        line.model_copy(update={"cells": tuple(c.model_copy(update=cleared) for c in line.cells)})
        for line in given.rows
    )
    return given.model_copy(update={"rows": tuple(rows)})


def _report(run: Path, folder: Path) -> str:
    """Where the run's own page lies, as seen from the campaign's."""
    file = run / FILE
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        return ""
    return file.resolve().relative_to(folder.resolve()).as_posix()
