"""Owns tables of a page: what stands in them, and by what they are sorted and filtered."""

from collections.abc import Iterable

from evokernel.frozen import Frozen


class Column(Frozen):
    """One column."""

    title: str
    is_number: bool = False
    """Stands at the right, and the largest comes first where it is sorted by."""
    is_choice: bool = False
    """Few values: the page offers them as a filter."""
    hint: str = ""
    """What it means, as a tooltip."""


class Cell(Frozen):
    """One cell."""

    text: str
    value: float | None = None
    """By what it is sorted; its text where None."""
    link: str = ""
    """Place in the page, e.g. `#attempt-3`, or a relative file."""
    mark: str = ""
    """How it is coloured: `best`, `passed`, `failed`, `spoiled`, `faint`, `code` or several;
    `whole` keeps it in one line where others are wrapped, `wide` gives its text some room."""
    hint: str = ""
    """More about it, as a tooltip."""


class Row(Frozen):
    """One row."""

    cells: tuple[Cell, ...]
    id: str = ""
    """Its place in the page, for links."""
    mark: str = ""
    """As a cell's."""


class Table(Frozen):
    """A table, ready for `parts.table`."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    is_searched: bool = False
    """Whether the page offers a search box, and sorting by the heads."""
    is_long: bool = False
    """Whether cells may be wrapped; a plain table of numbers keeps its lines."""


def cell(given: "str | float | Cell | None") -> Cell:
    """A cell of a text, a number or nothing."""
    if isinstance(given, Cell):
        return given
    if given is None:
        return Cell(text="")
    return Cell(text=given) if isinstance(given, str) else Cell(text=f"{given:g}", value=given)


def row(*given: "str | float | Cell | None", id: str = "", mark: str = "") -> Row:
    """A row of such cells."""
    return Row(cells=tuple(map(cell, given)), id=id, mark=mark)


def table(heads: Iterable[str | Column], rows: Iterable[Row], **more: bool | str) -> Table:
    """A table; heads that are plain texts are plain columns.

    Raises:
        ValueError: a row has another number of cells than there are columns.
    """
    columns = tuple(Column(title=head) if isinstance(head, str) else head for head in heads)
    lines = tuple(rows)
    if wrong := next((line for line in lines if len(line.cells) != len(columns)), None):
        raise ValueError(f"{len(wrong.cells)} cells in a table of {len(columns)} columns")
    return Table.model_validate({"columns": columns, "rows": lines, **more})
