"""Owns the reference of the command line, written from the commands themselves."""

import re
from collections.abc import Iterator
from typing import Any

from site_source import Find

from evokernel.cli import COMMANDS, fetch


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
    yield f"{command.help.strip()}\n"
    yield f"```\n{' '.join(usage.split())}\n```\n"
    yield from _table(command, context)
    yield from _examples(command.epilog or "")
    for inner, each in getattr(command, "commands", {}).items():
        yield from _section(each, f"{name} {inner}", level + 1)


def _table(command: Any, context: Any) -> Iterator[str]:
    rows = [parameter.get_help_record(context) for parameter in command.params]
    rows = [row for row in rows if row and not row[0].startswith("--help")]
    if rows:
        yield "| argument or option | what it is |\n|---|---|"
    for names, text in rows:
        yield f"| `{names}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return re.sub(r"([|\[\]<])", r"\\\1", " ".join(text.split()))


def _examples(epilog: str) -> Iterator[str]:
    lines = [" ".join(part.split()) for part in epilog.split("\n\n")]
    found = [line.removeprefix("Example: ") for line in lines if line.startswith("Example: ")]
    if found:
        yield "\n```\n" + "\n".join(found) + "\n```"
    rest = [line for line in lines if line and not line.startswith("Example: ")]
    yield from (f"\n{line}" for line in rest)
