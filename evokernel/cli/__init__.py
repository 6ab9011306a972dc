"""Owns the command line: the table of commands, each fetched on first use, and the exit codes."""

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from evokernel import __version__
from evokernel.errors import EvoKernelError

COMMANDS = {
    "run": ("run:run", "Optimise one task or several."),
    "resume": ("run:resume", "Continue a run that was interrupted."),
}
"""Name to place (`module:name` within this package) and the line that `--help` shows. The place
holds a function, or a `typer.Typer` with several. A module here may import nothing heavy at its
top, although only the command that is used is imported at all."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, by the shells' convention of 128 + SIGINT."""


def main() -> None:
    """Run the command line; a fault that the user can repair is one paragraph, not a traceback."""
    try:
        app(prog_name="evokernel")
    except EvoKernelError as error:
        _complain(" ".join([str(error), *getattr(error, "__notes__", ())]))
        sys.exit(error.exit_code)
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "interrupted")
        sys.exit(INTERRUPTED)


def _complain(message: str) -> None:
    print(f"evokernel: {message}", file=sys.stderr)


class _LazyGroup(TyperGroup):
    """Shows every command of the table, and imports the one that is used."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, (_, line) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, _fetch(name) if name in COMMANDS else command, rest


def _fetch(name: str) -> Any:
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"evokernel.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        found = single
    command = typer.main.get_command(found)
    command.name = name
    return command


app = typer.Typer(
    cls=_LazyGroup,
    help="Make PyTorch operators fast, and remember what helped.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"evokernel {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version."
    ),
) -> None: ...
