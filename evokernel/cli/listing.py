"""Owns how a table reaches the reader: fitted to a terminal, whole and unpadded elsewhere."""

import sys

from rich.console import Console
from rich.table import Table

from evokernel.cli.wording import folded

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


def show_pairs(headline: str, pairs: list[tuple[str, str]]) -> None:
    """Print a headline and named facts below it, folded where it is a terminal that reads."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    width = console.width if console.is_terminal else None
    indent = max(len(name) for name, _ in pairs) + 4
    console.print(folded(headline, width), style="bold")
    for name, text in pairs:
        if text:
            console.print(folded(text, width, indent, f"  {name}"))
