"""Owns how a bank's experiences and events are read from a journal, and written into one."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Table, bindparam, select

from evokernel.memory import statements, tables
from evokernel.memory.events import Addition
from evokernel.memory.exchange import EVENTS, Row
from evokernel.memory.journal import Journal
from evokernel.memory.rows import write_experience

STEPS = {name: tables.metadata.tables[name] for name in EVENTS if name in tables.metadata.tables}
"""Tables whose rows go along, by name."""
PLACES = select(tables.experiences.c.id, tables.experiences.c.slot)
GRAPHS = select(tables.graphs.c.fingerprint, tables.graphs.c.body)


def places(journal: Journal) -> dict[str, str]:
    """The place of every experience among what its step left behind, by id."""
    with journal.database.read() as reader:
        return {row.id: row.slot for row in reader.rows(PLACES, {})}


def graphs(journal: Journal) -> dict[str, str]:
    """JSON of every operator graph, by fingerprint."""
    with journal.database.read() as reader:
        return {row.fingerprint: row.body for row in reader.rows(GRAPHS, {})}


def events(journal: Journal) -> Iterator[tuple[str, Row]]:
    """The rows of all steps by table, without their numbers; oldest first."""
    with journal.database.read() as reader:
        for name, table in STEPS.items():
            order = table.c.seq if "seq" in table.c else table.c.step
            for row in reader.rows(select(*table.c).order_by(order), {}):
                yield name, {key: value for key, value in row._asdict().items() if key != "seq"}


def take_over(
    journal: Journal,
    graphs: dict[str, str],
    additions: Sequence[tuple[Addition, str, str]],
    rows: Sequence[tuple[str, Row]],
) -> tuple[set[str], int]:
    """Write what is not there yet, all of it or nothing.

    Args:
        journal: Where to.
        graphs: JSON of operator graphs by fingerprint.
        additions: Experiences with their steps and places.
        rows: Events by table.

    Returns:
        Ids of the experiences that are new, and how many rewards are.
    """
    new: set[str] = set()
    rewards = 0
    with journal.database.write() as writer:
        for fingerprint, body in graphs.items():
            key = {"fingerprint": fingerprint}
            if writer.scalar(statements.GRAPH_KNOWN, key) is None:
                writer.run(statements.INSERT[tables.graphs], key | {"body": body})
        for addition, step, slot in additions:
            before = writer.scalar(_KNOWN_ID, {"id": addition.experience.id})
            if before is None and write_experience(writer, addition, step, slot):
                new.add(addition.experience.id)
        for name, row in rows:
            is_new = _write_row(writer, STEPS[name], row)
            rewards += is_new and name == "rewards"
    return new, rewards


_KNOWN_ID = select(tables.experiences.c.seq).where(tables.experiences.c.id == bindparam("id"))


def _write_row(writer: Any, table: Table, row: Row) -> bool:
    """Append one row with its own time and the next number, unless its step has one."""
    known = select(table.c.step).where(table.c.step == bindparam("step"))
    if writer.scalar(known, {"step": row["step"]}) is not None:
        return False
    columns = {column.name: row.get(column.name) for column in table.c if column.name != "seq"}
    if "seq" in table.c:
        writer.append(table, columns)
    else:
        writer.run(statements.INSERT[table], columns)
    return True
