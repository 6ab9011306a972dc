"""Owns the statements that every step runs: built once, for building costs more than running."""

from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Insert,
    Select,
    Table,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.sql.functions import count

from evokernel.memory import tables
from evokernel.memory.tables import (
    choices,
    clock,
    decisions,
    embeddings,
    experiences,
    graphs,
    meta,
    queries,
    retrievals,
    revisions,
    rewards,
    snapshots,
    start_rewards,
    starts,
    statuses,
    texts,
    traits,
)

INSERT: dict[Table, Insert] = {table: insert(table) for table in tables.metadata.tables.values()}
"""One row into each table."""


def _known(table: Table, *names: str) -> Select[tuple[int]]:
    return select(table.c.seq).where(*(table.c[name] == bindparam(name) for name in names))


KNOWN: dict[Table, Select[tuple[int]]] = {
    statuses: _known(statuses, "experience", "step"),
    revisions: _known(revisions, "experience", "step"),
    retrievals: _known(retrievals, "step"),
    rewards: _known(rewards, "step"),
    choices: _known(choices, "step"),
    starts: _known(starts, "run", "candidate"),
    start_rewards: _known(start_rewards, "step", "candidate"),
}
"""Whether an event was written before, by the columns of its unique constraint."""


def _after(table: Table, *columns: ColumnElement[object]) -> Select[tuple[object, ...]]:
    found: Select[tuple[object, ...]] = select(*(columns or table.c))
    return found.where(table.c.seq > bindparam("seq")).order_by(table.c.seq)


def _of(table: Table, name: str) -> Select[tuple[object, ...]]:
    found: Select[tuple[object, ...]] = select(*table.c)
    return found.where(table.c[name] == bindparam(name))


CLOCK = select(clock.c.value)
SET_CLOCK = update(clock).values(value=bindparam("last"))

NOTE = select(meta.c.value).where(meta.c.name == bindparam("name"))
DROP_NOTE = delete(meta).where(meta.c.name == bindparam("name"))
SET_NOTE = update(meta).where(meta.c.name == bindparam("name")).values(value=bindparam("text"))
GRAPH = select(graphs.c.body).where(graphs.c.fingerprint == bindparam("fingerprint"))

GRAPH_KNOWN = select(graphs.c.fingerprint).where(graphs.c.fingerprint == bindparam("fingerprint"))
DROP_VECTORS = delete(embeddings)
DROP_VECTOR = delete(embeddings).where(embeddings.c.experience == bindparam("id"))
SNAPSHOT = select(*snapshots.c)
DROP_SNAPSHOT = delete(snapshots)

_OF_EXPERIENCE = experiences.c.id == traits.c.experience
NEW_EXPERIENCES = _after(
    experiences,
    *(column for column in experiences.c if column.name not in {"body", "at"}),
    *(column for column in traits.c if column.name not in {"experience", "sketch"}),
).select_from(experiences.join(traits, _OF_EXPERIENCE))
"""Without their bodies: most are never shown."""
EXPERIENCES = select(count()).select_from(experiences)
TRAITS = select(count()).select_from(traits)
WITHOUT_TRAITS = (
    select(experiences.c.id)
    .select_from(experiences.outerjoin(traits, _OF_EXPERIENCE))
    .where(traits.c.experience.is_(None))
    .order_by(experiences.c.seq)
)
NEW_STATUSES = _after(statuses)
NEW_REVISIONS = _after(revisions)
NEW_REWARDS = _after(
    rewards, *rewards.c, retrievals.c.task, retrievals.c.chosen, queries.c.body.label("asked")
).select_from(
    rewards.outerjoin(retrievals, retrievals.c.step == rewards.c.step).outerjoin(
        queries, queries.c.step == rewards.c.step
    )
)
"""With what was asked and shown in their steps."""

TEXT_KNOWN = select(texts.c.id).where(texts.c.id == bindparam("id"))

SAME_EXPERIENCE = select(experiences.c.id).where(
    ((experiences.c.step == bindparam("step")) & (experiences.c.slot == bindparam("slot")))
    | (experiences.c.id == bindparam("id"))
)


@cache
def of_ids(table: Table, key: str, columns: tuple[str, ...], count: int) -> Select[Any]:
    """Columns of the rows whose `key` is one of the values `id0`, `id1` ... `id<count - 1>`."""
    ids: list[BindParameter[Any]] = [bindparam(f"id{place}") for place in range(count)]
    return select(*(table.c[name] for name in columns)).where(table.c[key].in_(ids))


REVISIONS = _of(revisions, "experience").order_by(revisions.c.seq)
HISTORY = _of(statuses, "experience").order_by(statuses.c.seq)

RETRIEVAL = _of(retrievals, "step")
ASKED = select(queries.c.body).where(queries.c.step == bindparam("step"))
DECIDED = select(decisions.c.body).where(decisions.c.step == bindparam("step"))
RETRIEVAL_HEADS = select(
    retrievals.c.seq,
    retrievals.c.at,
    retrievals.c.step,
    retrievals.c.task,
    retrievals.c.stage,
    retrievals.c.policy,
    retrievals.c.chosen,
).order_by(retrievals.c.seq)
"""Without the pools, which make most of the journal."""
EARNED = select(rewards.c.step, rewards.c.at, rewards.c.value).order_by(rewards.c.seq)
"""Without what they were computed from, which takes longer to read."""
SHOWN = select(retrievals.c.chosen).where(retrievals.c.step == bindparam("step"))
CHOICE = _of(choices, "step")
NEW_STARTS = _after(starts).where(starts.c.run == bindparam("run"))
NEW_START_REWARDS = _after(start_rewards).where(start_rewards.c.run == bindparam("run"))
