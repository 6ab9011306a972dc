"""Owns the journal's database: where it lies, how it is opened, and what its errors mean."""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Self

import sqlalchemy
from sqlalchemy import Connection, Engine, Table, event, insert
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from evokernel.errors import StoreError
from evokernel.memory import statements, tables

FILE = "journal.sqlite"
"""Name of the SQLite file in the memory's folder."""

BUSY_S = 30.0
"""How long a write waits for another process's, seconds; ours take milliseconds."""

CHECKED_BYTES = 64 << 20
"""Files up to this size are checked page by page on opening (a second for so much at most); damage
in a larger one shows when its page is read."""

_MAGIC = b"SQLite format 3\0"
_RESCUE = (
    "It is never replaced by a fresh one. Restore a copy of the folder, or recover what is left "
    "with `sqlite3 {path} .recover | sqlite3 recovered.sqlite`, or choose another memory with "
    "`--memory PATH`."
)


class Database:
    """Transactions on one journal; every error comes out as a `StoreError` that says what to do."""

    def __init__(self, engine: Engine, label: str) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._lock = RLock()
        self.label = label
        """The place as shown in messages."""

    @classmethod
    def open(cls, folder: Path | None, *, create: bool = True, busy_s: float = BUSY_S) -> Self:
        """Open the journal in `folder`; None makes one in memory.

        Args:
            folder: Folder of the memory.
            create: Whether to make one where there is none.
            busy_s: How long a write waits for another process's, seconds.

        Raises:
            StoreError: missing while `create` is false, damaged, or not a memory.
        """
        if folder is None:
            engine = sqlalchemy.create_engine(
                "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
            )
            database = cls(_tuned(engine), "(in memory)")
            _make_tables(database)
            return database
        path = folder / FILE
        if not path.exists():
            _create(path, create)
        database = cls(_tuned(_engine(path, busy_s)), str(path))
        try:
            database._inspect(path)
        except BaseException:
            database.close()
            raise
        return database

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the journal."""
        with self._lock, self._explained():
            connection = self._kept()
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator["Transaction"]:
        """One transaction at a time over all processes; commits on leaving."""
        with self._lock, self._explained():
            connection = self._kept()
            connection.info["writes"] = True
            try:
                with connection.begin():
                    transaction = Transaction(connection)
                    yield transaction
                    transaction.set_clock()
            finally:
                connection.info["writes"] = False

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._engine.dispose()

    def _kept(self) -> Connection:
        """One connection for all: fetching one from the pool costs more than most statements."""
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _inspect(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                head = file.read(len(_MAGIC))
        except OSError as error:
            raise StoreError(_unwritable(path, error.strerror or str(error))) from error
        if head != _MAGIC:
            raise StoreError(_damaged(path, "it is not an SQLite file"))
        with self.read() as connection:
            if path.stat().st_size <= CHECKED_BYTES:
                found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
                if found != "ok":
                    raise StoreError(_damaged(path, str(found)))
            if not sqlalchemy.inspect(connection).has_table("meta"):
                raise StoreError(_damaged(path, "the table `meta` is missing"))
            schema = connection.scalar(statements.NOTE, {"name": "schema"})
        if schema != tables.SCHEMA:
            raise StoreError(
                f"the memory `{path}` has tables of version `{schema}`, this EvoKernel reads "
                f"version `{tables.SCHEMA}`: use the EvoKernel that made it, or choose another "
                "with `--memory PATH`"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlalchemy.exc.DBAPIError as error:
            raise StoreError(_explain(self.label, error.orig or error)) from error
        except sqlite3.Error as error:  # from our own BEGIN
            raise StoreError(_explain(self.label, error)) from error


class Transaction:
    """Writes events with rising numbers; nobody else writes at the same time."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._before = self._last = connection.scalars(statements.LOCKED_CLOCK).one()

    def append(self, table: Table, columns: Mapping[str, Any]) -> None:
        """Write one event with the next number and the time, Unix seconds."""
        self._last += 1
        event = {"seq": self._last, "at": time.time(), **columns}
        self.connection.execute(statements.INSERT[table], event)

    def append_once(self, table: Table, columns: Mapping[str, Any]) -> bool:
        """The same unless the event was written before; False if so."""
        if self.connection.scalar(statements.KNOWN[table], columns) is not None:
            return False
        self.append(table, columns)
        return True

    def set_clock(self) -> None:
        """Note the number of the last event."""
        if self._last != self._before:
            self.connection.execute(statements.SET_CLOCK, {"last": self._last})


def _engine(path: Path, busy_s: float) -> Engine:
    return sqlalchemy.create_engine(
        sqlalchemy.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": busy_s, "check_same_thread": False},
    )


def _tuned(engine: Engine) -> Engine:
    """Let us begin transactions ourselves: the driver would begin late and meet locks half-way."""

    @event.listens_for(engine, "connect")
    def _connect(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        assert isinstance(connection, sqlite3.Connection)
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        # In WAL mode NORMAL loses nothing when a process is killed, and spares a sync per step.
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.execute("BEGIN IMMEDIATE" if connection.info.get("writes") else "BEGIN")

    return engine


def _create(path: Path, wanted: bool) -> None:
    """Make the file complete beside its place, then link it there: nobody ever sees half of one."""
    if not wanted:
        raise StoreError(
            f"there is no memory at `{path.parent}`: a run makes one (`evokernel run TASK`), "
            "or name another with `--memory PATH`"
        )
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        database = Database(_tuned(_engine(fresh, BUSY_S)), str(path))
        _make_tables(database)
        database.close()
        _publish(fresh, path)
    except OSError as error:
        raise StoreError(_unwritable(path.parent, error.strerror or str(error))) from error
    finally:
        if path.parent.is_dir():
            fresh.unlink(missing_ok=True)


def _publish(fresh: Path, path: Path) -> None:
    """Put the new file in its place unless another process was first."""
    try:
        path.hardlink_to(fresh)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not path.exists():
            fresh.rename(path)


def _make_tables(database: Database) -> None:
    with database._explained(), database._engine.begin() as connection:
        tables.metadata.create_all(connection)
        connection.execute(insert(tables.meta).values(name="schema", value=tables.SCHEMA))
        connection.execute(insert(tables.clock).values(id=1, value=0))


def _explain(place: str, error: BaseException) -> str:
    """Say in words what SQLite's error code means; the code is typed, the message is not read."""
    name = str(getattr(error, "sqlite_errorname", ""))
    detail = str(error)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _damaged(place, detail)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return (
            f"the memory `{place}` stayed locked by another process ({detail}): look for a process "
            "that hangs, or choose another memory with `--memory PATH`"
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return (
            f"the memory `{place}` could not be written or read ({detail}): the disk is full or "
            "failing; make room and try again, nothing that was saved before is lost"
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return _unwritable(place, detail)
    return f"the memory `{place}` cannot be used ({name or type(error).__name__}: {detail})"


def _damaged(path: Path | str, detail: str) -> str:
    return f"the memory `{path}` is damaged ({detail}). {_RESCUE.format(path=path)}"


def _unwritable(path: Path | str, detail: str) -> str:
    return (
        f"the memory `{path}` cannot be opened for writing ({detail}): expected a folder that this "
        "user may write; change its rights, or choose another with `--memory PATH`"
    )
