"""Owns the reference of the command line, written from the commands themselves."""

import re
from collections.abc import Iterator
from typing import Any

from site_source import Find

from evokernel.cli import COMMANDS, fetch

EXAMPLE = "Example: "
_KIND = re.compile(r" <[\w\[\]]+>$")
"""What follows the name of an argument in `--help`; the sentence beside it says more."""


def commands(names: list[str], find: Find) -> str:
    """The sections of some commands, those of a group one level below it."""
    return "\n".join(line for name in names for line in _section(fetch(name), name, 2))


def undescribed() -> list[str]:
    """Commands, arguments and options that say nothing of themselves."""
    return [found for name in COMMANDS for found in _undescribed(fetch(name), name)]


def _undescribed(command: Any, name: str) -> Iterator[str]:
    if not command.help:
        yield f"evokernel {name}"
    for parameter in command.params:
        if parameter.name != "help" and not parameter.help:
            yield f"evokernel {name}: {parameter.name}"
    for inner, each in getattr(command, "commands", {}).items():
        yield from _undescribed(each, f"{name} {inner}")


def _section(command: Any, name: str, level: int) -> Iterator[str]:
    context = command.context_class(command, info_name=f"evokernel {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield f"\n{'#' * level} evokernel {name} {{ #{name.replace(' ', '-')} }}\n"
    told = f"{command.help}\n\n{command.epilog or ''}".strip().split("\n\n")
    yield from (f"{part}\n" for part in told if not part.startswith(EXAMPLE))
    yield f"```\n{' '.join(usage.split())}\n```\n"
    yield from _table(command, context)
    yield from _examples([part for part in told if part.startswith(EXAMPLE)])
    for inner, each in getattr(command, "commands", {}).items():
        yield from _section(each, f"{name} {inner}", level + 1)


def _table(command: Any, context: Any) -> Iterator[str]:
    rows = [parameter.get_help_record(context) for parameter in command.params]
    rows = [row for row in rows if row and not row[0].startswith("--help")]
    if rows:
        yield "| argument or option | what it is |\n|---|---|"
    for names, text in rows:
        yield f"| `{_KIND.sub('', names)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return re.sub(r"([|\[\]<])", r"\\\1", " ".join(text.split()))


def _examples(parts: list[str]) -> Iterator[str]:
    if parts:
        lines = (" ".join(part.removeprefix(EXAMPLE).split()) for part in parts)
        yield "\n```\n" + "\n".join(lines) + "\n```"
