"""Owns `Scope`: what a lowering rule may ask about the call it translates."""

from __future__ import annotations

from collections.abc import Callable

from evokernel.opgraph import Argument, Node, OpGraph, Ref, TensorSpec
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.literals import C_TYPES
from evokernel.proposers.templates.symbols import Symbols

Result = int | tuple[int | None, ...]
Rule = Callable[["Scope", Node], Result]
"""Translates one call into a symbol, or into one per output; None is an output not covered."""


class Scope:
    """The symbols of the nodes translated so far."""

    def __init__(self, graph: OpGraph) -> None:
        self.symbols = Symbols()
        self._graph = graph
        self._results: dict[str, tuple[int | None, ...]] = {}

    def define(self, node: Node, result: Result) -> None:
        """Remember what a node became."""
        results = result if isinstance(result, tuple) else (result,)
        if node.kind == "call":
            # Constants that came in as tensors have lost their shape; here it comes back.
            specs = node.outputs + (None,) * (len(results) - len(node.outputs))
            results = tuple(
                symbol
                if symbol is None or spec is None
                else self.symbols.expand(symbol, spec.shape)
                for symbol, spec in zip(results, specs, strict=True)
            )
        self._results[node.name] = results
        for symbol in results:
            if symbol is not None and node.kind == "call":
                self.symbols.hints.setdefault(symbol, node.name)

    def symbol(self, ref: Ref) -> int:
        """What a node's output became.

        Raises:
            Unsupported: that output has no translation.
        """
        symbol = self._results[ref.node][ref.index]
        if symbol is None:
            op = self._graph.node(ref.node).op
            raise Unsupported(f"output {ref.index} of `{op}` is not covered")
        return symbol

    def has(self, node: Node, name: str) -> bool:
        """Whether the call has that argument, and it is not None."""
        return node.argument(name) is not None

    def tensor(self, node: Node, name: str, dtype: str | None = None) -> int:
        """An argument, also a plain number, as a symbol of `dtype` (None: the result's)."""
        dtype = dtype or node.outputs[0].dtype
        return self._cast(node.argument(name), dtype, node)

    def raw(self, node: Node, name: str) -> int:
        """A tensor argument as a symbol of its own dtype.

        Raises:
            Unsupported: the argument is no tensor.
        """
        value = node.argument(name)
        if not isinstance(value, Ref):
            raise Unsupported(f"`{node.op}` with `{name}` = {value} is not covered")
        return self.symbol(value)

    def shape(self, node: Node, name: str) -> tuple[int, ...]:
        """Shape of a tensor argument."""
        value = node.argument(name)
        return self._graph.spec(value).shape if isinstance(value, Ref) else ()

    def spec(self, ref: Ref) -> TensorSpec:
        """Shape and dtype of a node's output."""
        return self._graph.spec(ref)

    def common(self, node: Node, *names: str) -> str:
        """The dtype in which a comparison of these arguments is made."""
        values = [node.argument(n) for n in names]
        dtypes = [self._graph.spec(v).dtype for v in values if isinstance(v, Ref)]
        found = promote(dtypes)
        real = any(isinstance(v, float) for v in values)
        return "float32" if real and not found.startswith("float") else found

    def all_of(self, node: Node, name: str) -> tuple[int, ...]:
        """An argument that is a list of tensors, as symbols."""
        value = node.argument(name)
        items = value if isinstance(value, tuple) else (value,)
        return tuple(self.symbol(i) for i in items if isinstance(i, Ref))

    def _cast(self, value: Argument, dtype: str, node: Node) -> int:
        if isinstance(value, Ref):
            return self.symbols.cast(self.symbol(value), dtype)
        if isinstance(value, bool | int | float):
            return self.symbols.number(value, dtype)
        raise Unsupported(f"`{node.op}` with the argument {value!r} is not covered")


def number(node: Node, name: str, default: float = 0.0) -> float:
    """A numeric argument; `default` where it is None or missing."""
    value = node.argument(name)
    return value if isinstance(value, bool | int | float) else default


def integers(node: Node, name: str) -> tuple[int, ...]:
    """An argument of whole numbers, one or several."""
    value = node.argument(name)
    items = value if isinstance(value, tuple) else (value,)
    return tuple(int(i) for i in items if isinstance(i, int | float))


def each(values: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """One number per dimension: a single one is for all, none is zero for all."""
    return values * rank if len(values) == 1 else values or (0,) * rank


def promote(dtypes: list[str]) -> str:
    """The widest of some dtypes, floating before whole before truth."""
    order = [d for d in ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")]
    known = [d for d in dtypes if d in order and d in C_TYPES]
    if len(known) < len(dtypes) or not dtypes:
        raise Unsupported(
            f"dtype `{next(iter(set(dtypes) - set(known)), 'unknown')}` is not covered"
        )
    return max(known, key=order.index)
