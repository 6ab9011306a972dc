"""Owns the last step of lowering: formulas on a grid become the values of a `Program`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evokernel.opgraph import OpGraph, TensorSpec
from evokernel.proposers.templates import symbols as symbolic
from evokernel.proposers.templates.domain import Access, Inside
from evokernel.proposers.templates.expressions import (
    Constant,
    Level,
    Load,
    Map,
    Output,
    Pick,
    Program,
    Reduce,
    Scan,
    Source,
    Unsupported,
    Value,
)
from evokernel.proposers.templates.grid import Grid, choose, layout
from evokernel.proposers.templates.naming import Names
from evokernel.proposers.templates.pruning import pruned, require_one_kernel
from evokernel.proposers.templates.symbols import Apply, Given, Made, Symbols, Window
from evokernel.proposers.templates.views import Guard

_LEVEL_LETTERS = {Level.ELEMENT: "c", Level.ROW: "r", Level.SCALAR: "s"}


class Placement:
    """Turns symbols into values, each once, in the order in which they are needed."""

    def __init__(
        self,
        graph: OpGraph,
        symbols: Symbols,
        results: Sequence[tuple[int, TensorSpec]],
        grid: Grid | None = None,
    ) -> None:
        self._graph, self._symbols, self._results = graph, symbols, results
        self._grid = grid or choose(symbols, [symbol for symbol, _ in results])
        for symbol, _ in results:
            self._grid.visit(symbol)
        everything = math.prod(self._grid.shape)
        sizes = [math.prod(spec.shape) for _, spec in results]
        self._layout = layout(self._grid, writes_elements=everything in sizes)
        self._names = Names()
        self._sources = self._read()
        self._outputs = self._named_outputs()
        self._values: list[Value] = []
        self._known: dict[Any, int] = {}

    def program(self) -> Program:
        """The finished program.

        Raises:
            Unsupported: a result over all rows is used by a row again.
        """
        outputs = tuple(
            self._output(name, symbol, spec)
            for name, (symbol, spec) in zip(self._outputs, self._results, strict=True)
        )
        program = pruned(
            Program(
                domain=self._layout.domain,
                sources=tuple(self._sources.values()),
                values=tuple(self._values),
                outputs=outputs,
            )
        )
        require_one_kernel(program)
        return program

    def _read(self) -> dict[int, Source]:
        """Sources by tensor: inputs, then parameters, then constants, each in the graph's order."""
        used = {self._window(w).tensor for w in self._grid.windows}
        order = {n.name: i for i, n in enumerate(self._graph.nodes)}
        kinds = ("input", "parameter", "constant")
        given = {t: self._symbols.tensors[t] for t in used}
        found: dict[int, Source] = {}
        tensors = [(t, g.node) for t, g in given.items() if isinstance(g, Given)]
        for tensor, node in sorted(
            tensors, key=lambda p: (kinds.index(p[1].kind), order[p[1].name])
        ):
            assert node.kind != "call"
            wish = node.op if node.kind == "parameter" else node.name
            spec = node.outputs[0]
            found[tensor] = Source(
                name=self._names.take(wish),
                kind=node.kind,
                key=node.op,
                shape=spec.shape,
                dtype=spec.dtype,
            )
        return found

    def _named_outputs(self) -> list[str]:
        if len(self._results) == 1:
            return [self._names.take("out")]
        return [self._names.take(f"out{i}") for i in range(len(self._results))]

    def _window(self, symbol: int) -> Window:
        item = self._symbols.items[symbol]
        assert isinstance(item, Window)
        return item

    def _output(self, name: str, symbol: int, spec: TensorSpec) -> Output:
        value = self._result(symbol, spec)
        is_all = self._values[value].level is Level.ELEMENT
        walk = self._layout.walk(self._grid.elements.strides, self._grid.elements.offset)
        return Output(
            name=name,
            value=value,
            shape=spec.shape,
            dtype=spec.dtype,
            walk=walk if is_all and walk != self._layout.domain.in_order else None,
        )

    def _result(self, symbol: int, spec: TensorSpec) -> int:
        """The value of a result, raised to one per row or element if it is simpler than that."""
        value = self._value(self._grid.place(symbol))
        size, domain = math.prod(spec.shape), self._layout.domain
        level = Level.SCALAR
        if size == domain.results and self._rest() is Level.ROW:
            level = Level.ROW
        elif size == domain.size and domain.size > 1:
            level = Level.ELEMENT
        held = self._values[value]
        if held.level >= level and not isinstance(held, Constant):
            return value
        return self._map("copy", (value,), held.dtype, "result", level)

    def _value(self, symbol: int) -> int:
        """The value of a symbol on the grid."""
        key = ("symbol", symbol)
        if key not in self._known:
            self._known[key] = self._make(symbol)
        return self._known[key]

    def _make(self, symbol: int) -> int:
        item = self._symbols.items[symbol]
        match item:
            case symbolic.Constant():
                return self._add(
                    ("constant", item.number, item.dtype, str(item.number)),
                    "constant",
                    lambda name: Constant(name=name, dtype=item.dtype, number=item.number),
                )
            case Apply():
                args = tuple(self._value(a) for a in item.args)
                return self._map(item.op, args, item.dtype, self._symbols.hints.get(symbol, ""))
        made = self._symbols.tensors[item.tensor]
        if isinstance(made, Given):
            return self._load(symbol, item)
        return self._made(made, item)

    def _add(self, key: Any, wish: str, make: Any) -> int:
        """A new value, or the known one that equals it."""
        if key not in self._known:
            name = "" if wish == "constant" else self._names.take(wish)
            self._values.append(make(name or f"constant{len(self._values)}"))
            self._known[key] = len(self._values) - 1
        return self._known[key]

    def _map(
        self, op: str, args: tuple[int, ...], dtype: str, hint: str, level: Level | None = None
    ) -> int:
        at = max([self._values[a].level for a in args]) if level is None else level
        return self._add(
            ("map", op, args, dtype, at),
            hint or op,
            lambda name: Map(name=name, level=at, dtype=dtype, op=op, args=args),
        )

    def _access(self, symbol: int) -> Access:
        window = self._window(symbol)
        walk = self._layout.walk(window.view.strides, window.view.offset)
        return Access(
            source=list(self._sources).index(window.tensor),
            guards=self._inside(window.view.guards),
            **dict(walk),
        )

    def _inside(self, guards: Sequence[Guard]) -> tuple[Inside, ...]:
        walks = [self._layout.walk(g.strides, g.offset) for g in guards]
        return tuple(Inside(walk=w, size=g.size) for w, g in zip(walks, guards, strict=True))

    def _load(self, symbol: int, window: Window) -> int:
        access = self._access(symbol)
        across = self._layout.domain.across
        level = Level.SCALAR
        if access.varies(lines=True, columns=not across):
            level = Level.ELEMENT
        elif access.varies(rows=True, columns=True):
            level = Level.ROW
        wish = f"{self._sources[window.tensor].name}_{_LEVEL_LETTERS[level]}"
        return self._add(
            ("load", access),
            wish,
            lambda name: Load(name=name, level=level, dtype=window.dtype, access=access),
        )

    def _made(self, made: Made, window: Window) -> int:
        kind, dtype = made.kind, window.dtype
        hint = self._symbols.tensor_hints.get(window.tensor, made.op)
        if kind == "pick":
            self._require(self._grid.is_per_row(window), made)
            return self._pick(made, dtype)
        arg = self._value(self._grid.place(made.arg))
        if kind == "same":
            self._require(self._grid.is_per_element(window), made)
            return arg
        if kind == "scan":
            fits = self._grid.is_per_element(window) and self._grid.has_rows_of(made)
            self._require(fits, made)
            return self._scan(made, arg, dtype, hint)
        if self._grid.border is None or self._is_total(made):
            self._require(self._grid.is_single(window), made)
            return self._total(made, arg, dtype, hint)
        fits = self._grid.is_per_row(window) and self._grid.has_rows_of(made)
        self._require(fits, made)
        return self._reduce(made, arg, dtype, hint)

    def _require(self, fits: bool, made: Made) -> None:
        if not fits:
            raise Unsupported(
                f"using the result of {_described(made)} in another order than its own is not "
                "covered in one kernel"
            )

    def _is_total(self, made: Made) -> bool:
        """Whether it reduces all rows to one number although the grid has several."""
        return math.prod(made.shape) == 1 and self._grid.rows != 1

    def _rest(self) -> Level:
        """Level of a row's numbers; with one row only, they are the program's."""
        has_rows = self._layout.domain.outer or self._layout.domain.across
        return Level.ROW if has_rows else Level.SCALAR

    def _pick(self, made: Made, dtype: str) -> int:
        access = self._access(self._grid.place(made.arg))
        index = self._value(self._grid.place(made.index))
        by_column = self._values[index].level is Level.ELEMENT or self._layout.domain.depth
        if by_column or access.step != 1:
            raise Unsupported("an index per element is not covered")
        source = list(self._sources.values())[access.source].name
        return self._add(
            ("pick", access, index),
            f"{source}_picked",
            lambda name: Pick(
                name=name, level=self._rest(), dtype=dtype, access=access, index=index
            ),
        )

    def _scan(self, made: Made, arg: int, dtype: str, hint: str) -> int:
        if self._values[arg].level is not Level.ELEMENT:
            raise Unsupported(f"a scan (`{made.op}`) over equal numbers is not covered")
        return self._add(
            ("scan", made.op, arg),
            hint,
            lambda name: Scan(name=name, dtype=dtype, op=made.op, arg=arg),
        )

    def _total(self, made: Made, arg: int, dtype: str, hint: str) -> int:
        """All elements, or all rows, to one number."""
        has_rows = self._rest() is Level.ROW
        if dtype == "int64" and made.op in ("argmax", "argmin"):
            raise Unsupported(f"`{made.op}` over everything is not covered")
        if self._values[arg].level is Level.ELEMENT or not has_rows:
            arg = self._reduce(made, arg, dtype, f"row_{hint}" if has_rows else hint)
        if not has_rows:
            return arg
        if self._values[arg].level is Level.SCALAR:
            raise Unsupported(f"`{made.op}` of equal numbers is not covered")
        return self._fold(made, arg, dtype, hint, Level.SCALAR)

    def _reduce(self, made: Made, arg: int, dtype: str, hint: str) -> int:
        """A row to one number."""
        if made.guards and self._values[arg].level is not Level.ELEMENT:
            arg = self._map("copy", (arg,), dtype, "one", Level.ELEMENT)
        if self._values[arg].level is Level.ELEMENT:
            return self._fold(made, arg, dtype, hint, self._rest())
        domain = self._layout.domain
        count = domain.size // domain.results if self._rest() is Level.ROW else domain.cols
        if made.op == "sum" and count > 1:
            number = self._add(
                ("constant", count, dtype, str(count)),
                "constant",
                lambda name: Constant(name=name, dtype=dtype, number=count),
            )
            return self._map("mul", (arg, number), dtype, hint)
        if made.op in ("prod", "argmax", "argmin") and count > 1:
            raise Unsupported(f"`{made.op}` of equal numbers is not covered")
        return arg

    def _fold(self, made: Made, arg: int, dtype: str, hint: str, level: Level) -> int:
        guards = self._inside(self._grid.guarded(made))
        return self._add(
            ("reduce", made.op, arg, level, guards),
            hint,
            lambda name: Reduce(
                name=name, level=level, dtype=dtype, op=made.op, arg=arg, guards=guards
            ),
        )


def _described(made: Made) -> str:
    return "a formula" if made.kind == "same" else f"a {made.kind} (`{made.op}`)"
