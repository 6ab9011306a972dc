"""Owns the statements that every step runs: built once, for building costs more than running."""

from sqlalchemy import ColumnElement, Insert, Select, Table, bindparam, insert, select, update

from evokernel.memory import tables
from evokernel.memory.tables import (
    choices,
    clock,
    embeddings,
    experiences,
    graphs,
    meta,
    retrievals,
    rewards,
    start_rewards,
    starts,
    statuses,
)

INSERT: dict[Table, Insert] = {table: insert(table) for table in tables.metadata.tables.values()}
"""One row into each table."""


def _known(table: Table, *names: str) -> Select[tuple[int]]:
    return select(table.c.seq).where(*(table.c[name] == bindparam(name) for name in names))


KNOWN: dict[Table, Select[tuple[int]]] = {
    statuses: _known(statuses, "experience", "step"),
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
LOCKED_CLOCK = CLOCK.with_for_update()
"""A row lock that keeps event numbers in commit order where BEGIN locks nothing."""
SET_CLOCK = update(clock).values(value=bindparam("last"))

NOTE = select(meta.c.value).where(meta.c.name == bindparam("name"))
GRAPH = select(graphs.c.body).where(graphs.c.fingerprint == bindparam("fingerprint"))

NEW_EXPERIENCES = _after(
    experiences, *(column for column in experiences.c if column.name not in {"body", "at"})
)
"""Without their bodies: most are never shown."""
NEW_STATUSES = _after(statuses)
NEW_REWARDS = _after(rewards)

SAME_EXPERIENCE = select(experiences.c.id).where(
    ((experiences.c.step == bindparam("step")) & (experiences.c.slot == bindparam("slot")))
    | (experiences.c.id == bindparam("id"))
)
BODIES = select(experiences.c.id, experiences.c.body).where(
    experiences.c.id.in_(bindparam("ids", expanding=True))
)
VECTORS = select(embeddings).where(embeddings.c.experience.in_(bindparam("ids", expanding=True)))
HISTORY = _of(statuses, "experience").order_by(statuses.c.seq)

RETRIEVAL = _of(retrievals, "step")
RETRIEVAL_HEADS = select(
    retrievals.c.step,
    retrievals.c.task,
    retrievals.c.stage,
    retrievals.c.policy,
    retrievals.c.chosen,
).order_by(retrievals.c.seq)
"""Without the pools, which make most of the journal."""
SHOWN = select(retrievals.c.chosen).where(retrievals.c.step == bindparam("step"))
CHOICE = _of(choices, "step")
STARTS = _of(starts, "run").order_by(starts.c.seq)
START_REWARDS = _of(start_rewards, "run").order_by(start_rewards.c.seq)
