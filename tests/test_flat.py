"""Commands that take records: their fields are plain options on the command line."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from evokernel.cli.flat import flat


@dataclass(frozen=True, kw_only=True)
class Size:
    """A record with options."""

    rows: Annotated[int, typer.Option(min=1, help="How many rows.")] = 3
    tall: Annotated[bool, typer.Option("--tall", help="Twice as many.")] = False


@dataclass(frozen=True, kw_only=True)
class Colour(Size):
    """A record that adds to another."""

    colour: Annotated[str | None, typer.Option(metavar="NAME", help="Of what colour.")] = None


def said(*arguments: str) -> tuple[int, str]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @flat
    def paint(
        what: Annotated[str, typer.Argument(metavar="THING")],
        *,
        look: Colour,
        quick: Annotated[bool, typer.Option("--quick", help="At once.")] = False,
    ) -> None:
        """Paint a thing."""
        print(what, look, quick)

    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_fields_become_options_and_reach_the_command_as_one_record():
    code, out = said("door", "--rows", "5", "--colour", "red", "--quick")
    assert (code, out) == (0, f"door {Colour(rows=5, colour='red')} True\n")


def test_defaults_are_those_of_the_record():
    assert said("door") == (0, f"door {Colour()} False\n")


def test_help_shows_every_field_with_its_text():
    code, out = said("--help")
    assert code == 0
    for word in (
        "Paint a thing.",
        "--rows",
        "How many rows.",
        "--tall",
        "--colour NAME",
        "--quick",
    ):
        assert word in out


def test_limits_of_a_field_are_checked():
    code, out = said("door", "--rows", "0")
    assert code == 2
    assert "--rows" in out
