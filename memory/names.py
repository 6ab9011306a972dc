"""Owns the names that a shell completes, read from the journal without opening the memory."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

FILE = "journal.sqlite"
MOST = 200
"""Names for one prefix: nobody chooses among more."""
_WAIT_S = 0.2


def experiences(folder: Path, prefix: str) -> tuple[str, ...]:
    """Ids that begin so, newest first; none where no memory can be read."""
    return _found(folder, "SELECT id FROM experiences WHERE id GLOB ? ORDER BY seq DESC", prefix)


def steps(folder: Path, prefix: str) -> tuple[str, ...]:
    """Steps that were shown something, newest first; none where no memory can be read."""
    text = "SELECT step FROM retrievals WHERE step GLOB ? GROUP BY step ORDER BY max(seq) DESC"
    return _found(folder, text, prefix)


def _found(folder: Path, text: str, prefix: str) -> tuple[str, ...]:
    if any(letter in prefix for letter in "*?["):
        return ()
    try:
        with _opened(folder / FILE) as journal:
            return tuple(row[0] for row in journal.execute(f"{text} LIMIT {MOST}", [f"{prefix}*"]))
    except sqlite3.Error:  # somebody who presses the tabulator wants to hear nothing of it
        return ()


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    place = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(place, uri=True, timeout=_WAIT_S)) as journal:
        yield journal
