"""Owns one sweep over the columns of a row: its loops, its rest, its accumulators."""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from evokernel.frozen import Frozen
from evokernel.proposers.templates import emit
from evokernel.proposers.templates.addressing import pointer
from evokernel.proposers.templates.expressions import Load, Pass, Program, Reduce, arguments
from evokernel.proposers.templates.folds import PLACES, Fold, Form, keep_place
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.literals import C_TYPES, identity
from evokernel.proposers.templates.totals import RUN, accumulates_wide, total_identity, total_type

WIDEST = 16
"""Most lanes that a vector may have: float32 in AVX-512."""

_LINE = 16
"""Floats in a cache line of 64 bytes."""

_USUAL = 8
"""Lanes by which a row is called long: float32 in AVX2."""


class Style(Frozen):
    """How the loops of a sweep are written."""

    form: Literal["scalar", "simd", "vector"] = "scalar"
    """Plain loops; loops that the compiler is asked to vectorise; vectors with our mathematics."""
    unroll: int = 1
    """Vectors per step, each with accumulators of its own."""
    streaming: bool = False
    """Stores bypass the caches."""

    @property
    def emitted(self) -> Form:
        """The form in which statements are asked for."""
        return "vector" if self.form == "vector" else "scalar"


class Work(Frozen):
    """What one sweep computes."""

    reductions: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    scans: tuple[int, ...] = ()
    elements: tuple[int, ...] = ()
    """Values that a merged sweep looks at instead of its reductions' arguments."""
    keep: tuple[int, ...] = ()
    """Values to write into buffers for the row's later sweeps."""
    kept: tuple[int, ...] = ()
    """Values to read from such buffers instead of computing them."""
    between: tuple[int, ...] = ()
    """Values at rest that the second reduction of a merged sweep needs."""
    after: tuple[int, ...] = ()
    """Values at rest that are computed once it is complete."""
    fetch: int = 0
    """Meanwhile fetch inputs so many elements ahead; 0 leaves that to the processor."""

    @classmethod
    def of(cls, sweep: Pass) -> "Work":
        """What a pass of a program computes."""
        return cls(
            reductions=sweep.reductions,
            outputs=sweep.outputs,
            scans=sweep.scans,
            after=sweep.after,
        )

    def wanted(self, program: Program) -> tuple[int, ...]:
        """Values that it must compute or read at every column."""
        folded = [i for r in self.reductions for i in arguments(program.values[r])]
        if self.elements:
            return (*self.elements, *self.keep)
        return (*folded, *self.keep, *(program.outputs[o].value for o in self.outputs))


class Span(Frozen):
    """The columns that a sweep runs over."""

    begin: str
    """C++ expression, a multiple of `WIDEST`."""
    end: str
    """C++ expression."""
    length: int | None = None
    """Number of columns, where it is known; else at most `limit`."""
    multiple: int = 1
    """A known divisor of the number of columns."""


def buffer(program: Program, value: int) -> str:
    """Name of the buffer that keeps a value for the row's later sweeps."""
    return f"{program.values[value].name}_kept_"


class SweepWriter:
    """Writes sweeps of one program in one style."""

    def __init__(self, program: Program, style: Style, text: Lines) -> None:
        self._program = program
        self._style = style
        self._text = text

    def write(
        self,
        work: Work,
        span: Span,
        targets: Mapping[int, str],
        known: Mapping[int, str] | None = None,
    ) -> dict[int, str]:
        """Write the loops.

        Args:
            work: What is computed.
            span: Over which columns.
            targets: Per output the name of the pointer to where its row begins.
            known: Values that have names already.

        Returns:
            Per reduction an expression of its total, of the type that `total_type` names.
        """
        body = _Body(self._program, self._style, work, targets, dict(known or {}))
        if self._style.form != "vector":
            return self._plain(body, work, span)
        if self._is_long(work, span):
            return self._in_runs(body, work, span)
        return self._vectors(body, work, span)

    def _plain(self, body: "_Body", work: Work, span: Span) -> dict[int, str]:
        for i in work.reductions:
            if self._is_place(i):
                self._text.extend(self._declared(i))
                continue
            kind, identity = total_type(self._program, i), total_identity(self._program, i)
            self._text.add(f"{kind} {self._accumulator(i)} = {identity};")
        if self._style.form == "simd" and is_associative(self._program, work):
            self._text.add(self._pragma(work))
        with self._text.block(f"for (int64_t c = {span.begin}; c < {span.end}; ++c)"):
            self._text.extend(body.statements("c"))
        return {
            i: self._places(i) if self._is_place(i) else self._accumulator(i)
            for i in work.reductions
        }

    def _pragma(self, work: Work) -> str:
        symbols = {"sum": "+", "prod": "*"}
        clauses = [
            f" reduction({symbols[value.op]} : {self._accumulator(i)})"
            for i in work.reductions
            if isinstance(value := self._program.values[i], Reduce)
        ]
        return f"#pragma omp simd{''.join(clauses)}"

    def _is_long(self, work: Work, span: Span) -> bool:
        sums = [i for i in work.reductions if accumulates_wide(self._program, i)]
        if any(self._is_place(i) for i in work.reductions):
            return False
        return bool(sums) and (span.length is None or span.length > RUN * _USUAL)

    def _in_runs(self, body: "_Body", work: Work, span: Span) -> dict[int, str]:
        """Let floats add up for a while only."""
        totals = {i: f"{self._program.values[i].name}_total_" for i in work.reductions}
        for i, name in totals.items():
            kind, identity = total_type(self._program, i), total_identity(self._program, i)
            self._text.add(f"{kind} {name} = {identity};")
        step = f"{RUN} * LANES"
        head = f"for (int64_t run_ = {span.begin}; run_ < {span.end}; run_ += {step})"
        with self._text.block(head):
            self._text.add(
                f"const int64_t stop_ = {span.end} - run_ < {step} ? {span.end} : run_ + {step};"
            )
            part = Span(begin="run_", end="stop_", multiple=math.gcd(span.multiple, RUN))
            for i, folded in self._vectors(body, work, part).items():
                fold = Fold.of(self._program, i, "scalar")
                self._text.add(fold.step(totals[i], folded))
        return totals

    def _vectors(self, body: "_Body", work: Work, span: Span) -> dict[int, str]:
        number = self._style.unroll
        for i in work.reductions:
            self._text.extend(self._declared(i))
        if span.multiple % (number * WIDEST) == 0:
            step = f"{number} * LANES" if number > 1 else "LANES"
            head = f"for (int64_t c = {span.begin}; c < {span.end}; c += {step})"
            with self._text.block(head):
                self._step(body, number)
        else:
            with self._text.block():
                self._text.add(f"int64_t c = {span.begin};")
                self._with_rest(body, span, number)
        return {i: self._folded(i) for i in work.reductions}

    def _with_rest(self, body: "_Body", span: Span, number: int) -> None:
        if number > 1:
            step = f"{number} * LANES"
            with self._text.block(f"for (; c + {step} <= {span.end}; c += {step})"):
                self._step(body, number)
        with self._text.block(f"for (; c + LANES <= {span.end}; c += LANES)"):
            if number == 1:
                self._step(body, 1)
            else:
                self._text.extend(body.statements("c", first=self._first))
        if span.multiple % WIDEST:
            with self._text.block(f"if (c < {span.end})"):
                self._text.add(f"const int n = static_cast<int>({span.end} - c);")
                self._text.extend(body.statements("c", count="n", first=self._first))

    def _step(self, body: "_Body", number: int) -> None:
        self._text.extend(prefetches(self._program, body.work, number))
        if number == 1:
            self._text.extend(body.statements("c"))
            return
        self._text.add(f"#pragma GCC unroll {number}")
        with self._text.block(f"for (int u_ = 0; u_ < {number}; ++u_)"):
            self._text.extend(body.statements("c + u_ * LANES", part="[u_]"))

    @property
    def _first(self) -> str:
        return "[0]" if self._style.unroll > 1 else ""

    def _accumulator(self, reduction: int) -> str:
        return f"{self._program.values[reduction].name}_acc_"

    def _is_place(self, reduction: int) -> bool:
        value = self._program.values[reduction]
        return isinstance(value, Reduce) and value.op in PLACES

    def _places(self, reduction: int) -> str:
        return f"{self._program.values[reduction].name}_at_"

    def _declared_place(self, value: Reduce, name: str, at: str) -> Iterable[str]:
        """The best element so far and where it is: one of each, or one per lane."""
        dtype = self._program.values[value.arg].dtype
        start, number = identity(value.op.removeprefix("arg"), dtype), self._style.unroll
        if self._style.emitted == "scalar":
            yield f"{C_TYPES[dtype]} {name} = {start};"
            yield f"int64_t {at} = 0;"
            return
        yield f"V {name}[{number}];"
        yield f"Ints {at}[{number}];"
        yield f"for (V& each_ : {name}) each_ = {start};"
        yield f"for (Ints& each_ : {at}) each_ = same_place(0);"

    def _declared(self, reduction: int) -> Iterable[str]:
        value = self._program.values[reduction]
        if isinstance(value, Reduce) and value.op in PLACES:
            yield from self._declared_place(
                value, self._accumulator(reduction), self._places(reduction)
            )
            return
        fold = Fold.of(self._program, reduction, "vector")
        name, number = self._accumulator(reduction), self._style.unroll
        if number == 1:
            yield f"{fold.type} {name} = {fold.identity};"
        else:
            yield f"{fold.type} {name}[{number}];"
            yield f"for ({fold.type}& each_ : {name}) each_ = {fold.identity};"

    def _folded(self, reduction: int) -> str:
        """Merge the accumulators in pairs, then the lanes."""
        if self._is_place(reduction):
            value = self._program.values[reduction]
            order = "above" if isinstance(value, Reduce) and value.op == "argmax" else "below"
            best, at = self._accumulator(reduction), self._places(reduction)
            return f"place_{order}({best}, {at}, {self._style.unroll})"
        fold = Fold.of(self._program, reduction, "vector")
        name, number = self._accumulator(reduction), self._style.unroll
        parts = [f"{name}[{k}]" for k in range(number)] if number > 1 else [name]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [fold.combine.format(a, b) for a, b in pairs]
            if len(parts) > 1 and not parts[0].endswith(")"):
                parts = [f"({part})" for part in parts]
        return fold.finish(parts[0])


def is_associative(program: Program, work: Work) -> bool:
    """Whether a compiler may change the order of a sweep's reductions without changing their rules.

    It would replace a maximum that hands NaN on by one that drops it.
    """
    values = [program.values[i] for i in work.reductions]
    sums = all(isinstance(v, Reduce) and v.op in ("sum", "prod") for v in values)
    return sums and not work.scans


class _Body:
    """Writes what a sweep does at one place, be it a column or `LANES` of them."""

    def __init__(
        self,
        program: Program,
        style: Style,
        work: Work,
        targets: Mapping[int, str],
        known: Mapping[int, str],
    ) -> None:
        self._program = program
        self._style = style
        self.work = work
        self._targets = targets
        self._given = known
        self._wanted = work.wanted(program)

    def statements(
        self, column: str, count: str = "", part: str = "", first: str = ""
    ) -> list[str]:
        """Loads, values, folds and stores at `column`."""
        form = self._style.emitted
        read = self._read()
        known = {**self._given, **{i: self._program.values[i].name for i in read}}
        block = emit.elements(
            self._program, self._wanted, form, known=known, column=column, count=count
        )
        return [
            *(self._reload(i, column) for i in read),
            *block.lines,
            *(
                emit.store(form, f"{buffer(self._program, i)} + {column}", block.names[i])
                for i in self.work.keep
            ),
            *self._folds(block.names, column, count, part or first),
            *self._stores(block.names, column, count),
        ]

    def _read(self) -> list[int]:
        """Kept values that are needed at all."""
        kept = set(self.work.kept)
        computed = self._program.elements(self._wanted, kept)
        used = {*self._wanted, *(a for i in computed for a in arguments(self._program.values[i]))}
        return sorted(kept & used)

    def _reload(self, value: int, column: str) -> str:
        name, place = self._program.values[value].name, buffer(self._program, value)
        if self._style.emitted == "scalar":
            return f"const float {name} = {place}[{column}];"
        return f"const V {name} = load({place} + {column});"

    def _folds(self, names: Mapping[int, str], column: str, count: str, part: str) -> Iterable[str]:
        for i in self.work.reductions:
            value = self._program.values[i]
            assert isinstance(value, Reduce)
            name, stem = names[value.arg], value.name
            if value.op in PLACES:
                yield self._placed(value, name, column, count, part)
            else:
                fold = Fold.of(self._program, i, self._style.emitted)
                yield fold.step(f"{stem}_acc_{part}", name, count)

    def _placed(self, value: Reduce, name: str, column: str, count: str, part: str) -> str:
        form, best, at = self._style.emitted, f"{value.name}_acc_", f"{value.name}_at_"
        if form == "scalar":
            return keep_place(value, form, best, at, name, column)
        if count:
            start = identity(value.op.removeprefix("arg"), "float32")
            name = f"select(first({count}), {name}, {start})"
        lane = part or "[0]"
        place = f"places_from({column})"
        return keep_place(value, form, f"{best}{lane}", f"{at}{lane}", name, place)

    def _stores(self, names: Mapping[int, str], column: str, count: str) -> Iterable[str]:
        for number in self.work.outputs:
            output = self._program.outputs[number]
            step = (output.walk or self._program.domain.in_order).step
            yield emit.store(
                self._style.emitted,
                emit.place(self._targets[number], column, step),
                names[output.value],
                count,
                streaming=self._style.streaming and output.dtype == "float32",
                step=step,
            )


def prefetches(program: Program, work: Work, number: int) -> Iterable[str]:
    """Statements that fetch ahead what `number` vectors from `c` on will need."""
    if not work.fetch:
        return
    lines = f"for (int k_ = 0; k_ < {number} * LANES; k_ += {_LINE})"
    for place in streams(program):
        yield f"{lines} __builtin_prefetch({place} + c + {work.fetch} + k_);"


def streams(program: Program) -> list[str]:
    """Pointers to inputs of which every row has its own part."""
    loads = [v for v in program.values if isinstance(v, Load) and v.access.step]
    loads = [v for v in loads if v.access.step == 1 and not v.access.guards]
    moves = [v for v in loads if v.access.varies(rows=True, lines=True)]
    moving = moves if program.domain.outer else loads
    return list(dict.fromkeys(pointer(program, v.access) for v in moving))
