"""Tables and words as a reader gets them: fitted to a terminal, whole elsewhere."""

import sys

import pytest
from rich.table import Table

from evokernel.cli.listing import put, show


def table() -> Table:
    found = Table(box=None)
    found.add_column("id", no_wrap=True)
    found.add_column("speed", no_wrap=True)
    found.add_column("what", overflow="fold")
    found.add_row("kernel-0123456789ab", "2.50x eager", "softmax by [bold]wide[/bold] accumulators")
    found.add_row("lesson-ba9876543210", "", "ended as wrong_values")
    return found


@pytest.fixture
def at(monkeypatch):
    """Return a function that makes standard output a terminal of so many columns."""

    def widen(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "dumb")  # no bold headers
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    return widen


@pytest.mark.parametrize("columns", [80, 200])
def test_a_table_is_a_table_where_it_fits(at, capsys, columns):
    at(columns)
    show(table())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "speed", "what"]
    assert max(map(len, lines)) <= columns
    assert "[bold]wide[/bold]" in lines[1]


def test_where_it_does_not_fit_each_row_is_a_paragraph(at, capsys):
    at(44)
    show(table())
    assert capsys.readouterr().out.splitlines() == [
        "kernel-0123456789ab",
        "    speed 2.50x eager; what softmax by",
        "    [bold]wide[/bold] accumulators",
        "lesson-ba9876543210",
        "    what ended as wrong_values",
    ]


def test_a_file_gets_whole_lines(capsys):
    wide = Table("a", "b", box=None)
    wide.add_row("word " * 60, "last")
    show(wide)
    put("word " * 60)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("last")


def test_words_are_folded_with_their_indentation(at, capsys):
    at(30)
    put("  on a machine with a long name; `evokernel verify x` looks again")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 30
    assert all(line.startswith("  ") for line in lines)
    assert sum("`evokernel verify x`" in line for line in lines) == 1
