"""Owns the tables of what has become different in a memory since a moment."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from evokernel.memory.changes import Changes
from evokernel.report.html.table import Column, Table, row, table
from evokernel.report.knowledge_card import told
from evokernel.report.knowledge_tables import choice, gain, number, value_cell, whole, wide
from evokernel.report.places import STATUS_MARKS, Places, moment
from evokernel.wording import counted

MOST = 100
"""Lines of each table."""


class Group(NamedTuple):
    """One kind of change."""

    title: str
    note: str
    """What was left out, or nothing."""
    table: Table


def groups(changes: Changes, places: Places, summaries: Mapping[str, str]) -> Iterator[Group]:
    """What there is to tell, most telling first."""
    kinds = (
        ("Techniques that were tried more, or less", len(changes.techniques), _techniques(changes)),
        ("Experiences that are new", len(changes.added), _added(changes, places, summaries)),
        ("Experiences that got another status", len(changes.moved), _moved(changes, places)),
        ("Values that moved most", len(changes.values), _values(changes, places, summaries)),
        ("What people changed", len(changes.revised), _revised(changes, places)),
    )
    for title, count, rows in kinds:
        if count:
            note = f"{MOST} of {count:,} are listed." if count > MOST else ""
            yield Group(f"{title} ({count:,})", note, rows)


def in_words(changes: Changes) -> str:
    """How much has happened, in one sentence."""
    parts = (
        (len(changes.added), "new experience", ""),
        (len(changes.moved), "change", " of status"),
        (changes.rewards, "reward", ""),
        (len(changes.values), "value", " that moved"),
        (len(changes.revised), "change", " by people"),
    )
    found = [f"{counted(number, noun)}{rest}" for number, noun, rest in parts if number]
    return ", ".join(found) or "nothing"


def _techniques(changes: Changes) -> Table:
    numbers = ("tried then", "now", "passed then", "now", "gain then", "now")
    heads = (Column(title="technique"), *map(number, numbers))
    rows = (
        row(
            change.now.technique,
            *(float(use.attempts) for use in (change.before, change.now)),
            *(float(use.feasible) for use in (change.before, change.now)),
            *(gain(use) for use in (change.before, change.now)),
        )
        for change in changes.techniques[:MOST]
    )
    return table(heads, rows, is_searched=True)


def _added(changes: Changes, places: Places, summaries: Mapping[str, str]) -> Table:
    rows = (
        row(places.cell(id), wide(summaries.get(id, ""))) for id in changes.added[: -MOST - 1 : -1]
    )
    return table(("experience", "what"), rows, is_searched=True, is_long=True)


def _moved(changes: Changes, places: Places) -> Table:
    rows = (
        row(
            places.cell(move.experience),
            whole(moment(move.at)),
            whole(move.before.value, STATUS_MARKS[move.before]),
            whole(move.after.value, STATUS_MARKS[move.after]),
            wide(move.reason),
        )
        for move in changes.moved[: -MOST - 1 : -1]
    )
    heads = ("experience", "when", choice("from"), choice("to"), "why")
    return table(heads, rows, is_searched=True, is_long=True)


def _values(changes: Changes, places: Places, summaries: Mapping[str, str]) -> Table:
    rows = (
        row(
            places.cell(change.experience),
            whole(change.stage.value),
            value_cell(change.before if change.before.visits else None),
            value_cell(change.after),
            float(change.after.visits - change.before.visits),
            wide(summaries.get(change.experience, "")),
        )
        for change in changes.values[:MOST]
    )
    heads = ("experience", choice("stage"), number("then"), number("now"), number("rewards since"))
    return table((*heads, "what"), rows, is_searched=True, is_long=True)


def _revised(changes: Changes, places: Places) -> Table:
    rows = (
        row(
            places.cell(revised.experience),
            whole(moment(revised.at)),
            wide(told(revised.change.model_dump(exclude_none=True))),
            revised.reason,
        )
        for revised in changes.revised[: -MOST - 1 : -1]
    )
    return table(("experience", "when", "to", "why"), rows, is_searched=True, is_long=True)
