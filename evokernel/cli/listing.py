"""Owns how a table reaches the reader: fitted to a terminal, whole and unpadded elsewhere."""

import shutil
import sys

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

from evokernel.cli.wording import folded

UNBOUNDED = 10_000
"""Columns of a file or a pipe: nothing is wrapped or cut there."""


LEAST = 16
"""Columns that a text needs to be read beside others."""


def show(table: Table) -> None:
    """Print a table; one without rows is left out, one that does not fit is a paragraph a row."""
    if not table.row_count:
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED
    if table.show_header and _needed(table) > width:
        _stack(table, width)
        return
    console = Console(markup=False, highlight=False, width=width)
    with console.capture() as printed:
        console.print(table)
    print("\n".join(line.rstrip() for line in printed.get().splitlines()))


def _needed(table: Table) -> int:
    """Columns of a terminal in which nothing has to be cut, and no text stands in a thin strip."""
    needed = 0
    for column in table.columns:
        texts = _texts(column)
        longest = max(map(cell_len, texts))
        word = max((cell_len(word) for text in texts for word in text.split()), default=0)
        needed += 2 + (longest if column.no_wrap else min(longest, max(LEAST, word)))
    return needed


def _texts(column: Column) -> list[str]:
    return [str(column.header), *map(str, column.cells)]


def _stack(table: Table, width: int) -> None:
    """Each row as its first cell and, below that, the others with their names."""
    first, *others = table.columns
    cells = [list(map(str, column.cells)) for column in others]
    for number, title in enumerate(first.cells):
        print(folded(str(title), width))
        said = (f"{column.header} {cells[n][number]}".strip() for n, column in enumerate(others))
        told = [text for n, text in enumerate(said) if cells[n][number]]
        if told:
            print(folded("; ".join(told), width, 4))


def put(text: str) -> None:
    """Print words: folded where it is a terminal that reads, with the indentation of each line."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in text.split("\n"):
        words = line.lstrip()
        print(folded(words, width, len(line) - len(words)), flush=True)


def show_pairs(headline: str, pairs: list[tuple[str, str]]) -> None:
    """Print a headline and named facts below it, folded where it is a terminal that reads."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    width = console.width if console.is_terminal else None
    indent = max(len(name) for name, _ in pairs) + 4
    console.print(folded(headline, width), style="bold")
    for name, text in pairs:
        if text:
            console.print(folded(text, width, indent, f"  {name}"))
