"""Owns the journal: append-only events, the one truth from which all else can be computed again.

Each kind of event has a key made of the step (see `evokernel.memory.tables`); writing an event a
second time changes nothing and says so. Times are Unix seconds.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from sqlalchemy import Select, Table

from evokernel.attempt import Stage
from evokernel.memory import statements, tables
from evokernel.memory.database import Database
from evokernel.memory.events import Addition, News, Vector, Verdict, rewarded, yardstick
from evokernel.memory.experience import Experience, ExperienceStatus
from evokernel.memory.likeness import Sketch
from evokernel.memory.retraction import Yardstick
from evokernel.memory.rewards import Reward
from evokernel.memory.rows import (
    rows_of,
    texts_of,
    write_experience,
    write_graph,
    write_note,
    write_status,
    write_traits,
    write_vector,
)
from evokernel.memory.texts import put_back
from evokernel.memory.values import Rewarded
from evokernel.opgraph import OpGraph

Columns = dict[str, Any]


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
        journal = cls(Database.open(folder, create=create))
        try:
            journal._add_traits()
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    @property
    def database(self) -> Database:
        """Where its rows lie, for who reads or takes over whole journals."""
        return self._database

    def reset(self) -> None:
        """Take back what an interrupt has torn."""
        self._database.reset()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write all that is written inside in one transaction, or nothing of it."""
        with self._database.write():
            yield

    def note(self, name: str) -> str | None:
        """A remark about the journal itself, e.g. its embedder."""
        with self._database.read() as journal:
            found: str | None = journal.scalar(statements.NOTE, {"name": name})
            return found

    def set_note(self, name: str, value: str) -> None:
        """Write such a remark."""
        with self._database.write() as journal:
            write_note(journal, name, value)

    def news(self, seq: int, with_rewards: bool = True) -> News:
        """Everything that a process must know that knew all up to event `seq`.

        Args:
            seq: Number of that event.
            with_rewards: Also the rewards, with what their steps were asked and shown.
        """
        after = {"seq": seq}
        with self._database.read() as journal:
            version = journal.scalar(statements.CLOCK, {})
            if version == seq:
                return News(version, (), (), (), ())
            return News(
                version,
                journal.rows(statements.NEW_EXPERIENCES, after),
                journal.rows(statements.NEW_STATUSES, after),
                journal.rows(statements.NEW_REVISIONS, after),
                journal.rows(statements.NEW_REWARDS, after) if with_rewards else (),
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
                    write_graph(journal, fingerprint, graph)
            ids, seen = [], dict[str, int]()
            for addition in additions:
                kind = addition.experience.kind
                seen[kind] = seen.get(kind, 0) + 1
                ids.append(write_experience(journal, addition, step, f"{kind}:{seen[kind]}"))
            return tuple(ids)

    def add_statuses(self, verdicts: Sequence[Verdict], step: str) -> None:
        """Append changes of status, one per experience and step."""
        with self._database.write() as journal:
            for verdict in verdicts:
                write_status(journal, verdict, step)

    def history(self, experience: str | None = None) -> list[Any]:
        """Changes of status of one experience, or of all, oldest first."""
        if experience is None:
            return self._rows(statements.NEW_STATUSES, {"seq": 0})
        return self._rows(statements.HISTORY, {"experience": experience})

    def statuses_upto(self, seq: int) -> dict[str, ExperienceStatus]:
        """The status of every experience after event `seq`."""
        rows = self.history()
        return {row.experience: ExperienceStatus(row.status) for row in rows if row.seq <= seq}

    def add_revision(self, experience: str, body: str, reason: str, step: str) -> bool:
        """Append what a person changed of an experience, JSON of the changed fields."""
        columns = {"experience": experience, "body": body, "reason": reason, "step": step}
        return self._append(tables.revisions, columns)

    def revisions(self, experience: str | None = None) -> list[Any]:
        """What people changed of one experience, or of all, oldest first."""
        if experience is None:
            return self._rows(statements.NEW_REVISIONS, {"seq": 0})
        return self._rows(statements.REVISIONS, {"experience": experience})

    def bodies(self, ids: Sequence[str]) -> dict[str, Experience]:
        """The experiences as they were added, without their features."""
        with self._database.read() as journal:
            rows = rows_of(journal, tables.experiences, "id", ("id", "body"), ids)
            found = put_back([row.body for row in rows], partial(texts_of, journal))
        pairs = zip(rows, found, strict=True)
        return {row.id: Experience.model_validate(fields) for row, fields in pairs}

    def _add_traits(self) -> None:
        """Compute the traits that a journal of an older version lacks."""
        with self._database.read() as journal:
            counts = [journal.scalar(c, {}) for c in (statements.EXPERIENCES, statements.TRAITS)]
        if counts[0] == counts[1]:
            return
        with self._database.write() as journal:
            for row in journal.rows(statements.WITHOUT_TRAITS, {}):
                write_traits(journal, self.bodies([row.id])[row.id])

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Embeddings of the given experiences."""
        columns = ("experience", "vector")
        with self._database.read() as journal:
            rows = rows_of(journal, tables.embeddings, "experience", columns, ids)
        return {row.experience: np.frombuffer(row.vector, dtype=np.float32) for row in rows}

    def sketches(self, ids: Sequence[str]) -> dict[str, Sketch]:
        """Sketches of the sources of the given experiences."""
        columns = ("experience", "sketch")
        with self._database.read() as journal:
            rows = rows_of(journal, tables.traits, "experience", columns, ids)
        return {row.experience: np.frombuffer(row.sketch, dtype=np.uint32) for row in rows}

    def replace_vectors(
        self, vectors: Iterable[tuple[str, Sequence[float]]], embedder: str
    ) -> None:
        """Write all embeddings anew, as made by `embedder`."""
        with self._database.write() as journal:
            journal.run(statements.DROP_VECTORS, {})
            for id, vector in vectors:
                write_vector(journal, id, vector)
            write_note(journal, "embedder", embedder)

    def replace_vector(self, id: str, vector: Sequence[float]) -> None:
        """Write one embedding anew."""
        with self._database.write() as journal:
            journal.run(statements.DROP_VECTOR, {"id": id})
            write_vector(journal, id, vector)

    def graph(self, fingerprint: str) -> OpGraph | None:
        """The operator graph of a task, where one was known."""
        with self._database.read() as journal:
            body = journal.scalar(statements.GRAPH, {"fingerprint": fingerprint})
        return OpGraph.model_validate_json(body) if body else None

    # Retrievals and rewards

    def add_retrieval(self, columns: Columns, asked: str, decided: str) -> bool:
        """Append what was shown in a step; False where the step has a retrieval already.

        Args:
            columns: The event.
            asked: The situation that was asked about, JSON.
            decided: By which arm, and what was held back, JSON.
        """
        with self._database.write() as journal:
            is_new = journal.append_once(tables.retrievals, columns)
            if is_new:
                about = {"step": columns["step"], "body": asked}
                journal.run(statements.INSERT[tables.queries], about)
                about = {"step": columns["step"], "body": decided}
                journal.run(statements.INSERT[tables.decisions], about)
            return is_new

    def asked(self, step: str) -> str | None:
        """The situation that a step asked about, JSON; None for steps of older versions."""
        with self._database.read() as journal:
            found: str | None = journal.scalar(statements.ASKED, {"step": step})
            return found

    def decided(self, step: str) -> str | None:
        """By which arm a step was decided, JSON; None for steps of older versions."""
        with self._database.read() as journal:
            found: str | None = journal.scalar(statements.DECIDED, {"step": step})
            return found

    def retrieval(self, step: str) -> Columns | None:
        """The recorded retrieval of a step, by column."""
        rows = self._rows(statements.RETRIEVAL, {"step": step})
        return rows[0]._asdict() if rows else None

    def add_reward(self, step: str, stage: Stage, reward: Reward) -> bool:
        """Append a step's reward with what it was shown; False where it has one already."""
        with self._database.write() as journal:
            text = journal.scalar(statements.SHOWN, {"step": step}) or "[]"
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

    def earned(self) -> list[Any]:
        """Step, time and value of every reward, oldest first."""
        return self._rows(statements.EARNED, {})

    def yardsticks(self) -> list[Yardstick]:
        """What every reward was computed from, in order."""
        return [yardstick(row) for row in self._rows(statements.NEW_REWARDS, {"seq": 0})]

    def retrieval_heads(self) -> list[Any]:
        """Step, time, task, stage, policy and choices of every retrieval, oldest first."""
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
        return rows[0]._asdict() if rows else None

    def starts_after(self, run: str, seq: int) -> tuple[list[Any], list[Any]]:
        """Start points of a run and how their children did, from after event `seq`, in order."""
        after = {"run": run, "seq": seq}
        with self._database.read() as journal:
            return (
                journal.rows(statements.NEW_STARTS, after),
                journal.rows(statements.NEW_START_REWARDS, after),
            )

    # The snapshot of values

    def snapshot(self) -> tuple[str | None, list[Any]]:
        """What is said about the saved values, and the values; both from one moment."""
        with self._database.read() as journal:
            about = journal.scalar(statements.NOTE, {"name": "values"})
            return about, journal.rows(statements.SNAPSHOT, {})

    def save_snapshot(self, rows: Sequence[Columns], about: str) -> None:
        """Replace the snapshot of values."""
        with self._database.write() as journal:
            journal.run(statements.DROP_SNAPSHOT, {})
            journal.run(statements.INSERT[tables.snapshots], *rows)
            write_note(journal, "values", about)

    def _append(self, table: Table, columns: Columns) -> bool:
        with self._database.write() as journal:
            return journal.append_once(table, columns)

    def _rows(self, statement: Select[Any], values: Columns) -> list[Any]:
        with self._database.read() as journal:
            return journal.rows(statement, values)
