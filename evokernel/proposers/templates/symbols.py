"""Owns `Symbols`: the graph's values as formulas over windows on tensors, before there is a grid.

A window reads either a tensor from outside or a *made* one, the result of a reduction, scan or
pick. Views act on windows alone, so a formula is viewed by viewing its leaves, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from evokernel.opgraph import Node
from evokernel.proposers.templates.expressions import Number, Reduction, Unsupported
from evokernel.proposers.templates.folding import fold
from evokernel.proposers.templates.views import Guard, View

BOOLEAN = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf"})
"""Operators whose result is a truth value."""


@dataclass(frozen=True)
class Given:
    """A tensor from outside."""

    node: Node


@dataclass(frozen=True)
class Made:
    """A tensor that the kernel makes: some axes of `arg` reduced, or one of them scanned."""

    kind: Literal["reduce", "scan", "pick", "same"]
    """`same` is `arg` itself, under axes that its windows cannot have."""
    op: Reduction
    """Of reductions and scans."""
    arg: int
    """Symbol; of a pick, the window whose last axis is indexed."""
    shape: tuple[int, ...]
    dims: tuple[int, ...] = ()
    """The axes of `arg`, in order."""
    index: int = -1
    """Symbol of the picked column; picks only."""
    backwards: bool = False
    """Whether a scan begins at the end."""
    guards: tuple[Guard, ...] = ()
    """Which elements of `arg` there are; pooling reaches over the border, where there are none."""
    pools: bool = False
    """Whether `arg` consists of windows that overlap or lie apart."""


@dataclass(frozen=True)
class Window:
    """Elements of a tensor."""

    tensor: int
    view: View
    dtype: str


@dataclass(frozen=True)
class Constant:
    """A number that fits every shape."""

    number: Number
    dtype: str


@dataclass(frozen=True)
class Apply:
    """A pointwise operator."""

    op: str
    args: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]


Symbol = Window | Constant | Apply


@dataclass
class Symbols:
    """All formulas of one graph; equal ones exist once and are known by their number."""

    items: list[Symbol] = field(default_factory=list)
    tensors: list[Given | Made] = field(default_factory=list)
    hints: dict[int, str] = field(default_factory=dict)
    """What a reader would call a symbol."""
    tensor_hints: dict[int, str] = field(default_factory=dict)
    """The same for made tensors."""
    _known: dict[Symbol, int] = field(default_factory=dict)
    _made: dict[Made, int] = field(default_factory=dict)

    def intern(self, symbol: Symbol) -> int:
        """The number of a symbol."""
        if symbol not in self._known:
            self._known[symbol] = len(self.items)
            self.items.append(symbol)
        return self._known[symbol]

    def shape(self, symbol: int) -> tuple[int, ...]:
        """Shape of a symbol; a number has none."""
        item = self.items[symbol]
        match item:
            case Window():
                return item.view.shape
            case Apply():
                return item.shape
            case _:
                return ()

    def dtype(self, symbol: int) -> str:
        """Dtype of a symbol."""
        return self.items[symbol].dtype

    def number(self, value: Number, dtype: str) -> int:
        """A constant."""
        kind: Callable[[Number], Number] = (
            bool if dtype == "bool" else float if dtype.startswith("float") else int
        )
        return self.intern(Constant(kind(value), dtype))

    def filled(self, value: Number, dtype: str, shape: tuple[int, ...]) -> int:
        """A constant that has a shape."""
        return self.intern(Apply("copy", (self.number(value, dtype),), dtype, shape))

    def given(self, node: Node) -> int:
        """All of a tensor from outside."""
        spec = node.outputs[0]
        self.tensors.append(Given(node))
        return self.intern(Window(len(self.tensors) - 1, View.whole(spec.shape), spec.dtype))

    def apply(self, op: str, *args: int, dtype: str | None = None, hint: str = "") -> int:
        """A pointwise operator; the arguments are broadcast together, their dtypes must agree."""
        if dtype is None:
            dtype = "bool" if op in BOOLEAN else self.dtype(args[-1])
        constants = [self.items[a] for a in args]
        folded = fold(op, [i.number for i in constants if isinstance(i, Constant)], dtype)
        if folded is not None and all(isinstance(i, Constant) for i in constants):
            return self.number(folded, dtype)
        shape = broadcast([self.shape(a) for a in args])
        wide = tuple(self.expand(a, shape) for a in args)
        if (kept := self._unchanged(op, wide)) is not None:
            return kept
        return self._hinted(self.intern(Apply(op, wide, dtype, shape)), hint)

    def _unchanged(self, op: str, args: tuple[int, ...]) -> int | None:
        """The argument that times one, over one or minus zero leaves as it is."""
        neutral = {"mul": 1, "div": 1, "sub": 0}.get(op)
        if neutral is None:
            return None
        first, second = (self.items[a] for a in args)
        if isinstance(second, Constant) and second.number == neutral:
            return args[0]
        if op == "mul" and isinstance(first, Constant) and first.number == neutral:
            return args[1]
        return None

    def cast(self, symbol: int, dtype: str) -> int:
        """The same numbers in another dtype."""
        item = self.items[symbol]
        if item.dtype == dtype:
            return symbol
        if isinstance(item, Constant):
            return self.number(item.number, dtype)
        return self.apply("cast", symbol, dtype=dtype)

    def reduce(
        self,
        op: Reduction,
        symbol: int,
        dims: Sequence[int],
        hint: str = "",
        dtype: str = "",
        guards: tuple[Guard, ...] = (),
        pools: bool = False,
    ) -> int:
        """Some axes of a formula (no bare number) to one element each; they vanish."""
        shape = self.shape(symbol)
        kept = tuple(size for axis, size in enumerate(shape) if axis not in dims)
        made = Made("reduce", op, symbol, kept, tuple(sorted(dims)), guards=guards, pools=pools)
        return self._make(made, dtype or self.dtype(symbol), hint)

    def scan(self, op: Reduction, symbol: int, dim: int, hint: str = "") -> int:
        """The running reduction along an axis."""
        made = Made("scan", op, symbol, self.shape(symbol), (dim,))
        return self._make(made, self.dtype(symbol), hint)

    def flip(self, symbol: int, axes: Sequence[int]) -> int:
        """The formula with axes from their ends; what is made is made from flipped arguments."""
        item = self.items[symbol]
        match item:
            case Constant():
                return symbol
            case Apply():
                args = [self.flip(a, axes) for a in item.args]
                return self.apply(item.op, *args, dtype=item.dtype)
        made = self.tensors[item.tensor]
        moving = [a for a in axes if item.view.strides[a]]
        if not isinstance(made, Made) or made.kind == "pick" or not moving:
            return self.view(symbol, lambda v: v.flip(axes))
        if item.view != View.whole(made.shape) or made.guards:
            raise Unsupported(f"flipping the result of a {made.kind} (`{made.op}`) is not covered")
        kept = [n for n in range(len(self.shape(made.arg))) if n not in made.dims]
        own = axes if made.kind != "reduce" else [kept[a] for a in axes]
        turned = made.backwards != (made.kind == "scan" and made.dims[0] in own)
        flipped = replace(made, arg=self.flip(made.arg, own), backwards=turned)
        return self._make(flipped, item.dtype, self.tensor_hints.get(item.tensor, ""))

    def pick(self, symbol: int, index: int) -> int:
        """Element `index` of the last axis, which vanishes; out of range it is any."""
        item = self.items[symbol]
        match item:
            case Constant():
                return symbol
            case Apply():
                args = [self.pick(a, index) for a in item.args]
                return self.apply(item.op, *args, dtype=item.dtype)
        made = self.tensors[item.tensor]
        if item.view.strides[-1] == 0:
            return self.view(
                symbol, lambda v: v.narrow(len(v.shape) - 1, 0, 1).reshape(v.shape[:-1])
            )
        if isinstance(made, Made) or item.view.guards:
            what = f"{made.kind} (`{made.op}`)" if isinstance(made, Made) else "padded tensor"
            raise Unsupported(f"picking elements of a {what} is not covered")
        shape = item.view.shape
        return self._make(
            Made("pick", "any", symbol, shape[:-1], (len(shape) - 1,), index), item.dtype, ""
        )

    def view(self, symbol: int, change: Callable[[View], View | None]) -> int:
        """The formula with every window changed.

        Raises:
            Unsupported: strides cannot express the change; it would have to copy.
        """
        return self._view(symbol, change, {})

    def expand(self, symbol: int, shape: Sequence[int]) -> int:
        """The formula broadcast to a shape."""
        if self.shape(symbol) == tuple(shape):
            return symbol
        return self.view(symbol, lambda v: v.expand(shape))

    def reshape(self, symbol: int, shape: Sequence[int], strict: bool = False) -> int:
        """The formula under other axes; `strict` refuses what windows cannot express."""
        if self.shape(symbol) == tuple(shape):
            return symbol
        try:
            return self.view(symbol, lambda v: v.reshape(shape))
        except Unsupported:
            if strict:
                raise
        same = self._make(Made("same", "any", symbol, self.shape(symbol)), self.dtype(symbol), "")
        return self.view(same, lambda v: v.reshape(shape))

    def _view(
        self, symbol: int, change: Callable[[View], View | None], done: dict[int, int]
    ) -> int:
        if symbol in done:
            return done[symbol]
        item = self.items[symbol]
        result = symbol
        match item:
            case Window():
                view = change(item.view)
                if view is None:
                    raise Unsupported("a `reshape` that has to copy is not covered")
                result = self.intern(Window(item.tensor, view, item.dtype))
            case Apply():
                args = tuple(self._view(a, change, done) for a in item.args)
                shape = broadcast([self.shape(a) for a in args])
                result = self.intern(Apply(item.op, args, item.dtype, shape))
        done[symbol] = result
        return self._hinted(result, self.hints.get(symbol, ""))

    def _make(self, made: Made, dtype: str, hint: str) -> int:
        if made not in self._made:
            self._made[made] = len(self.tensors)
            self.tensors.append(made)
        tensor = self._made[made]
        if hint:
            self.tensor_hints.setdefault(tensor, hint)
        return self.intern(Window(tensor, View.whole(made.shape), dtype))

    def _hinted(self, symbol: int, hint: str) -> int:
        if hint:
            self.hints.setdefault(symbol, hint)
        return symbol


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape, by torch's rules; the shapes must fit."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(
        next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True)
    )
