"""Owns the journal's database: where it lies, how it is opened, and what its errors mean."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Self

import sqlalchemy
from sqlalchemy import Column, Engine, Executable, event, insert
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, StaticPool
from sqlalchemy.schema import CreateTable

from evokernel.errors import StoreError
from evokernel.memory import statements, tables
from evokernel.memory.transaction import Prepared, Reader, Transaction

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
        self._connection: PoolProxiedConnection | None = None
        self._prepared: dict[Executable, Prepared] = {}
        self._transaction: Transaction | None = None
        self._reader: Reader | None = None
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
    def read(self) -> Iterator["Reader"]:
        """One consistent view of the journal; inside `write` it is the view of that transaction."""
        with self._lock, self._explained():
            if self._transaction is not None:
                yield self._transaction
                return
            driver = self._begin("BEGIN")
            reader = self._reader = Reader(driver, self._prepare)
            try:
                yield reader
            finally:
                # Not where an interrupt left this one behind, and others have come after it.
                if self._reader is reader:
                    self._reader = None
                    driver.rollback()

    @contextmanager
    def write(self) -> Iterator["Transaction"]:
        """One transaction at a time over all processes; commits on leaving.

        Inside another one it belongs to that: all of it is written together, or nothing.
        """
        with self._lock, self._explained():
            if self._transaction is not None:
                yield self._transaction
                return
            driver = self._begin("BEGIN IMMEDIATE")
            transaction = self._transaction = Transaction(driver, self._prepare)
            try:
                yield transaction
                transaction.set_clock()
                driver.commit()
            finally:
                if self._transaction is transaction:
                    self._transaction = None
                    driver.rollback()

    def close(self) -> None:
        """Let go of the database; what an interrupted transaction has written is taken back."""
        with self._lock:
            self.reset()
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._engine.dispose()

    def reset(self) -> None:
        """Take back what a transaction has written that was torn by an interrupt."""
        with self._lock:
            self._transaction = self._reader = None
            if self._connection is not None:
                self._connection.rollback()

    def _begin(self, statement: str) -> sqlite3.Connection:
        """Begin by our own word: the driver would do so late and meet locks half-way."""
        if self._connection is None:
            # One connection for all: fetching one from the pool costs more than most statements.
            self._connection = self._engine.raw_connection()
        driver = self._connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        if driver.in_transaction:  # an interrupt came between its beginning and its end
            driver.rollback()
        driver.execute(statement)
        return driver

    def _prepare(self, statement: Executable) -> Prepared:
        if statement not in self._prepared:
            self._prepared[statement] = Prepared(statement, self._engine.dialect)
        return self._prepared[statement]

    def _inspect(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                head = file.read(len(_MAGIC))
        except OSError as error:
            raise StoreError(_unwritable(path, error.strerror or str(error))) from error
        if head != _MAGIC:
            raise StoreError(_damaged(path, "it is not an SQLite file"))
        with self.read() as journal:
            if path.stat().st_size <= CHECKED_BYTES:
                found = journal.driver.execute("PRAGMA quick_check(1)").fetchone()[0]
                if found != "ok":
                    raise StoreError(_damaged(path, str(found)))
            if not sqlalchemy.inspect(self._engine).has_table("meta"):
                raise StoreError(_damaged(path, "the table `meta` is missing"))
            schema = journal.scalar(statements.NOTE, {"name": "schema"})
        if schema in tables.OLDER_SCHEMAS:
            _add_tables(self)
        elif schema != tables.SCHEMA:
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
        except sqlite3.Error as error:
            raise StoreError(_explain(self.label, error)) from error


def _engine(path: Path, busy_s: float) -> Engine:
    return sqlalchemy.create_engine(
        sqlalchemy.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": busy_s, "check_same_thread": False},
    )


def _tuned(engine: Engine) -> Engine:
    """Let us begin transactions ourselves, and set how they are kept."""

    @event.listens_for(engine, "connect")
    def _connect(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        assert isinstance(connection, sqlite3.Connection)
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        # In WAL mode NORMAL loses nothing when a process is killed, and spares a sync per step.
        connection.execute("PRAGMA synchronous=NORMAL")

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


def _add_tables(database: Database) -> None:
    """Bring a journal of an older version up to this one, whoever else may be doing the same."""
    with database.write() as journal:
        for table in tables.metadata.sorted_tables:
            made = CreateTable(table, if_not_exists=True).compile(dialect=database._engine.dialect)
            journal.driver.execute(str(made))
        for column in tables.ADDED_COLUMNS:
            _add_column(journal, column)
        journal.run(statements.SET_NOTE, {"name": "schema", "text": tables.SCHEMA})


def _add_column(journal: Transaction, column: Column[Any]) -> None:
    """Add a column that may be empty, unless another process was first."""
    table = column.table.name
    known = journal.driver.execute(f"PRAGMA table_info({table})").fetchall()
    if column.name not in {name for _, name, *_ in known}:
        journal.driver.execute(f"ALTER TABLE {table} ADD COLUMN {column.name} {column.type}")


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
