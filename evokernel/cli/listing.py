"""Owns how a table reaches the reader: fitted to a terminal, whole and unpadded elsewhere."""

import sys

from rich.console import Console
from rich.table import Table

UNBOUNDED = 10_000
"""Columns of a file or a pipe: nothing is wrapped or cut there."""


def show(table: Table) -> None:
    """Print a table; one without rows is left out."""
    if not table.row_count:
        return
    width = None if sys.stdout.isatty() else UNBOUNDED
    console = Console(markup=False, highlight=False, width=width)
    with console.capture() as printed:
        console.print(table)
    print("\n".join(line.rstrip() for line in printed.get().splitlines()))
