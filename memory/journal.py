"""Owns the journal: append-only events, the one truth from which all else can be computed again.

Each kind of event has a key made of the step (see `evokernel.memory.tables`); writing an event a
second time changes nothing and says so. Times are Unix seconds.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sqlalchemy import Connection, Row, Select, Table, delete, select

from evokernel.attempt import Stage
from evokernel.memory import statements, tables
from evokernel.memory.database import Database, Transaction
from evokernel.memory.events import Addition, News, Vector, Verdict, rewarded
from evokernel.memory.experience import Experience
from evokernel.memory.rewards import Reward
from evokernel.memory.values import Rewarded
from evokernel.opgraph import OpGraph

Columns = dict[str, Any]

BATCH = 500
"""Ids per `IN (...)`: well below the limit of every database."""


class Journal:
    """Reads and appends events; knows nothing of policies, values or search."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.label = database.label
        """The place as shown in messages."""

    @classmethod
    def open(cls, folder: Path | None, *, create: bool = True) -> Self:
        """Open the journal in `folder`; None keeps it in memory.

        Raises:
            StoreError: missing while `create` is false, damaged, locked or not writable.
        """
        return cls(Database.open(folder, create=create))

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def note(self, name: str) -> str | None:
        """A remark about the journal itself, e.g. its embedder."""
        with self._database.read() as connection:
            return connection.scalar(statements.NOTE, {"name": name})

    def set_note(self, name: str, value: str) -> None:
        """Write such a remark."""
        with self._database.write() as journal:
            _set_note(journal.connection, name, value)

    def news(self, seq: int) -> News:
        """Everything that a process must know that knew all up to event `seq`."""
        after = {"seq": seq}
        with self._database.read() as connection:
            version = connection.scalars(statements.CLOCK).one()
            if version == seq:
                return News(version, (), (), ())
            return News(
                version,
                connection.execute(statements.NEW_EXPERIENCES, after).all(),
                connection.execute(statements.NEW_STATUSES, after).all(),
                connection.execute(statements.NEW_REWARDS, after).all(),
            )

    # Experiences and their status

    def add_experiences(
        self, additions: Sequence[Addition], step: str, graph: OpGraph | None = None
    ) -> tuple[str, ...]:
        """Append experiences with their first status.

        The step's first lesson, second lesson, first edit ... are each written once: what a resumed
        step offers again is answered with the id that is there already.

        Returns:
            Ids, in order.
        """
        with self._database.write() as journal:
            if graph is not None:
                for fingerprint in {a.experience.fingerprint for a in additions}:
                    _keep_graph(journal.connection, fingerprint, graph)
            ids, seen = [], dict[str, int]()
            for addition in additions:
                kind = addition.experience.kind
                seen[kind] = seen.get(kind, 0) + 1
                ids.append(_add(journal, addition, step, f"{kind}:{seen[kind]}"))
            return tuple(ids)

    def add_statuses(self, verdicts: Sequence[Verdict], step: str) -> None:
        """Append changes of status, one per experience and step."""
        with self._database.write() as journal:
            for verdict in verdicts:
                _add_status(journal, verdict, step)

    def history(self, experience: str) -> list[Row[Any]]:
        """Changes of status of one experience, oldest first."""
        return self._rows(statements.HISTORY, {"experience": experience})

    def bodies(self, ids: Sequence[str]) -> dict[str, Experience]:
        """The experiences as they were added, without their features."""
        rows = self._rows_of(statements.BODIES, ids)
        return {row.id: Experience.model_validate_json(row.body) for row in rows}

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Embeddings of the given experiences."""
        rows = self._rows_of(statements.VECTORS, ids)
        return {row.experience: np.frombuffer(row.vector, dtype=np.float32) for row in rows}

    def replace_vectors(
        self, vectors: Iterable[tuple[str, Sequence[float]]], embedder: str
    ) -> None:
        """Write all embeddings anew, as made by `embedder`."""
        with self._database.write() as journal:
            journal.connection.execute(delete(tables.embeddings))
            for id, vector in vectors:
                _keep_vector(journal.connection, id, vector)
            _set_note(journal.connection, "embedder", embedder)

    def graph(self, fingerprint: str) -> OpGraph | None:
        """The operator graph of a task, where one was known."""
        with self._database.read() as connection:
            body = connection.scalar(statements.GRAPH, {"fingerprint": fingerprint})
        return OpGraph.model_validate_json(body) if body else None

    # Retrievals and rewards

    def add_retrieval(self, columns: Columns) -> bool:
        """Append what was shown in a step; False where the step has a retrieval already."""
        return self._append(tables.retrievals, columns)

    def retrieval(self, step: str) -> Columns | None:
        """The recorded retrieval of a step, by column."""
        rows = self._rows(statements.RETRIEVAL, {"step": step})
        return dict(rows[0]._mapping) if rows else None

    def add_reward(self, step: str, stage: Stage, reward: Reward) -> bool:
        """Append a step's reward with what it was shown; False where it has one already."""
        with self._database.write() as journal:
            text = journal.connection.scalar(statements.SHOWN, {"step": step}) or "[]"
            shown = [choice["id"] for choice in json.loads(text)]
            columns = {
                "step": step,
                "stage": stage.value,
                "value": reward.value,
                "shown": json.dumps(shown),
                "body": reward.model_dump_json(),
            }
            return journal.append_once(tables.rewards, columns)

    def rewards_after(self, seq: int) -> list[Rewarded]:
        """Reward events after event `seq`, in order."""
        return [rewarded(row) for row in self._rows(statements.NEW_REWARDS, {"seq": seq})]

    def retrieval_heads(self) -> list[Row[Any]]:
        """Step, task, stage, policy and choices of every retrieval, oldest first."""
        return self._rows(statements.RETRIEVAL_HEADS, {})

    # Start points

    def add_start(self, columns: Columns) -> bool:
        """Append a start point; False where the run has it already."""
        return self._append(tables.starts, columns)

    def add_start_reward(self, columns: Columns) -> bool:
        """Append how a child of a start point did; False where the step told that already."""
        return self._append(tables.start_rewards, columns)

    def add_choice(self, columns: Columns) -> bool:
        """Append a choice of start points; False where the step has one already."""
        return self._append(tables.choices, columns)

    def choice(self, step: str) -> Columns | None:
        """The recorded choice of start points of a step, by column."""
        rows = self._rows(statements.CHOICE, {"step": step})
        return dict(rows[0]._mapping) if rows else None

    def starts(self, run: str) -> tuple[Sequence[Row[Any]], Sequence[Row[Any]]]:
        """Start points of a run and how their children did, oldest first."""
        with self._database.read() as connection:
            return (
                connection.execute(statements.STARTS, {"run": run}).all(),
                connection.execute(statements.START_REWARDS, {"run": run}).all(),
            )

    # The snapshot of values

    def snapshot(self) -> tuple[str | None, Sequence[Row[Any]]]:
        """What is said about the saved values, and the values; both from one moment."""
        with self._database.read() as connection:
            about = connection.scalar(statements.NOTE, {"name": "values"})
            return about, connection.execute(select(tables.snapshots)).all()

    def save_snapshot(self, rows: Sequence[Columns], about: str) -> None:
        """Replace the snapshot of values."""
        with self._database.write() as journal:
            journal.connection.execute(delete(tables.snapshots))
            if rows:
                journal.connection.execute(statements.INSERT[tables.snapshots], list(rows))
            _set_note(journal.connection, "values", about)

    def _append(self, table: Table, columns: Columns) -> bool:
        with self._database.write() as journal:
            return journal.append_once(table, columns)

    def _rows(self, statement: Select[Any], values: Columns) -> list[Row[Any]]:
        with self._database.read() as connection:
            return list(connection.execute(statement, values))

    def _rows_of(self, statement: Select[Any], ids: Sequence[str]) -> Iterator[Row[Any]]:
        with self._database.read() as connection:
            for first in range(0, len(ids), BATCH):
                yield from connection.execute(statement, {"ids": list(ids[first : first + BATCH])})


def _add(journal: Transaction, addition: Addition, step: str, slot: str) -> str:
    """Append one experience unless its place in the step, or the very same one, is taken."""
    experience = addition.experience
    same = {"step": step, "slot": slot, "id": experience.id}
    if found := journal.connection.scalar(statements.SAME_EXPERIENCE, same):
        return str(found)
    origin = experience.origin
    columns = {
        "run": origin.run,
        "task": origin.task,
        "candidate": origin.candidate,
        "kind": experience.kind,
        "stage": experience.stage.value,
        "backend": experience.backend,
        "family": experience.family,
        "fingerprint": experience.fingerprint,
        "content": addition.content,
        "body": experience.model_dump_json(exclude={"features"}),
    }
    journal.append(tables.experiences, same | columns)
    _keep_vector(journal.connection, experience.id, addition.vector)
    _add_status(journal, Verdict(experience.id, addition.status, addition.reason), step)
    return experience.id


def _add_status(journal: Transaction, verdict: Verdict, step: str) -> None:
    measured = verdict.measurement.model_dump_json() if verdict.measurement else None
    columns = {
        "experience": verdict.experience,
        "status": verdict.status.value,
        "reason": verdict.reason,
        "step": step,
        "measurement": measured,
    }
    journal.append_once(tables.statuses, columns)


def _keep_vector(connection: Connection, id: str, vector: Sequence[float]) -> None:
    blob = np.asarray(vector, dtype=np.float32).tobytes()
    connection.execute(statements.INSERT[tables.embeddings], {"experience": id, "vector": blob})


def _keep_graph(connection: Connection, fingerprint: str, graph: OpGraph) -> None:
    key = {"fingerprint": fingerprint}
    if connection.scalar(statements.GRAPH, key) is None:
        body = graph.model_dump_json()
        connection.execute(statements.INSERT[tables.graphs], key | {"body": body})


def _set_note(connection: Connection, name: str, value: str) -> None:
    connection.execute(delete(tables.meta).where(tables.meta.c.name == name))
    connection.execute(statements.INSERT[tables.meta], {"name": name, "value": value})
