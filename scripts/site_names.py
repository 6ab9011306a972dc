"""Owns which names are public, and that the reference describes each of them."""

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from site_commands import undescribed
from site_source import Find

ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
DOORS = ("evokernel", "evokernel.memory", "evokernel.jit")
"""Modules whose names are all public."""


def check_names(pages: Sequence[str], find: Find) -> None:
    """Ask that every public name stands on a page, and that all which stands there is described.

    Args:
        pages: The texts of the pages of the reference.
        find: Reads what a name stands for.

    Raises:
        PluginError: names what is missing.
    """
    from mkdocs.exceptions import PluginError

    shown = {name for page in pages for name in ENTRY.findall(page)}
    absent = [f"no `::: {name}` on a page of the reference" for name in public() - shown]
    marks = re.findall(r"^<!-- commands: (.*) -->$", "\n".join(pages), re.MULTILINE)
    absent += [f"`evokernel {name}` on no page" for name in _commands() - _words(marks)]
    silent = [f"no docstring: `{name}`" for name in undocumented(shown, find)]
    silent += [f"no help text: `{name}`" for name in undescribed()]
    if absent or silent:
        raise PluginError("\n".join(sorted(absent + silent)))


def public() -> set[str]:
    """Every public name, as the module that owns it has it."""
    return {name for door in DOORS for name in _names(import_module(door))}


def undocumented(names: set[str], find: Find) -> list[str]:
    """Which of these names, and of what is public in them, have no docstring."""
    return [path for name in sorted(names) for path in _silent(find(name))]


def _silent(described: Any) -> Iterator[str]:
    if described.docstring is None:
        yield described.path
    if described.is_class:
        members = described.members.values()
        shown = (each for each in members if not each.is_alias and not each.name.startswith("_"))
        yield from (each.path for each in shown if each.docstring is None and _speaks(each))


def _speaks(member: Any) -> bool:
    """Whether a member is one that a reader wants explained: not what the base class says."""
    return member.is_function or (member.annotation is not None and member.is_attribute)


def _names(module: Any) -> Iterator[str]:
    homes = getattr(module, "_HOMES", None)
    for name in homes or module.__all__:
        if homes:
            home, _, other = homes[name].partition(":")
            yield f"{home}.{other or name}"
        else:
            yield f"{module.__name__}.{name}"


def _commands() -> set[str]:
    from evokernel.cli import COMMANDS

    return {*COMMANDS}


def _words(texts: Sequence[str]) -> set[str]:
    return {word for text in texts for word in text.split()}
