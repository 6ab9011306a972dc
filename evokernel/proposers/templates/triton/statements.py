"""Owns the way from values of a program to statements in Triton."""

from __future__ import annotations

from collections.abc import Iterable

from evokernel.proposers.templates.domain import Inside, Walk
from evokernel.proposers.templates.expressions import (
    Constant,
    Level,
    Load,
    Map,
    Pick,
    Program,
    Value,
)
from evokernel.proposers.templates.triton.functions import expression
from evokernel.proposers.templates.triton.kernel import Text
from evokernel.proposers.templates.triton.spelling import HALF, TYPES, held, literal
from evokernel.proposers.templates.triton.tile import Tile


class Statements:
    """Writes a program's values into the body of one kernel, each once."""

    def __init__(self, program: Program, tile: Tile, text: Text) -> None:
        """Begin with nothing known."""
        self.program = program
        self.tile = tile
        self.text = text
        self.known: dict[int, str] = {}
        self.guards: tuple[Inside, ...] = ()
        """Elements outside of these do not exist: a window that reaches over the border."""

    def names(self, wanted: Iterable[int]) -> list[str]:
        """What values are called; those that are not known yet are written."""
        return [self.name(i) for i in wanted]

    def name(self, index: int) -> str:
        """What a value is called, a literal for a constant."""
        value = self.program.values[index]
        if isinstance(value, Constant):
            return literal(value.number, value.dtype)
        if index not in self.known:
            self.text.add(f"{value.name} = {self._expression(index, value)}")
            self.known[index] = value.name
        return self.known[index]

    def write(self, wanted: Iterable[int]) -> None:
        """Write values that others will ask for, in their order."""
        for index in sorted(wanted):
            self.name(index)

    def load(self, value: Load) -> str:
        """Reading an element."""
        source = self.program.sources[value.access.source]
        guards = value.access.guards
        if value.level is Level.ELEMENT:
            guards = (*guards, *(guard for guard in self.guards if guard not in guards))
        walk = self._reaching(value.access, [guard.walk for guard in guards])
        mask = self.tile.mask(value.access, guards)
        parts = [self.tile.place(source.name, value.access) + walk]
        if mask:
            parts += [f"mask={mask}", "other=0"]
        text = f"tl.load({', '.join(parts)})"
        return f"{text}.to(tl.float32)" if source.dtype in HALF else text

    def _reaching(self, access: Walk, others: list[Walk]) -> str:
        """A summand of zero that spreads a pointer as far as the masks of its guards reach."""
        tile = self.tile
        spread = []
        for walk in others:
            if any(walk.strides) and not any(access.strides):
                spread.append(tile.row)
            if tile.has_columns and walk.step and not access.step:
                spread.append(tile.column)
            inner = any(walk.depth) or (not tile.has_columns and walk.step)
            reached = any(access.depth) or (not tile.has_columns and access.step)
            if inner and not reached:
                spread.append(tile.inner or tile.row)
        return "".join(f" + 0 * {name}" for name in dict.fromkeys(filter(None, spread)))

    def _expression(self, index: int, value: Value) -> str:
        match value:
            case Load():
                return self.load(value)
            case Pick():
                return self._pick(value)
            case Map():
                return self._map(value)
        raise AssertionError(f"`{value.name}` is what a loop makes")

    def _pick(self, value: Pick) -> str:
        source = self.program.sources[value.access.source]
        place = self.name(value.index)
        cols = self.program.domain.cols
        walk = value.access.model_copy(update={"step": 0})
        column = f"tl.where(({place} >= 0) & ({place} < {cols}), {place}, 0)"
        mask = self.tile.mask(walk)
        parts = [f"{self.tile.place(source.name, walk)} + {column}"]
        if mask:
            parts += [f"mask={mask}", "other=0"]
        text = f"tl.load({', '.join(parts)})"
        return f"{text}.to(tl.float32)" if source.dtype in HALF else text

    def _map(self, value: Map) -> str:
        args = [self.program.values[a] for a in value.args]
        names = tuple(self.name(a) for a in value.args)
        if value.op == "copy":
            return self._copy(value, names[0], args[0])
        if value.op == "cast":
            return _cast(names[0], args[0].dtype, value.dtype)
        tensors = [a for a in args if not isinstance(a, Constant)]
        if not tensors:  # a function of a number that lowering left to the kernel
            first = f"tl.full((), {names[0]}, {TYPES[held(args[0].dtype)]})"
            names = (first, *names[1:])
        of = next((a.dtype for a in tensors if value.op != "where" or a.dtype != "bool"), "")
        return expression(value.op, names, held(value.dtype), held(of or value.dtype))

    def _copy(self, value: Map, name: str, arg: Value) -> str:
        """One number for all elements of a block."""
        kind = TYPES[held(value.dtype)]
        if value.level is Level.SCALAR:
            return f"tl.full((), {name}, {kind})"
        block = self.tile.block if value.level is Level.ELEMENT else self.tile.kept
        if not block:
            return f"tl.full((), {name}, {kind})" if isinstance(arg, Constant) else name
        if isinstance(arg, Constant) or arg.level is Level.SCALAR or not self.tile.keeps:
            return f"tl.full({block}, {name}, {kind})"
        return f"tl.broadcast_to({name}, {block})"


def _cast(name: str, before: str, after: str) -> str:
    if after == "bool":
        return f"{name} != 0"
    if after in HALF:  # rounded, and computed with as before
        return f"{name}.to({TYPES[after]}).to(tl.float32)"
    if held(before) == after:
        return name
    return f"{name}.to({TYPES[after]})"
