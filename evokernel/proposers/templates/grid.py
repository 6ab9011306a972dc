"""Owns the choice of a grid: which axes of a graph's formulas become rows, which become columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from evokernel.proposers.templates.expressions import Domain, Unsupported
from evokernel.proposers.templates.symbols import Apply, Constant, Given, Made, Symbols, Window
from evokernel.proposers.templates.views import Run, contiguous, merge


@dataclass
class Grid:
    """The axes before they are merged, and everything that lies on them."""

    symbols: Symbols
    shape: tuple[int, ...]
    border: int | None
    """Axes from this number on are a row's columns; None if any cut will do."""
    placed: dict[int, int] = field(default_factory=dict)
    """Symbols, as results and arguments of reductions have them, to the same on the grid."""
    windows: list[int] = field(default_factory=list)
    """Symbols on the grid that read a tensor from outside."""

    @property
    def rows(self) -> int | None:
        """Number of rows, if the graph fixes it."""
        return None if self.border is None else math.prod(self.shape[: self.border])

    def place(self, symbol: int) -> int:
        """A symbol per element, per row or of one element, expanded to the whole grid.

        Raises:
            Unsupported: its shape fits neither.
        """
        if symbol not in self.placed:
            self.placed[symbol] = self._place(symbol)
        return self.placed[symbol]

    def _place(self, symbol: int) -> int:
        if isinstance(self.symbols.items[symbol], Constant):
            return symbol
        shape = self.symbols.shape(symbol)
        size, rank = math.prod(shape), len(self.shape)
        if size == math.prod(self.shape):
            return self.symbols.reshape(symbol, self.shape, strict=True)
        if size == self.rows and self.border is not None:
            row = (*self.shape[: self.border], *(1,) * (rank - self.border))
            return self.symbols.expand(self.symbols.reshape(symbol, row), self.shape)
        if size == 1:
            return self.symbols.expand(self.symbols.reshape(symbol, (1,) * rank), self.shape)
        raise Unsupported(
            f"a value of shape {list(shape)} beside rows of shape {list(self.shape)} is not "
            "covered in one kernel"
        )

    def visit(self, symbol: int) -> None:
        """Place everything that a symbol needs, itself and the arguments of reductions included."""
        todo, seen = [self.place(symbol)], set[int]()
        while todo:
            current = todo.pop()
            if current in seen:
                continue
            seen.add(current)
            item = self.symbols.items[current]
            if isinstance(item, Apply):
                todo.extend(item.args)
            elif isinstance(item, Window):
                made = self.symbols.tensors[item.tensor]
                if isinstance(made, Made):
                    todo.extend(self.place(s) for s in (made.arg, made.index) if s >= 0)
                elif current not in self.windows:
                    self.windows.append(current)

    def is_per_row(self, window: Window) -> bool:
        """Whether it reads a made tensor in the rows' own order, the same for all columns."""
        border = len(self.shape) if self.border is None else self.border
        row = (*contiguous(self.shape[:border]), *(0,) * (len(self.shape) - border))
        return self._walks(window, row)

    def is_per_element(self, window: Window) -> bool:
        """Whether it reads a made tensor in the grid's own order."""
        return self._walks(window, contiguous(self.shape))

    def is_single(self, window: Window) -> bool:
        """Whether it reads one element everywhere."""
        return self._walks(window, (0,) * len(self.shape))

    def _walks(self, window: Window, strides: tuple[int, ...]) -> bool:
        view = window.view
        return view.offset == 0 and all(
            mine == theirs
            for mine, theirs, size in zip(view.strides, strides, self.shape, strict=True)
            if size != 1
        )


@dataclass(frozen=True)
class Layout:
    """A grid with its axes merged."""

    domain: Domain
    outer: tuple[Run, ...]
    column: Run | None
    """None where a row has one element."""
    windows: dict[int, int]
    """Symbol of a window from outside to its place in `Run.strides`."""

    def strides(self, window: int) -> tuple[tuple[int, ...], int]:
        """Strides along the merged outer axes, and along the columns."""
        place = self.windows[window]
        step = self.column.strides[place] if self.column else 0
        return tuple(run.strides[place] for run in self.outer), step


def choose(symbols: Symbols, results: Iterable[int]) -> Grid:
    """The grid of a graph: that of its finest reduction or scan, else that of its results."""
    results = tuple(results)
    anchors = [_anchor(symbols, m) for m in _made(symbols, results) if m.kind != "same"]
    if anchors:
        shape, axes = max(anchors, key=lambda a: (math.prod(a[0]), -math.prod(a[0][-a[1] :])))
        border = len(shape) - axes
        return Grid(symbols, shape, border or None)
    shapes = [symbols.shape(r) for r in results]
    return Grid(symbols, max(shapes, key=math.prod, default=()), None)


def layout(grid: Grid) -> Layout:
    """Merge the grid's axes as far as every window from outside allows.

    Raises:
        Unsupported: a window's columns do not lie side by side.
    """
    views = [_window(grid.symbols, w).view for w in grid.windows]
    runs = merge(grid.shape, [v.strides for v in views], grid.border)
    border = len(grid.shape) - 1 if grid.border is None else grid.border
    inner = [run for run in runs if run.axes[-1] >= border]
    outer = tuple(run for run in runs if run.axes[-1] < border)
    if grid.border is None and not inner and outer:
        # The last axes have one element each: the last long one is as good for columns.
        outer, inner = outer[:-1], [outer[-1]]
    if len(inner) > 1:
        raise Unsupported("a row whose elements do not lie evenly in memory is not covered")
    column = inner[0] if inner else None
    for place, window in enumerate(grid.windows):
        if column and column.strides[place] not in (0, 1):
            raise Unsupported(
                f"reading `{_source(grid.symbols, window)}` across its rows (transposed or with a "
                "step) is not covered"
            )
    return Layout(
        domain=Domain(outer=tuple(r.size for r in outer), cols=column.size if column else 1),
        outer=outer,
        column=column,
        windows={window: place for place, window in enumerate(grid.windows)},
    )


def _window(symbols: Symbols, symbol: int) -> Window:
    item = symbols.items[symbol]
    assert isinstance(item, Window)
    return item


def _source(symbols: Symbols, symbol: int) -> str:
    tensor = symbols.tensors[_window(symbols, symbol).tensor]
    assert isinstance(tensor, Given)
    return tensor.node.name


def _made(symbols: Symbols, results: Iterable[int]) -> list[Made]:
    """Tensors that the results need and the kernel makes."""
    found: dict[int, Made] = {}
    todo, seen = list(results), set[int]()
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        item = symbols.items[current]
        if isinstance(item, Apply):
            todo.extend(item.args)
        elif isinstance(item, Window):
            made = symbols.tensors[item.tensor]
            if isinstance(made, Made):
                found[item.tensor] = made
                todo.extend(s for s in (made.arg, made.index) if s >= 0)
    return list(found.values())


def _anchor(symbols: Symbols, made: Made) -> tuple[tuple[int, ...], int]:
    return symbols.shape(made.arg), made.axes
