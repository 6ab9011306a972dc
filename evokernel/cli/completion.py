"""Owns what a shell completes on the command line: tasks, runs, experiences, steps.

Nothing here imports torch or opens a memory, and nothing complains: it runs while somebody types.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

Names = Iterable[str] | Callable[[], Iterable[str]]
"""What is known; called late where finding out takes an import."""
Complete = Callable[[str], list[str]]


def among(known: Names) -> Complete:
    """Completes one of these names."""

    def complete(incomplete: str) -> list[str]:
        names = known() if callable(known) else known
        return [name for name in names if name.startswith(incomplete)]

    return complete


def tasks(incomplete: str) -> list[str]:
    """Names of built-in tasks; where none fits, most shells go on with files."""
    from evokernel.task import Task

    return [name for name in Task.names() if name.startswith(incomplete)]


def recorded_tasks(incomplete: str) -> list[str]:
    """Names of the tasks whose recordings come along."""
    folder = Path(__file__).parent.with_name("study") / "recordings"
    names = {file.name.partition("-")[2].partition(".")[0] for file in folder.glob("*.json.gz")}
    return sorted(name for name in names if name.startswith(incomplete))


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the runs and campaigns below `--runs-dir`, newest first."""
    folder = Path(ctx.params.get("runs_dir") or "runs")
    marks = ("run.json", "campaign.json")
    found = {file.parent.name for mark in marks for file in folder.glob(f"{incomplete}*/{mark}")}
    return sorted(found, reverse=True)


def experiences(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids in the memory that the command is about."""
    from evokernel.memory import names

    return list(names.experiences(_memory(ctx), incomplete))


def steps(ctx: typer.Context, incomplete: str) -> list[str]:
    """Steps that its journal knows."""
    from evokernel.memory import names

    return list(names.steps(_memory(ctx), incomplete))


def _memory(ctx: typer.Context) -> Path:
    from evokernel.cli import memory_place

    return memory_place.path(ctx.params.get("memory"))
