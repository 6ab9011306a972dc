"""Owns options that take one of some names: checked, completed, the nearest suggested."""

from collections.abc import Callable, Iterable
from typing import Any

import typer

from evokernel.cli.completion import Names, among

Own = Callable[[str], object]
"""Looks for `MODULE:NAME` of the user's own; raises `ConfigError` where it is not to be had."""
LISTED = 40
"""More names than this are not printed: nobody reads them."""


def own_policy(place: str) -> object:
    """A memory policy of the user's own.

    Raises:
        ConfigError: it cannot be imported, or is none.
    """
    from evokernel.memory.policies import recipe_of

    return recipe_of(place)


def one_of(name: str, known: Iterable[str], own: Own | None = None) -> Callable[[str], str]:
    """A check for an option's value that suggests the nearest of the known ones.

    Args:
        name: The option.
        known: Its values.
        own: Looks for one of the user's own, where those may be named.

    Raises (when called):
        ConfigError: another value.
    """
    values = tuple(known)

    def check(value: str) -> str:
        if value in values or (own and ":" in value and own(value)):
            return value
        from evokernel.errors import ConfigError
        from evokernel.task.constants import nearest

        expected = f"one of {', '.join(f'`{known}`' for known in values)}"
        if len(values) > LISTED:
            expected = f"one of {len(values)} names that a shell completes"
        raise ConfigError(
            f"`{name}` cannot be `{value}`; expected {expected}.{nearest(value, values)}"
        )

    return check


def choice(
    flag: str, known: Names, help: str, metavar: str = "NAME", own: Own | None = None
) -> Any:
    """Declare an option that takes one of the known names, or is left out.

    Args:
        flag: As it is typed, e.g. `--policy`.
        known: The names.
        help: Its line.
        metavar: What stands for the value there.
        own: Looks for one of the user's own, where those may be named.
    """

    def names() -> tuple[str, ...]:
        return tuple(known() if callable(known) else known)

    def check(ctx: typer.Context, value: str | None) -> str | None:
        return value if ctx.resilient_parsing or not value else one_of(flag, names(), own)(value)

    complete = among(names)
    return typer.Option(flag, metavar=metavar, callback=check, autocompletion=complete, help=help)
