"""Owns `Reader` and `Transaction`: what is read and written at one moment, statement by statement.

Statements are built with SQLAlchemy and handed to the driver as text, translated once: SQLAlchemy
spends ten times as long on a small statement as the database does, and a step runs dozens.
"""

import sqlite3
import time
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Dialect, Executable, Table

from evokernel.memory import statements

Columns = Mapping[str, Any]


class Prepared:
    """One statement in the words of one driver."""

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
        self.sql = str(compiled)
        self._names: tuple[str, ...] | None = None
        if compiled.positional:
            self._names = tuple(compiled.positiontup or ())
        names = [column.name for column in getattr(statement, "selected_columns", ())]
        self.row: Callable[[tuple[Any, ...]], Any] = _row(names)
        """Gives the columns of a fetched row their names."""

    def arguments(self, values: Columns) -> Any:
        """The values as the driver takes them."""
        if self._names is None:
            return dict(values)
        return tuple(values[name] for name in self._names)


def _row(names: Any) -> Any:
    return namedtuple("Row", names)._make  # type: ignore[attr-defined]


Prepare = Callable[[Executable], Prepared]


class Reader:
    """Reads the journal as it was at one moment."""

    def __init__(self, driver: sqlite3.Connection, prepare: Prepare) -> None:
        self.driver = driver
        self._prepare = prepare

    def rows(self, statement: Executable, values: Columns) -> list[Any]:
        """All rows that a statement finds, their columns by name."""
        prepared = self._prepare(statement)
        found = self.driver.execute(prepared.sql, prepared.arguments(values)).fetchall()
        return [prepared.row(row) for row in found]

    def scalar(self, statement: Executable, values: Columns) -> Any:
        """The first column of the first row, or None."""
        prepared = self._prepare(statement)
        found = self.driver.execute(prepared.sql, prepared.arguments(values)).fetchone()
        return found[0] if found else None


class Transaction(Reader):
    """Writes events with rising numbers; nobody else writes at the same time."""

    def __init__(self, driver: sqlite3.Connection, prepare: Prepare) -> None:
        super().__init__(driver, prepare)
        self._before = self._last = int(self.scalar(statements.CLOCK, {}))

    def run(self, statement: Executable, *values: Columns) -> None:
        """Carry a statement out, once for each set of values."""
        prepared = self._prepare(statement)
        for each in values:
            self.driver.execute(prepared.sql, prepared.arguments(each))

    def append(self, table: Table, columns: Columns) -> None:
        """Write one event with the next number and the time, Unix seconds."""
        self._last += 1
        event = {"seq": self._last, "at": time.time(), **columns}
        self.run(statements.INSERT[table], event)

    def append_once(self, table: Table, columns: Columns) -> bool:
        """The same unless the event was written before; False if so."""
        if self.scalar(statements.KNOWN[table], columns) is not None:
            return False
        self.append(table, columns)
        return True

    def set_clock(self) -> None:
        """Note the number of the last event."""
        if self._last != self._before:
            self.run(statements.SET_CLOCK, {"last": self._last})
