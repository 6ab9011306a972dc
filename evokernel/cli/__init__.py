"""Owns the command line: the table of commands, each fetched on first use."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from evokernel import __version__
from evokernel.cli.groups import Group

COMMANDS = {
    "run": ("run:run", "Make one task fast, or several one after the other."),
    "resume": ("run:resume", "Continue a run that was interrupted."),
    "evaluate": ("evaluate:evaluate", "Judge a candidate: right, by its own means, how fast."),
    "compile": ("compile:compile_file", "Build the kernels of a file."),
    "export": ("export:export", "Write a kernel as one file that needs torch only."),
    "verify": ("verify:verify", "Measure a result again: does it hold here and now?"),
    "report": ("report:report", "Write a report of a run, with plots."),
    "memory": ("memory:app", "Look at what was learned, and keep it in order."),
    "prompts": ("prompts:app", "Read what a model is shown, and replace its texts."),
    "task": ("task:app", "List the built-in tasks, or look at one."),
    "env": ("env:app", "Train models: a step environment, and trajectories as data."),
    "serve": ("serve:app", "Serve other programs, such as coding agents (MCP)."),
    "selftest": ("selftest:selftest", "Are cheats caught here, and honest kernels believed?"),
    "doctor": ("doctor:doctor", "Look at what a run needs, and say what is missing."),
}
"""Name to place (`module:name` within this package) and the line that `--help` shows. The place
holds a function, or a `typer.Typer` with several. A module here may import nothing heavy at its
top, although only the command that is used is imported at all."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; a fault is told in one paragraph on standard error.

    Args:
        arguments: What follows the program's name; None takes those of the process.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong usage or set-up, 130 interrupted.
    """
    try:
        code = app(arguments, prog_name="evokernel", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        from evokernel.cli.faults import tell

        return tell(error)
    return code if isinstance(code, int) else 0


class _LazyGroup(Group):
    """Shows every command of the table, and imports the one that is used."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, (_, line) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, fetch(name) if name in COMMANDS else command, rest


def fetch(name: str) -> Any:
    """The command of that name, or the group of commands, with the module that it is in."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"evokernel.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name)(found)
        found = single
    command = typer.main.get_command(found)
    command.name = name
    return command


app = typer.Typer(
    cls=_LazyGroup,
    help="Make PyTorch operators fast, and remember what helped.",
    epilog="Example: evokernel run softmax --attempts 8",
    no_args_is_help=True,
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
