"""Owns the tables of the journal; events are only ever appended.

Every event has a number from one clock, so that all tables share one order in which values are
folded. `embeddings`, `traits` and `snapshots` are derived and may be written anew; all else is
truth.
"""

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA = "3"
"""Version of these tables, written into `meta`."""

OLDER_SCHEMAS = frozenset({"1", "2"})
"""Versions that lack some of the tables and are otherwise the same; opening adds what is missing.
In version 1 every text stood in the body of its experience, where it is still read. Version 2 had
neither `traits`, which are computed from the bodies, nor `decisions`."""

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

clock = Table(
    "clock",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("value", Integer, nullable=False),
)
"""One row: the number of the last event. `BEGIN IMMEDIATE` orders the writers."""

graphs = Table(
    "graphs",
    metadata,
    Column("fingerprint", String(128), primary_key=True),
    Column("body", Text, nullable=False),
)
"""Operator graphs, kept so that another embedder can embed every situation again."""


texts = Table(
    "texts",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
"""Long texts by their hash, deflated: a kernel and the edit that made it share their source."""


def _event(name: str, *columns: Column[Any] | UniqueConstraint | Index) -> Table:
    return Table(
        name,
        metadata,
        Column("seq", Integer, primary_key=True, autoincrement=False),
        Column("at", Float, nullable=False),
        *columns,
    )


def _text(name: str, unique: bool = False) -> Column[str]:
    return Column(name, Text, nullable=False, unique=unique)


experiences = _event(
    "experiences",
    _text("id", unique=True),
    _text("step"),
    _text("slot"),
    _text("run"),
    _text("task"),
    _text("candidate"),
    _text("kind"),
    _text("stage"),
    _text("backend"),
    _text("family"),
    _text("fingerprint"),
    _text("content"),
    _text("body"),
    UniqueConstraint("step", "slot"),
    Index("experiences_of_run", "run", "candidate"),
)

embeddings = Table(
    "embeddings",
    metadata,
    Column("experience", Text, primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

traits = Table(
    "traits",
    metadata,
    Column("experience", Text, primary_key=True),
    _text("outcome"),
    _text("techniques"),
    _text("bottleneck"),
    _text("device"),
    _text("tools"),
    _text("proposer"),
    _text("parent"),
    Column("gain", Float),
    _text("shape"),
    Column("sketch", LargeBinary, nullable=False),
)
"""What of each experience is needed without reading its body: by what it is grouped, where it was
measured, what it was made from and by how much faster (ln), and how its source is recognised
(hash of its canonical form, sketch)."""

statuses = _event(
    "statuses",
    _text("experience"),
    _text("status"),
    _text("reason"),
    _text("step"),
    Column("measurement", Text),
    UniqueConstraint("experience", "step"),
)

revisions = _event(
    "revisions",
    _text("experience"),
    _text("body"),
    _text("reason"),
    _text("step"),
    UniqueConstraint("experience", "step"),
)
"""What a person has changed of an experience, as JSON of the changed fields."""

retrievals = _event(
    "retrievals",
    _text("step", unique=True),
    _text("run"),
    _text("task"),
    _text("stage"),
    _text("backend"),
    _text("policy"),
    _text("parameters"),
    Column("bank_version", Integer, nullable=False),
    Column("seed", Integer, nullable=False),
    _text("pool"),
    _text("chosen"),
)

queries = Table(
    "queries",
    metadata,
    Column("step", Text, primary_key=True),
    Column("body", Text, nullable=False),
)
"""What each retrieval was asked, JSON: it belongs to the event of its step."""

decisions = Table(
    "decisions",
    metadata,
    Column("step", Text, primary_key=True),
    Column("body", Text, nullable=False),
)
"""By which arm each retrieval was made and what was held back, JSON: it belongs to the event of its
step. Steps of older versions have none: they had one arm."""

rewards = _event(
    "rewards",
    _text("step", unique=True),
    _text("stage"),
    Column("value", Float, nullable=False),
    _text("shown"),
    _text("body"),
)

starts = _event(
    "starts",
    _text("run"),
    _text("candidate"),
    _text("step"),
    Column("median_ms", Float, nullable=False),
    _text("niche"),
    Column("gain", Float, nullable=False),
    UniqueConstraint("run", "candidate"),
)

choices = _event(
    "choices",
    _text("step", unique=True),
    _text("run"),
    Column("seed", Integer, nullable=False),
    _text("pool"),
    _text("chosen"),
)

start_rewards = _event(
    "start_rewards",
    _text("run"),
    _text("step"),
    _text("candidate"),
    Column("feasible", Boolean, nullable=False),
    Column("gain", Float),
    Column("advance", Float),
    UniqueConstraint("step", "candidate"),
)
"""`advance`, by how much the run's best moved, is missing in what older versions wrote."""

ADDED_COLUMNS = (start_rewards.c.advance,)
"""Columns that older versions lack; nothing that they wrote is changed."""

snapshots = Table(
    "snapshots",
    metadata,
    Column("experience", Text, primary_key=True),
    Column("stage", String(16), primary_key=True),
    Column("q", Float, nullable=False),
    Column("visits", Integer, nullable=False),
)
"""The values as last folded, so that opening a memory does not fold from the first event."""
