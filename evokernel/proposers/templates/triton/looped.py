"""Owns Triton kernels that sweep over rows or columns block by block, once or several times."""

from __future__ import annotations

from collections.abc import Iterator

from evokernel.frozen import Frozen
from evokernel.proposers.templates.expressions import Level, Map, Program, Reduce, Scan, arguments
from evokernel.proposers.templates.sweep import Work
from evokernel.proposers.templates.triton.folds import Fold, PlaceFold, is_place
from evokernel.proposers.templates.triton.frame import Frame, swept_index
from evokernel.proposers.templates.triton.functions import expression
from evokernel.proposers.templates.triton.kernel import Text
from evokernel.proposers.templates.triton.resting import store_elements, store_parts, store_rest
from evokernel.proposers.templates.triton.spelling import held
from evokernel.proposers.templates.triton.statements import Statements
from evokernel.proposers.templates.triton.tile import Tile
from evokernel.proposers.templates.works import Pair, pair, works


class Span(Frozen):
    """What a kernel sweeps over."""

    begin: str
    end: str
    length: int
    """All that there is."""
    exact: bool
    """Whether no block reaches over the end."""
    step: str = "BLOCK"
    stages: str = ""
    """The constant with the number of blocks that are fetched at a time; empty for one."""
    unrolled: bool = False
    """Whether the loop is written out by the compiler."""

    @property
    def head(self) -> str:
        """The loop."""
        if self.unrolled:
            return f"for start_ in tl.static_range({self.begin}, {self.end}, {self.step}):"
        numbers = f"{self.begin}, {self.end}, {self.step}"
        if self.stages:
            return f"for start_ in tl.range({numbers}, num_stages={self.stages}):"
        return f"for start_ in range({numbers}):"


class Sweeper:
    """Writes sweeps into one kernel; it knows the numbers at rest from one to the next."""

    def __init__(self, frame: Frame, tile: Tile, text: Text, span: Span, options: str) -> None:
        """Begin before the first sweep."""
        self.program = frame.program
        self.frame = frame
        self.text = text
        self.span = span
        self.tile = tile.model_copy(update={"sizes": (tile.sizes[0], span.step)})
        self.statements = Statements(self.program, self.tile, text)
        self._options = options

    def before(self) -> None:
        """Write what needs no sweep."""
        self.statements.write(self.program.before)

    def sweep(self, work: Work) -> None:
        """Write one sweep and what follows from it."""
        self.accumulate(work)
        both = pair(self.program) if work.elements else None
        if both is None:
            for i in work.reductions:
                self.text.add(self.total(i))
                self.statements.known[i] = self.program.values[i].name
        else:
            self.finish_pair(work, both)
        self.statements.write(work.after)

    def accumulate(self, work: Work) -> None:
        """Write the loop, which leaves accumulators."""
        both = pair(self.program) if work.elements else None
        starts = (
            _pair_starts(both, self.tile, self.span.exact) if both else list(self._starts(work))
        )
        self.text.add(*starts)
        known = dict(self.statements.known)
        self.text.begin(self.span.head)
        tile = swept_index(
            self.tile, self.text, "start_", self.span.step, self.span.length, self.span.exact
        )
        inside = Statements(self.program, tile, self.text)
        inside.known = dict(known)
        inside.guards = tuple(g for i in work.reductions for g in self._reduction(i).guards)
        if both:
            self._pair_step(inside, both)
        else:
            self._steps(inside, work)
        self.text.end()

    def _reduction(self, index: int) -> Reduce:
        value = self.program.values[index]
        assert isinstance(value, Reduce)
        return value

    def _place(self, value: Reduce) -> PlaceFold:
        of = held(self.program.values[value.arg].dtype)
        return PlaceFold(name=value.name, op=value.op, dtype=of)

    def _starts(self, work: Work) -> Iterator[str]:
        for i in work.reductions:
            value = self._reduction(i)
            if is_place(value):
                best, place = self._place(value).starts(self.tile.block)
                yield f"{value.name}_best_ = {best}"
                yield f"{value.name}_at_ = {place}"
            else:
                yield f"{value.name}_all_ = {Fold.of(value).start(self.tile.block)}"
        for i in work.scans:
            scan = self.program.values[i]
            assert isinstance(scan, Scan)
            if i not in self._carried:
                yield f"{scan.name}_carry_ = {Fold.of(scan).start(self.tile.kept)}"

    _carried: frozenset[int] = frozenset()

    def carry(self, scans: tuple[int, ...]) -> None:
        """Let scans go on from carries that are written already."""
        self._carried = frozenset(scans)

    def _steps(self, inside: Statements, work: Work) -> None:
        program, text, tile = self.program, self.text, inside.tile
        for i in program.elements(work.wanted(program)):
            value = program.values[i]
            if isinstance(value, Scan):
                fold = Fold.of(value)
                carry = f"{value.name}_carry_"
                name = f"{value.name}_each_"
                arg = fold.taken(value, inside.name(value.arg))
                text.add(f"{name} = {fold.masked(arg, tile.inner_mask)}")
                result = fold.given(value, fold.step(carry, fold.scanned(tile, name)))
                text.add(f"{value.name} = {result}")
                text.add(f"{carry} = {fold.step(carry, fold.total(tile, name))}")
                inside.known[i] = value.name
            else:
                inside.name(i)
        for i in work.reductions:
            self._step(inside, self._reduction(i))
        store_elements(inside, work.outputs, self._options)

    def _step(self, inside: Statements, value: Reduce) -> None:
        tile = inside.tile
        masks = " & ".join(filter(None, (tile.inner_mask, *map(tile.inside, value.guards))))
        name = inside.name(value.arg)
        if is_place(value):
            place = self._place(value)
            best, at = f"{value.name}_best_", f"{value.name}_at_"
            other = f"tl.broadcast_to({name}, {tile.block})"
            other = f"tl.where({masks}, {other}, {place.nothing})" if masks else other
            where = f"tl.broadcast_to({tile.inner}, {tile.block})"
            where = f"tl.where({masks}, {where}, {2**31 - 1})" if masks else where
            self.text.add(f"{best}, {at} = {place.call}({best}, {at}, {other}, {where})")
            return
        fold = Fold.of(value)
        accumulator = f"{value.name}_all_"
        self.text.add(f"{accumulator} = {fold.step(accumulator, fold.masked(name, masks))}")

    def total(self, index: int) -> str:
        """The statement that turns accumulators into a value."""
        value = self._reduction(index)
        if is_place(value):
            parts = f"({value.name}_best_, {value.name}_at_.to(tl.int64))"
            call = self.tile.reduced("tl.reduce", parts, self._place(value).call)
            return f"{value.name}_best_, {value.name} = {call}"
        if self.span.step == "1" and self.tile.keeps:  # a block has one line: nothing is left to do
            return f"{value.name} = {value.name}_all_"
        return f"{value.name} = {Fold.of(value).total(self.tile, f'{value.name}_all_')}"

    # Two reductions at once.

    def _pair_step(self, inside: Statements, both: Pair) -> None:
        x = inside.name(both.element)
        masks = inside.tile.inner_mask
        if both.kind == "online":
            self.text.add(*_online_step(self.program, both, inside.tile, x, masks))
        else:
            self.text.add(*_moments_step(x, masks))

    def finish_pair(self, work: Work, both: Pair) -> None:
        """Write the totals of a pair from its accumulators."""
        first, second = (self.program.values[i].name for i in (both.first, both.second))
        text, tile, known = self.text, self.tile, self.statements.known
        top = (
            "pair_top_" if both.kind == "online" else tile.reduced("tl.sum", "pair_mean_ * pair_n_")
        )
        text.add(f"{first} = {top}")
        known[both.first] = first
        self.statements.write(work.between)
        base = self.statements.name(both.base)
        if both.kind == "online":
            total = tile.reduced("tl.sum", "pair_sum_")
            text.add(f"pair_low_ = {finite('pair_top_')}")
            text.add(
                f"{second} = {total} * {exponential(self.program, both, f'(pair_low_ - {base})')}"
            )
        else:
            text.add(f"pair_away_ = pair_mean_ - {base}")
            square = "pair_square_ + pair_n_ * pair_away_ * pair_away_"
            text.add(f"{second} = {tile.reduced('tl.sum', square)}")
        known[both.second] = second


def finite(name: str) -> str:
    """A maximum, or zero while it is infinite: no difference of infinities then."""
    return f'tl.where(tl.abs({name}) == float("inf"), 0.0, {name})'


def exponential(program: Program, both: Pair, argument: str) -> str:
    """The exponential of a pair, in the form that the plan chose."""
    top = program.values[arguments(program.values[both.second])[0]]
    assert isinstance(top, Map)
    return expression(top.op, (argument,), "float32", "float32")


def _pair_starts(both: Pair, tile: Tile, exact: bool) -> list[str]:
    if both.kind == "online":
        return [
            f'pair_top_ = tl.full({tile.kept or "()"}, -float("inf"), tl.float32)',
            f"pair_sum_ = tl.zeros({tile.block}, tl.float32)",
        ]
    names = ("pair_mean_", "pair_square_")
    zeros = [f"{name} = tl.zeros({tile.block}, tl.float32)" for name in names]
    return [*zeros, f"pair_n_ = tl.zeros({'()' if exact else tile.block}, tl.float32)"]


def _online_step(program: Program, both: Pair, tile: Tile, x: str, masks: str) -> Iterator[str]:
    value = program.values[both.first]
    assert isinstance(value, Reduce)
    fold = Fold.of(value)
    yield f"pair_x_ = {fold.masked(x, masks)}"
    yield f"pair_new_ = {fold.step('pair_top_', fold.total(tile, 'pair_x_'))}"
    yield f"pair_low_ = {finite('pair_new_')}"
    scale = exponential(program, both, "(pair_top_ - pair_low_)")
    yield f'pair_scale_ = tl.where(tl.abs(pair_top_) == float("inf"), 1.0, {scale})'
    terms = exponential(program, both, "(pair_x_ - pair_low_)")
    yield f"pair_sum_ = pair_sum_ * pair_scale_ + {terms}"
    yield "pair_top_ = pair_new_"


def _moments_step(x: str, masks: str) -> Iterator[str]:
    if masks:
        yield f"pair_n_ += tl.where({masks}, 1.0, 0.0)"
        yield f"pair_away_ = tl.where({masks}, {x} - pair_mean_, 0.0)"
        yield "pair_mean_ += pair_away_ / tl.maximum(pair_n_, 1.0)"
    else:
        yield "pair_n_ = pair_n_ + 1.0"
        yield f"pair_away_ = {x} - pair_mean_"
        yield "pair_mean_ += pair_away_ * (1.0 / pair_n_)"
    yield f"pair_square_ += pair_away_ * ({x} - pair_mean_)"


def body(frame: Frame, span: Span, merged: bool, options: str) -> tuple[str, ...]:
    """Write a kernel whose programs sweep over whole rows or columns."""
    text = Text()
    tile = frame.begin(text, "tl.program_id(0)")
    sweeper = Sweeper(frame, tile, text, span, options)
    sweeper.before()
    for work in sweeps(frame.program, merged):
        sweeper.sweep(work)
    store_rest(sweeper.statements, frame)
    store_parts(sweeper.statements, "tl.program_id(0)")
    return text.lines


def sweeps(program: Program, merged: bool) -> list[Work]:
    """The sweeps that a program needs."""
    return works(program, {"sweeps": "merged" if merged else "separate"})


def has_elements(program: Program) -> bool:
    """Whether there is anything to sweep."""
    return any(v.level is Level.ELEMENT for v in program.values)
