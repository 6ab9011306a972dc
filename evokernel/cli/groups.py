"""Owns `Group`: a set of commands that suggests names and lets an interruption say its piece."""

from typing import Any

import typer
from typer.core import TyperGroup


def group(help: str, example: str) -> typer.Typer:
    """An empty set of commands; `help` is its line, `example` a command line that works."""
    return typer.Typer(
        cls=Group,
        help=help,
        epilog=f"Example: {example}",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
    )


class Stopped(Exception):
    """Ctrl-C, or a reader of our output that has gone; the cause is the original exception.

    Typer turns both into an exit code and drops what they say, so they travel in here.
    """


class Group(TyperGroup):
    """A set of commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command, or suggest the nearest name.

        Raises:
            ConfigError: there is no such command.
        """
        known = self.list_commands(ctx)
        is_wrong = args and args[0] not in known and not args[0].startswith("-")
        if is_wrong and not ctx.resilient_parsing:  # a shell asks what could stand there
            from evokernel.errors import ConfigError
            from evokernel.task.constants import nearest

            raise ConfigError(
                f"`{args[0]}` is no command of `{ctx.command_path}`; expected "
                f"{', '.join(f'`{name}`' for name in known)}.{nearest(args[0], known)} "
                f"`{ctx.command_path} --help` describes them"
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Carry the command out.

        Raises:
            Stopped: by Ctrl-C, or by a reader that has gone.
        """
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError) as error:
            raise Stopped from error
