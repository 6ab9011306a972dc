"""Owns what a thread does with one pack: `width` neighbouring columns of a row or line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from evokernel.frozen import Frozen
from evokernel.proposers.templates.cuda.spelling import C_TYPES
from evokernel.proposers.templates.cuda.statements import (
    Where,
    address,
    inside,
    lower_values,
    offset,
    statements,
)
from evokernel.proposers.templates.cuda.widths import is_shifted, is_straight, moves, walk_of
from evokernel.proposers.templates.domain import Walk
from evokernel.proposers.templates.expressions import Load, Program
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.literals import literal

Sink = Callable[[Mapping[int, str]], Iterable[str]]
"""Gives the statements that take in a column's values, which it is told by name."""


class Caching(Frozen):
    """How long what a kernel moves stays in the caches."""

    reads: str = "load"
    """Function that loads what every row has of its own."""
    writes: str = "store"


class Packs:
    """Writes the statements of packs of one program."""

    def __init__(self, program: Program, width: int, caching: Caching, text: Lines) -> None:
        self.program = program
        self.width = width
        self._caching = caching
        self._text = text
        self.lower = lower_values(program)
        """Values per row and single ones that are declared where packs are computed."""

    def streams(self, wanted: Iterable[int]) -> tuple[int, ...]:
        """Loads in packs, needed for values, of which every row has its own part."""
        return tuple(i for i in self._loads(wanted) if moves(self.program, self._load(i)))

    def type_of(self, load: int) -> str:
        """Type of a pack."""
        source = self.program.sources[self._load(load).access.source]
        return f"gpu::Pack<{C_TYPES[source.dtype]}, {self.width}>"

    def name_of(self, load: int) -> str:
        """Name of a pack, or of an array of them."""
        return f"{self.program.values[load].name}_p_"

    def load_text(self, load: int, where: Where) -> str:
        """An expression that loads a pack."""
        found = self._load(load)
        reads = self._caching.reads if moves(self.program, found) else "load"
        return f"gpu::{reads}<{self.width}>({address(self.program, found.access, where)})"

    def write(
        self,
        where: Where,
        wanted: Iterable[int],
        packs: Mapping[int, str],
        sink: Sink | None = None,
        outputs: Iterable[int] = (),
        known: Mapping[int, str] | None = None,
        condition: str = "",
        carries: Mapping[int, str] | None = None,
    ) -> None:
        """Compute a pack's columns, hand them to `sink`, store `outputs`.

        Args:
            where: Of the first column.
            wanted: Values that the sink asks for.
            packs: Loads that were done, by the expression of their pack.
            sink: What takes in each column.
            outputs: Numbers of the outputs to store.
            known: Values that exist already; `k_` counts columns.
            condition: When to store; empty for always.
            carries: Scans that run on from column to column of their own, by their variables.
        """
        outputs, wanted = tuple(outputs), tuple(wanted)
        results = [self.program.outputs[n] for n in outputs]
        needed = (*wanted, *(o.value for o in results))
        packs = dict(packs)
        for i in self._loads(needed, known or {}):
            if i not in packs:
                packs[i] = self.name_of(i)
                text = self.load_text(i, where)
                self._text.add(f"const {self.type_of(i)} {packs[i]} = {text};")
        shifted = self._shifted(where, needed, known or {})
        for output in results:
            kind = C_TYPES[self.program.values[output.value].dtype]
            self._text.add(f"{kind} {output.name}_v_[{self.width}];")
        self._text.add("#pragma unroll")
        with self._text.block(f"for (int k_ = 0; k_ < {self.width}; ++k_)"):
            names = self._columns(where, needed, packs, shifted, known or {}, carries or {})
            self._text.extend(f"{o.name}_v_[k_] = {names[o.value]};" for o in results)
            self._text.extend(sink(names) if sink else ())
        self._stores(where, outputs, condition)

    def _columns(
        self,
        where: Where,
        needed: tuple[int, ...],
        packs: Mapping[int, str],
        shifted: Mapping[int, str],
        known: Mapping[int, str],
        carries: Mapping[int, str],
    ) -> Mapping[int, str]:
        names = {**self.lower, **known}
        column = where.model_copy(update={"column": f"{where.column} + k_"})
        for i, text in shifted.items():
            value = self._load(i)
            guards = " && ".join(inside(self.program, g, column) for g in value.access.guards)
            kind, zero = C_TYPES[value.dtype], literal(0, value.dtype)
            self._text.add(f"const {kind} {value.name} = {guards} ? gpu::real({text}) : {zero};")
            names[i] = value.name
        for i in self._loads(needed, known):
            value = self._load(i)
            text = f"gpu::real({packs[i]}.at[k_])"
            self._text.add(f"const {C_TYPES[value.dtype]} {value.name} = {text};")
            names[i] = value.name
        block = statements(self.program, needed, column, names, carries)
        self._text.extend(block.lines)
        return block.names

    def _shifted(
        self, where: Where, needed: tuple[int, ...], known: Mapping[int, str]
    ) -> dict[int, str]:
        """Load what lies across packs: whole packs, those aside that are outside of the tensor.

        Returns:
            For each such value the expression of its element in column `k_`.
        """
        program, width = self.program, self.width
        loaded: dict[tuple[int, str], str] = {}
        found: dict[int, str] = {}
        for i in program.elements(needed, known):
            value = program.values[i]
            if not isinstance(value, Load) or not is_shifted(program, value, width):
                continue
            apart = value.access.offset % width
            packs = []
            for first in (0, width)[: 1 if apart == 0 else 2]:
                start = value.access.offset - apart + first
                walk = value.access.model_copy(update={"offset": start, "guards": ()})
                key = (value.access.source, offset(program, walk, where))
                if key not in loaded:
                    loaded[key] = f"{program.sources[key[0]].name}_q{len(loaded)}_"
                    self._load_inside(key[0], key[1], loaded[key])
                packs.append(loaded[key])
            places = [f"{pack}.at[(k_ + {apart}) % {width}]" for pack in packs]
            both = f"k_ < {width - apart} ? {places[0]} : {places[-1]}"
            found[i] = places[0] if apart == 0 else f"({both})"
        return found

    def _load_inside(self, source: int, place: str, name: str) -> None:
        """A pack, or whatever where there is none."""
        found = self.program.sources[source]
        size, kind = math.prod(found.shape), f"gpu::Pack<{C_TYPES[found.dtype]}, {self.width}>"
        test = f"static_cast<unsigned long long>({place}) < {size}ull"
        self._text.add(f"{kind} {name} = {{}};")
        self._text.add(f"if ({test}) {name} = gpu::load<{self.width}>({found.name} + {place});")

    def _stores(self, where: Where, outputs: tuple[int, ...], condition: str) -> None:
        for number in outputs:
            output = self.program.outputs[number]
            walk, kind = walk_of(self.program, output), C_TYPES[output.dtype]
            guard = f"if ({condition}) " if condition else ""
            if walk.step == 1:
                place = _plus(output.name, offset(self.program, walk, where))
                packed = f"gpu::packed<{kind}>({output.name}_v_)"
                self._text.add(f"{guard}gpu::{self._caching.writes}({place}, {packed});")
            else:
                self._apart(output.name, walk, where, guard)

    def _apart(self, name: str, walk: Walk, where: Where, guard: str) -> None:
        """Columns that lie the other way round."""
        column = where.model_copy(update={"column": f"{where.column} + k_"})
        place = _plus(name, offset(self.program, walk, column))
        self._text.add("#pragma unroll")
        loop = f"for (int k_ = 0; k_ < {self.width}; ++k_)"
        self._text.add(f"{loop} {guard}gpu::put({place}, {name}_v_[k_]);")

    def _loads(self, wanted: Iterable[int], known: Mapping[int, str] | None = None) -> list[int]:
        needed = self.program.elements(tuple(wanted), known or {})
        return [
            i for i in needed if isinstance(v := self.program.values[i], Load) and is_straight(v)
        ]

    def _load(self, index: int) -> Load:
        value = self.program.values[index]
        assert isinstance(value, Load)
        return value


def _plus(name: str, place: str) -> str:
    return name if place == "0" else f"{name} + {place}"
