"""Owns the choice of a grid: which axes of a graph's formulas become rows, which become columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from evokernel.proposers.templates.domain import Domain, Walk
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.symbols import Apply, Constant, Given, Made, Symbols, Window
from evokernel.proposers.templates.views import Guard, Run, View, contiguous, merge

_APART = 16
"""Farthest distance of a pool's windows for which columns are gathered one by one (ours)."""


@dataclass
class Grid:
    """The axes before they are merged, and everything that lies on them."""

    symbols: Symbols
    natural: tuple[int, ...]
    """Sizes of the axes in the order in which results have them."""
    dims: tuple[int, ...] = ()
    """Those axes along which a row lies; empty if any cut will do."""
    backwards: bool = False
    """Whether rows run from their ends."""
    pools: bool = False
    """Whether rows are windows: columns may then lie apart."""
    placed: dict[int, int] = field(default_factory=dict)
    """Symbols, as results and arguments of reductions have them, to the same on the grid."""
    windows: list[int] = field(default_factory=list)
    """Symbols on the grid that read a tensor from outside."""
    guards: list[Guard] = field(default_factory=list)
    """Of reductions, on the grid."""

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The natural axes in the grid's order: rows before what lies along them."""
        kept = [axis for axis in range(len(self.natural)) if axis not in self.dims]
        return (*kept, *self.dims)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes in the grid's order."""
        return tuple(self.natural[axis] for axis in self.order)

    @property
    def border(self) -> int | None:
        """Axes from this number on lie along a row; None if any cut will do."""
        return len(self.natural) - len(self.dims) if self.dims else None

    @property
    def rows(self) -> int | None:
        """Number of rows, if the graph fixes it."""
        return None if self.border is None else math.prod(self.shape[: self.border])

    @cached_property
    def elements(self) -> View:
        """Where a contiguous tensor of all elements has them."""
        return self.on_grid(View.whole(self.natural))

    def on_grid(self, view: View) -> View:
        """A window with natural axes, in the grid's order."""
        turned = view.permute(self.order)
        if not self.backwards:
            return turned
        return turned.flip(range(self.border or 0, len(self.shape)))

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
            natural = self.symbols.reshape(symbol, self.natural, strict=True)
            return self.symbols.view(natural, self.on_grid)
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
                    self.guards.extend(self.guarded(made))
                elif current not in self.windows:
                    self.windows.append(current)

    def guarded(self, made: Made) -> tuple[Guard, ...]:
        """The guards of a reduction on the grid."""
        bare = View(shape=self.natural, strides=(0,) * len(self.natural), guards=made.guards)
        return self.on_grid(bare).guards if made.guards else ()

    def has_rows_of(self, made: Made) -> bool:
        """Whether a reduction or scan runs along the grid's rows."""
        shape = self.symbols.shape(made.arg)
        kept = tuple(1 if axis in made.dims else size for axis, size in enumerate(shape))
        view = View(shape=shape, strides=contiguous(kept)).reshape(self.natural)
        return view is not None and self._is_row_number(view.permute(self.order))

    def is_per_row(self, window: Window) -> bool:
        """Whether it reads a made tensor in the rows' own order, the same for all columns."""
        return self._is_row_number(window.view)

    def _is_row_number(self, view: View) -> bool:
        border = self.border or 0
        row = (*contiguous(self.shape[:border]), *(0,) * (len(self.shape) - border))
        return self._walks(view, row)

    def is_per_element(self, window: Window) -> bool:
        """Whether it reads a made tensor in the grid's own order."""
        return self._walks(window.view, self.elements.strides, self.elements.offset)

    def is_single(self, window: Window) -> bool:
        """Whether it reads one element everywhere."""
        return self._walks(window.view, (0,) * len(self.shape))

    def _walks(self, view: View, strides: tuple[int, ...], offset: int = 0) -> bool:
        return view.offset == offset and all(
            mine == theirs
            for mine, theirs, size in zip(view.strides, strides, self.shape, strict=True)
            if size != 1
        )


@dataclass(frozen=True)
class Layout:
    """A grid with its axes merged."""

    domain: Domain
    outer: tuple[Run, ...]
    depth: tuple[Run, ...]
    column: Run | None
    """None where a line has one element."""

    def walk(self, strides: tuple[int, ...], offset: int) -> Walk:
        """Strides of the grid's axes as strides of the merged ones."""
        return Walk(
            offset=offset,
            strides=tuple(strides[run.axes[-1]] for run in self.outer),
            depth=tuple(strides[run.axes[-1]] for run in self.depth),
            step=strides[self.column.axes[-1]] if self.column else 0,
        )


def choose(symbols: Symbols, results: Iterable[int]) -> Grid:
    """The grid of a graph: that of its finest reduction or scan, else that of its results."""
    results = tuple(results)
    made = [m for m in _made(symbols, results) if m.kind != "same"]
    if made:
        finest = max(made, key=lambda m: _fineness(symbols.shape(m.arg), m.dims))
        shape = symbols.shape(finest.arg)
        kept = math.prod(size for axis, size in enumerate(shape) if axis not in finest.dims)
        turned = {m.backwards for m in made if m.kind == "scan"}
        if len(turned) > 1:
            raise Unsupported("scans from both ends are not covered in one kernel")
        dims = finest.dims if kept > 1 else ()
        return Grid(symbols, shape, dims, True in turned, any(m.pools for m in made))
    shapes = [symbols.shape(r) for r in results]
    return Grid(symbols, max(shapes, key=math.prod, default=()))


def _fineness(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, int]:
    return math.prod(shape), -math.prod(shape[d] for d in dims)


def layout(grid: Grid, writes_elements: bool) -> Layout:
    """Merge the grid's axes as far as everything that lies on it allows.

    Args:
        grid: With everything placed.
        writes_elements: Whether there is a result of all elements.

    Raises:
        Unsupported: a window's columns do not lie side by side.
    """
    views = [_window(grid.symbols, w).view for w in grid.windows]
    walks = [v.strides for v in views] + ([grid.elements.strides] if writes_elements else [])
    guards = [*grid.guards, *(g for v in views for g in v.guards)]
    runs = merge(grid.shape, [*walks, *(g.strides for g in guards)], grid.border)
    found = _any_cut(grid, runs) if grid.border is None else _cut(grid, runs, grid.border)
    if grid.guards and not found.domain.across:
        raise Unsupported("a window that reaches over the border and gives one column only")
    return found


def _cut(grid: Grid, runs: list[Run], border: int) -> Layout:
    """Rows before the border, and what lies along them behind it."""
    outer = tuple(run for run in runs if run.axes[-1] < border)
    inner = tuple(run for run in runs if run.axes[-1] >= border)
    along = Layout(_domain(outer, inner[:-1], inner[-1:]), outer, inner[:-1], inner[-1])
    if not outer:
        return _side_by_side(grid, along)
    across = Layout(
        _domain(outer[:-1], inner, outer[-1:], True, grid.pools), outer[:-1], inner, outer[-1]
    )
    last = max(axis for axis, size in enumerate(grid.natural) if size != 1)
    ways = (along, across) if last in grid.dims and not grid.pools else (across, along)
    fitting = [way for way in ways if not _strays(grid, way)]
    return fitting[0] if fitting else _side_by_side(grid, ways[0])


def _domain(
    outer: tuple[Run, ...],
    depth: tuple[Run, ...],
    column: Sequence[Run],
    across: bool = False,
    windows: bool = False,
) -> Domain:
    return Domain(
        outer=tuple(run.size for run in outer),
        depth=tuple(run.size for run in depth),
        cols=math.prod(run.size for run in column),
        across=across,
        windows=windows,
    )


def _any_cut(grid: Grid, runs: list[Run]) -> Layout:
    """The last axis that is longer than one has the columns."""
    outer, column = tuple(runs[:-1]), runs[-1:]
    found = Layout(_domain(outer, (), column), outer, (), column[0] if column else None)
    return _side_by_side(grid, found)


def _strays(grid: Grid, found: Layout) -> list[int]:
    """Windows whose columns do not lie side by side, in either direction."""
    if found.column is None:
        return []
    axis = found.column.axes[-1]
    strides = {w: _window(grid.symbols, w).view.strides[axis] for w in grid.windows}
    allowed = range(-1, _APART + 1 if grid.pools and found.domain.across else 2)
    return [w for w, stride in strides.items() if stride not in allowed]


def _side_by_side(grid: Grid, found: Layout) -> Layout:
    if strays := _strays(grid, found):
        raise Unsupported(
            f"reading `{_source(grid.symbols, strays[0])}` across its rows (transposed or with a "
            "step) is not covered"
        )
    return found


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
