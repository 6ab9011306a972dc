"""Owns options that take one of some names: checked, completed, the nearest suggested."""

from collections.abc import Callable, Iterable
from typing import Any

import typer

Names = Iterable[str] | Callable[[], Iterable[str]]
"""What is known; called late where finding out takes an import."""


def one_of(name: str, known: Iterable[str]) -> Callable[[str], str]:
    """A check for an option's value that suggests the nearest of the known ones.

    Raises (when called):
        ConfigError: another value.
    """
    values = tuple(known)

    def check(value: str) -> str:
        if value in values:
            return value
        from evokernel.errors import ConfigError
        from evokernel.task.constants import nearest

        expected = ", ".join(f"`{known}`" for known in values)
        raise ConfigError(
            f"`{name}` cannot be `{value}`; expected one of {expected}.{nearest(value, values)}"
        )

    return check


def choice(flag: str, known: Names, help: str, metavar: str = "NAME") -> Any:
    """Declare an option that takes one of the known names, or is left out.

    Args:
        flag: As it is typed, e.g. `--policy`.
        known: The names.
        help: Its line.
        metavar: What stands for the value there.
    """

    def names() -> tuple[str, ...]:
        return tuple(known() if callable(known) else known)

    def check(value: str | None) -> str | None:
        return value and one_of(flag, names())(value)

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return typer.Option(flag, metavar=metavar, callback=check, autocompletion=complete, help=help)
