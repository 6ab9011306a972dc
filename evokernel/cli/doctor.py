"""Owns `evokernel doctor`: what of this machine works, what is missing, and what to do."""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from evokernel.cli import completion, memory_place, model_options, options
from evokernel.cli.choices import one_of
from evokernel.cli.flat import flat
from evokernel.cli.listing import put
from evokernel.cli.waiting import Waiting, waiting
from evokernel.cli.wording import folded
from evokernel.config import home, key_names

if TYPE_CHECKING:
    from evokernel.doctor import Finding

_STYLES = {"ok": "green", "warning": "yellow", "missing": "red"}
_STATE, _INDENT = 9, 22


def _checks() -> Iterable[str]:
    from evokernel.doctor import CHECKS

    return CHECKS


@flat
def doctor(
    checks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHECK",
            autocompletion=completion.among(_checks),
            help="Only these checks, by the names that are shown.",
        ),
    ] = None,
    *,
    model: model_options.ModelOptions,
    runs_dir: options.RunsDir = options.RUNS,
    memory: options.MemoryPath = None,
    as_json: options.AsJson = False,
) -> None:
    """Look at what a run needs: one line each, and what to do where something is missing.

    Takes a few seconds, downloads and sends nothing, and shows of keys only their names.

    With --model it asks that model one word instead, which costs some thirty tokens: latency,
    price, context, and which of the parameters are refused.

    Exit code 1: something is missing without which no run works.

    Example: evokernel doctor

    Example: evokernel doctor --model qwen3-coder --base-url http://localhost:8000/v1
    """
    from evokernel.doctor import CHECKS, Settings, examine

    names = [one_of("CHECK", CHECKS)(name) for name in checks or ()]
    where = memory_place.path(memory)
    settings = Settings(runs=runs_dir, home=home(), memory=where, keys=key_names())
    asked = model_options.proposer(model, is_checked=False)
    found = examine(settings, names) if names or not asked else iter(())
    found = chain(found, _model(asked)) if asked else found
    with waiting("looking", "doctor model" if asked else f"doctor {' '.join(names)}") as shown:
        findings = list(found) if as_json else list(_shown(found, shown))
    stopping = [finding.name for finding in findings if finding.stops_runs]
    if as_json:
        rows = [finding.model_dump(mode="json") for finding in findings]
        typer.echo(json.dumps({"can_run": not stopping, "findings": rows}, indent=2))
    else:
        _conclude(findings, stopping)
    if stopping:
        raise typer.Exit(1)


def _model(asked: "dict[str, Any]") -> "Iterator[Finding]":
    from evokernel.config import ModelConfig
    from evokernel.doctor.model import examine_model

    return examine_model(asked["proposer"], ModelConfig.model_validate(asked["model"]))


def _shown(findings: "Iterable[Finding]", shown: Waiting) -> "Iterator[Finding]":
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
        with shown.aside():
            console.print(text)
        yield finding


def _conclude(findings: "list[Finding]", stopping: list[str]) -> None:
    print()
    if stopping == ["model"]:
        put("The model cannot be asked.")
    elif stopping:
        put(f"No run works before this is repaired: {', '.join(stopping)}.")
    elif findings[0].name == "model":
        put("A run can use this model.")
    else:
        put("Nothing is missing that a run needs.")
    for state, said in (("warning", "Works with limits"), ("missing", "Optional and not there")):
        names = [f.name for f in findings if f.state == state and not f.stops_runs]
        if names:
            put(f"{said}: {', '.join(names)}.")
