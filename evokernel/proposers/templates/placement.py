"""Owns the last step of lowering: formulas on a grid become the values of a `Program`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evokernel.opgraph import OpGraph, TensorSpec
from evokernel.proposers.templates import symbols as symbolic
from evokernel.proposers.templates.expressions import (
    Access,
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
from evokernel.proposers.templates.grid import choose, layout
from evokernel.proposers.templates.naming import Names
from evokernel.proposers.templates.pruning import pruned, require_one_kernel
from evokernel.proposers.templates.symbols import Apply, Given, Made, Symbols, Window

_LEVEL_LETTERS = {Level.ELEMENT: "c", Level.ROW: "r", Level.SCALAR: "s"}


class Placement:
    """Turns symbols into values, each once, in the order in which they are needed."""

    def __init__(
        self, graph: OpGraph, symbols: Symbols, results: Sequence[tuple[int, TensorSpec]]
    ) -> None:
        self._graph, self._symbols, self._results = graph, symbols, results
        self._grid = choose(symbols, [symbol for symbol, _ in results])
        for symbol, _ in results:
            self._grid.visit(symbol)
        self._layout = layout(self._grid)
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
            Output(name=name, value=self._output(symbol, spec), shape=spec.shape, dtype=spec.dtype)
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

    def _output(self, symbol: int, spec: TensorSpec) -> int:
        """The value of a result, raised to one per row or element if it is simpler than that."""
        value = self._value(self._grid.place(symbol))
        size, domain = math.prod(spec.shape), self._layout.domain
        level = Level.SCALAR
        if size == domain.rows and domain.outer:
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
        strides, step = self._layout.strides(symbol)
        return Access(
            source=list(self._sources).index(window.tensor),
            offset=window.view.offset,
            strides=strides,
            step=1 if step else 0,
        )

    def _load(self, symbol: int, window: Window) -> int:
        access = self._access(symbol)
        level = Level.SCALAR
        if access.step:
            level = Level.ELEMENT
        elif any(access.strides):
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
            self._require(self._grid.is_per_element(window), made)
            return self._scan(made, arg, dtype, hint)
        if self._grid.border is None or self._is_total(made):
            self._require(self._grid.is_single(window), made)
            return self._total(made, arg, dtype, hint)
        self._require(self._grid.is_per_row(window), made)
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
        return Level.ROW if self._layout.domain.outer else Level.SCALAR

    def _pick(self, made: Made, dtype: str) -> int:
        access = self._access(self._grid.place(made.arg))
        index = self._value(self._grid.place(made.index))
        if self._values[index].level is Level.ELEMENT or not access.step:
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
            if self._layout.domain.cols == 1:
                return arg
            raise Unsupported(f"a scan (`{made.op}`) over equal numbers is not covered")
        return self._add(
            ("scan", made.op, arg),
            hint,
            lambda name: Scan(name=name, dtype=dtype, op=made.op, arg=arg),
        )

    def _total(self, made: Made, arg: int, dtype: str, hint: str) -> int:
        """All elements, or all rows, to one number."""
        if self._values[arg].level is Level.ELEMENT or not self._layout.domain.outer:
            inner = f"row_{hint}" if self._layout.domain.outer else hint
            arg = self._reduce(made, arg, dtype, inner)
        if not self._layout.domain.outer:
            return arg
        if self._values[arg].level is Level.SCALAR:
            raise Unsupported(f"`{made.op}` of equal numbers is not covered")
        return self._fold(made, arg, dtype, hint, Level.SCALAR)

    def _reduce(self, made: Made, arg: int, dtype: str, hint: str) -> int:
        """The columns of a row to one number."""
        if self._values[arg].level is Level.ELEMENT:
            return self._fold(made, arg, dtype, hint, self._rest())
        cols = self._layout.domain.cols
        if made.op == "sum" and cols > 1:
            count = self._add(
                ("constant", cols, dtype, str(cols)),
                "constant",
                lambda name: Constant(name=name, dtype=dtype, number=cols),
            )
            return self._map("mul", (arg, count), dtype, hint)
        if made.op == "prod" and cols > 1:
            raise Unsupported("`prod` of equal numbers is not covered")
        return arg

    def _fold(self, made: Made, arg: int, dtype: str, hint: str, level: Level) -> int:
        return self._add(
            ("reduce", made.op, arg, level),
            hint,
            lambda name: Reduce(name=name, level=level, dtype=dtype, op=made.op, arg=arg),
        )


def _described(made: Made) -> str:
    return "a formula" if made.kind == "same" else f"a {made.kind} (`{made.op}`)"
