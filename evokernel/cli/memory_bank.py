"""Owns `evokernel memory trim`: what leaves the bank of what may be retrieved."""

from typing import Annotated

import typer
from rich.table import Table

from evokernel.cli import options
from evokernel.cli.listing import put, show
from evokernel.cli.memory_place import opened_at, print_json
from evokernel.cli.wording import counted


def trim(
    is_done: Annotated[bool, typer.Option("--yes", help="Do it; without, only show it.")] = False,
    task_slots: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Most of one task, backend and kind.  [default: 32]"),
    ] = None,
    bank: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Most of all.  [default: 50000]")
    ] = None,
    policy: options.Policy = None,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Retire what harms, what is there twice, and the least promising of what is too much.

    What is retired is not shown any more; the journal keeps it and `memory reinstate` brings it
    back. The same happens, with the defaults, at the end of every run for the task that it was on.

    Example: evokernel memory trim --task-slots 8
    """
    limits = {"task_slots": task_slots, "bank": bank, "policy": policy}
    with opened_at(memory, settings=limits) as opened:
        leaving = opened.trim() if is_done else opened.surplus()
    if as_json:
        print_json({"retired": dict(leaving), "is_done": is_done})
        return
    table = Table("experience", "why", box=None)
    for one in leaving:
        table.add_row(one.experience, one.reason)
    show(table)
    number = counted(len(leaving), "experience")
    told = f"{number} retired" if is_done else f"nothing was changed: --yes would retire {number}"
    put(told)
