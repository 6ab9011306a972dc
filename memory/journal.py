"""Owns the journal: append-only events, the one truth from which all else can be computed again.

Each kind of event has a key made of the step (see `evokernel.memory.tables`); writing an event a
second time changes nothing and says so. Times are Unix seconds.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, delete, insert, select, update

from evokernel.attempt import Stage
from evokernel.memory import tables
from evokernel.memory.database import Database
from evokernel.memory.experience import Experience, ExperienceStatus, Measurement
from evokernel.memory.rewards import Reward
from evokernel.memory.values import Rewarded
from evokernel.opgraph import OpGraph

Vector = NDArray[np.float32]

BATCH = 500
"""Ids per `IN (...)`: well below the limit of every database."""


class Addition(NamedTuple):
    """One experience on its way into the journal."""

    experience: Experience
    content: str
    """Hash by which duplicates are recognised."""
    vector: Sequence[float]
    status: ExperienceStatus
    reason: str


class Verdict(NamedTuple):
    """One change of status on its way into the journal."""

    experience: str
    status: ExperienceStatus
    reason: str
    measurement: Measurement | None = None


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

    def version(self) -> int:
        """Number of the last event."""
        with self._database.read() as connection:
            return int(connection.scalar(select(tables.clock.c.value)) or 0)

    def note(self, name: str) -> str | None:
        """A remark about the journal itself, e.g. its embedder."""
        with self._database.read() as connection:
            return connection.scalar(select(tables.meta.c.value).where(tables.meta.c.name == name))

    def set_note(self, name: str, value: str) -> None:
        """Write such a remark."""
        with self._database.write() as connection:
            _set_note(connection, name, value)

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
        with self._database.write() as connection:
            if graph is not None:
                for fingerprint in {a.experience.fingerprint for a in additions}:
                    _keep_graph(connection, fingerprint, graph)
            ids, seen = [], dict[str, int]()
            for addition in additions:
                kind = addition.experience.kind
                seen[kind] = seen.get(kind, 0) + 1
                ids.append(_add(connection, addition, step, f"{kind}:{seen[kind]}"))
            return tuple(ids)

    def add_statuses(self, verdicts: Sequence[Verdict], step: str) -> None:
        """Append changes of status, one per experience and step."""
        table = tables.statuses
        with self._database.write() as connection:
            for verdict in verdicts:
                known = (table.c.experience == verdict.experience) & (table.c.step == step)
                if not _exists(connection, table, known):
                    _add_status(connection, verdict, step)

    def experiences_after(self, seq: int) -> list[Row[Any]]:
        """Columns of the experiences added after event `seq`, without their bodies."""
        table = tables.experiences
        columns = [column for column in table.c if column.name not in {"body", "at"}]
        return self._rows(select(*columns).where(table.c.seq > seq).order_by(table.c.seq))

    def statuses_after(self, seq: int) -> list[Row[Any]]:
        """Changes of status after event `seq`, oldest first."""
        table = tables.statuses
        return self._rows(select(table).where(table.c.seq > seq).order_by(table.c.seq))

    def history(self, experience: str) -> list[Row[Any]]:
        """Changes of status of one experience, oldest first."""
        table = tables.statuses
        return self._rows(
            select(table).where(table.c.experience == experience).order_by(table.c.seq)
        )

    def bodies(self, ids: Sequence[str]) -> dict[str, Experience]:
        """The experiences as they were added, without their features."""
        table = tables.experiences
        rows = self._rows_of(select(table.c.id, table.c.body), table.c.id, ids)
        return {row.id: Experience.model_validate_json(row.body) for row in rows}

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Embeddings of the given experiences."""
        table = tables.embeddings
        rows = self._rows_of(select(table), table.c.experience, ids)
        return {row.experience: np.frombuffer(row.vector, dtype=np.float32) for row in rows}

    def replace_vectors(
        self, vectors: Iterable[tuple[str, Sequence[float]]], embedder: str
    ) -> None:
        """Write all embeddings anew, as made by `embedder`."""
        with self._database.write() as connection:
            connection.execute(delete(tables.embeddings))
            for id, vector in vectors:
                _keep_vector(connection, id, vector)
            _set_note(connection, "embedder", embedder)

    def graph(self, fingerprint: str) -> OpGraph | None:
        """The operator graph of a task, where one was known."""
        table = tables.graphs
        with self._database.read() as connection:
            body = connection.scalar(select(table.c.body).where(table.c.fingerprint == fingerprint))
        return OpGraph.model_validate_json(body) if body else None

    # Retrievals and rewards

    def add_retrieval(self, **columns: Any) -> bool:
        """Append what was shown in a step; False where the step has a retrieval already."""
        return self._append_step(tables.retrievals, columns)

    def retrieval(self, step: str) -> Row[Any] | None:
        """The recorded retrieval of a step."""
        table = tables.retrievals
        with self._database.read() as connection:
            return connection.execute(select(table).where(table.c.step == step)).first()

    def add_reward(self, step: str, stage: Stage, reward: Reward) -> bool:
        """Append a step's reward with what it was shown; False where it has one already."""
        rewards, retrievals = tables.rewards, tables.retrievals
        with self._database.write() as connection:
            if _exists(connection, rewards, rewards.c.step == step):
                return False
            chosen = select(retrievals.c.chosen).where(retrievals.c.step == step)
            shown = [entry["id"] for entry in json.loads(connection.scalar(chosen) or "[]")]
            columns = {
                "step": step,
                "stage": stage.value,
                "value": reward.value,
                "shown": json.dumps(shown),
                "body": reward.model_dump_json(),
            }
            _insert(connection, rewards, columns)
            return True

    def rewards_after(self, seq: int) -> Iterator[Rewarded]:
        """Reward events after event `seq`, in order."""
        table = tables.rewards
        for row in self._rows(select(table).where(table.c.seq > seq).order_by(table.c.seq)):
            yield Rewarded(
                seq=row.seq,
                step=row.step,
                stage=Stage(row.stage),
                value=row.value,
                shown=tuple(json.loads(row.shown)),
            )

    def all_of(self, table: Table) -> list[Row[Any]]:
        """Every row of one table of events, oldest first."""
        return self._rows(select(table).order_by(table.c.seq))

    # Start points

    def add_start(self, **columns: Any) -> bool:
        """Append a start point; False where the run has it already."""
        table = tables.starts
        known = (table.c.run == columns["run"]) & (table.c.candidate == columns["candidate"])
        return self._append(table, columns, known)

    def add_start_reward(self, **columns: Any) -> bool:
        """Append how a child of a start point did; False where the step told that already."""
        table = tables.start_rewards
        known = (table.c.step == columns["step"]) & (table.c.candidate == columns["candidate"])
        return self._append(table, columns, known)

    def add_choice(self, **columns: Any) -> bool:
        """Append a choice of start points; False where the step has one already."""
        return self._append_step(tables.choices, columns)

    def choice(self, step: str) -> Row[Any] | None:
        """The recorded choice of start points of a step."""
        table = tables.choices
        with self._database.read() as connection:
            return connection.execute(select(table).where(table.c.step == step)).first()

    def starts(self, run: str) -> tuple[list[Row[Any]], list[Row[Any]]]:
        """Start points of a run and how their children did, oldest first."""
        starts, told = tables.starts, tables.start_rewards
        with self._database.read() as connection:
            return (
                list(connection.execute(select(starts).where(starts.c.run == run).order_by("seq"))),
                list(connection.execute(select(told).where(told.c.run == run).order_by("seq"))),
            )

    # The snapshot of values

    def snapshot(self) -> tuple[str | None, list[Row[Any]]]:
        """What is said about the saved values, and the values; both from one moment."""
        with self._database.read() as connection:
            about = connection.scalar(
                select(tables.meta.c.value).where(tables.meta.c.name == "values")
            )
            return about, list(connection.execute(select(tables.snapshots)))

    def save_snapshot(self, rows: Sequence[dict[str, Any]], about: str) -> None:
        """Replace the snapshot of values."""
        with self._database.write() as connection:
            connection.execute(delete(tables.snapshots))
            if rows:
                connection.execute(insert(tables.snapshots), list(rows))
            _set_note(connection, "values", about)

    def _append_step(self, table: Table, columns: dict[str, Any]) -> bool:
        return self._append(table, columns, table.c.step == columns["step"])

    def _append(self, table: Table, columns: dict[str, Any], known: ColumnElement[bool]) -> bool:
        with self._database.write() as connection:
            if _exists(connection, table, known):
                return False
            _insert(connection, table, columns)
            return True

    def _rows(self, statement: Select[Any]) -> list[Row[Any]]:
        with self._database.read() as connection:
            return list(connection.execute(statement))

    def _rows_of(
        self, statement: Select[Any], column: ColumnElement[str], ids: Sequence[str]
    ) -> Iterator[Row[Any]]:
        with self._database.read() as connection:
            for first in range(0, len(ids), BATCH):
                chunk = list(ids[first : first + BATCH])
                yield from connection.execute(statement.where(column.in_(chunk)))


def _tick(connection: Connection) -> int:
    """The next event number."""
    table = tables.clock
    connection.execute(update(table).values(value=table.c.value + 1))
    return int(connection.scalars(select(table.c.value)).one())


def _insert(connection: Connection, table: Table, columns: dict[str, Any]) -> None:
    connection.execute(insert(table), {"seq": _tick(connection), "at": time.time(), **columns})


def _exists(connection: Connection, table: Table, known: ColumnElement[bool]) -> bool:
    return connection.scalar(select(table.c.seq).where(known)) is not None


def _add(connection: Connection, addition: Addition, step: str, slot: str) -> str:
    """Append one experience unless its place in the step, or the very same one, is taken."""
    table, experience = tables.experiences, addition.experience
    known = ((table.c.step == step) & (table.c.slot == slot)) | (table.c.id == experience.id)
    if found := connection.scalar(select(table.c.id).where(known)):
        return str(found)
    origin = experience.origin
    _insert(
        connection,
        table,
        {
            "id": experience.id,
            "step": step,
            "slot": slot,
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
        },
    )
    _keep_vector(connection, experience.id, addition.vector)
    verdict = Verdict(experience.id, addition.status, addition.reason)
    _add_status(connection, verdict, step)
    return experience.id


def _add_status(connection: Connection, verdict: Verdict, step: str) -> None:
    measured = verdict.measurement.model_dump_json() if verdict.measurement else None
    columns = {
        "experience": verdict.experience,
        "status": verdict.status.value,
        "reason": verdict.reason,
        "step": step,
        "measurement": measured,
    }
    _insert(connection, tables.statuses, columns)


def _keep_vector(connection: Connection, id: str, vector: Sequence[float]) -> None:
    blob = np.asarray(vector, dtype=np.float32).tobytes()
    connection.execute(insert(tables.embeddings), {"experience": id, "vector": blob})


def _keep_graph(connection: Connection, fingerprint: str, graph: OpGraph) -> None:
    table = tables.graphs
    known = table.c.fingerprint == fingerprint
    if connection.scalar(select(table.c.fingerprint).where(known)) is None:
        body = graph.model_dump_json()
        connection.execute(insert(table), {"fingerprint": fingerprint, "body": body})


def _set_note(connection: Connection, name: str, value: str) -> None:
    connection.execute(delete(tables.meta).where(tables.meta.c.name == name))
    connection.execute(insert(tables.meta), {"name": name, "value": value})
