"""Owns `evokernel doctor`: what of this machine works, what is missing, and what to do."""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from evokernel.cli import memory_place, options
from evokernel.cli.wording import folded
from evokernel.config import home, key_names

if TYPE_CHECKING:
    from evokernel.doctor import Finding

_STYLES = {"ok": "green", "warning": "yellow", "missing": "red"}
_STATE, _INDENT = 9, 22


def doctor(
    checks: Annotated[
        list[str] | None,
        typer.Argument(metavar="CHECK", help="Only these checks, by the names that are shown."),
    ] = None,
    runs_dir: options.RunsDir = options.RUNS,
    memory: options.MemoryPath = None,
    as_json: options.AsJson = False,
) -> None:
    """Look at what a run needs: one line each, and what to do where something is missing.

    Takes a few seconds, downloads and sends nothing, and shows of keys only their names.

    Exit code 1: something is missing without which no run works.

    Example: evokernel doctor
    """
    from evokernel.doctor import CHECKS, Settings, examine

    names = [options.one_of("CHECK", CHECKS)(name) for name in checks or ()]
    settings = Settings(
        runs=runs_dir,
        home=home(),
        memory=memory_place.path(memory),
        keys=key_names(),
    )
    found = examine(settings, names)
    findings = list(found) if as_json else list(_shown(found))
    stopping = [finding.name for finding in findings if finding.stops_runs]
    if as_json:
        rows = [finding.model_dump(mode="json") for finding in findings]
        typer.echo(json.dumps({"can_run": not stopping, "findings": rows}, indent=2))
    else:
        _conclude(findings, stopping)
    if stopping:
        raise typer.Exit(1)


def _shown(findings: "Iterable[Finding]") -> "Iterator[Finding]":
    """Print each as soon as it is there."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for finding in findings:
        head = f"{finding.state:<{_STATE}}{finding.name}"
        text = Text(folded(finding.found, width, _INDENT, head))
        text.stylize(_STYLES[finding.state], 0, len(finding.state))
        if finding.advice and width is not None:
            text.append("\n" + folded(finding.advice, width, _INDENT + 3, " " * _INDENT + "-> "))
        elif finding.advice:
            text.append(f" -> {finding.advice}")
        console.print(text)
        yield finding


def _conclude(findings: "list[Finding]", stopping: list[str]) -> None:
    print()
    if stopping:
        print(f"No run works before this is repaired: {', '.join(stopping)}.")
    else:
        print("Nothing is missing that a run needs.")
    for state, said in (("warning", "Works with limits"), ("missing", "Optional and not there")):
        names = [f.name for f in findings if f.state == state and not f.stops_runs]
        if names:
            print(f"{said}: {', '.join(names)}.")
