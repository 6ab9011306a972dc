"""Owns the loop structure of row programs: one thread does a row, sweep after sweep."""

from collections.abc import Iterator, Mapping

from evokernel.proposers.templates import flat
from evokernel.proposers.templates.addressing import pointers
from evokernel.proposers.templates.choices import Choice, Needs, Option, Space, Value
from evokernel.proposers.templates.emit import vector_problem
from evokernel.proposers.templates.expressions import Level, Program, Reduce, arguments
from evokernel.proposers.templates.folds import PLACES, Fold, carries
from evokernel.proposers.templates.kernel import (
    Kernel,
    Resting,
    finished,
    head,
    target_pointers,
    targets,
)
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.merged import MergedWriter
from evokernel.proposers.templates.styles import (
    VECTOR,
    as_chosen,
    style_choices,
    style_of,
    thread_count,
)
from evokernel.proposers.templates.sweep import WIDEST, Span, SweepWriter, Work, buffer
from evokernel.proposers.templates.totals import final, total_identity, total_type
from evokernel.proposers.templates.works import kept, pair, works

_SIZES = ("rows", "threads")

_ON_STACK = 16384
"""Floats that a thread keeps on its stack at most: 64 KB of the usual 2 MB and more (ours)."""

_FEW_ROWS = 64
_LONG_ROW = 65536
"""Fewer rows than the one, each longer than the other: threads may share a row (ours)."""


def space(program: Program) -> Space:
    """Every way to write a row program."""
    spread = _spread(program)
    whole: Needs = {"spread": ("rows",)} if spread else {}
    sweeps = sweep_choices(program, whole)
    choices = (
        *spread,
        *style_choices(program, whole),
        *sweeps,
        *keep_choices(program, whole, sweeps[0].values if sweeps else ("separate",)),
        schedule_choice(whole),
    )
    return Space(family="rows", choices=choices)


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a row program."""
    if choices.get("spread") == "columns":
        return flat.kernel(program, {**choices, "scan": "two-level"}, function)
    return RowsWriter(program, choices, function).write()


def _spread(program: Program) -> tuple[Choice, ...]:
    """Rows that are few and long can be cut up; a result over all rows needs whole rows."""
    if program.domain.rows >= _FEW_ROWS or program.domain.cols < _LONG_ROW or program.last:
        return ()
    if any(isinstance(v, Reduce) and v.op in PLACES for v in program.values):
        return ()
    has_scans = any(sweep.scans for sweep in program.passes)
    if has_scans and not flat.can_begin_in_the_middle(program):
        return ()
    technique = "two-level-scan" if has_scans else "split-rows"
    columns = Option(value="columns", technique=technique)
    return (Choice(name="spread", options=(Option(value="rows"), columns)),)


def sweep_choices(program: Program, needs: Needs) -> tuple[Choice, ...]:
    """Two dependent reductions may share a sweep; that is written in vectors only."""
    both = pair(program)
    if both is None or vector_problem(program) is not None:
        return ()
    technique = "online-softmax" if both.kind == "online" else "single-pass-moments"
    options = (Option(value="separate"), Option(value="merged", technique=technique))
    return (Choice(name="sweeps", options=options, needs={**needs, **VECTOR}),)


def keep_choices(program: Program, needs: Needs, ways: tuple[Value, ...]) -> tuple[Choice, ...]:
    """Which values are kept between sweeps; what can be depends on which sweeps there are."""
    found = {(k, w): kept(program, {"keep": k, "sweeps": w}) for k in ("dear", "all") for w in ways}
    useful = {
        "dear": tuple(w for w in ways if found["dear", w]),
        "all": tuple(w for w in ways if found["all", w] and found["all", w] != found["dear", w]),
    }
    options = [
        Option(
            value=which,
            technique="row-caching",
            needs={} if where == ways else {"sweeps": where},
        )
        for which, where in useful.items()
        if where
    ]
    if not options:
        return ()
    return (Choice(name="keep", options=(Option(value="none"), *options), needs=needs),)


def schedule_choice(needs: Needs) -> Choice:
    """How rows are handed out to threads."""
    dynamic = [Option(value=n, technique="dynamic-scheduling") for n in (4, 16)]
    return Choice(name="schedule", options=(Option(value="static"), *dynamic), needs=needs)


class RowsWriter:
    """Writes one kernel; `planes` has another way to run over a row's columns."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = as_chosen(program, choices)
        self._choices = choices
        self._function = function
        self._text = Lines()
        self._style = style_of(choices)
        self._rest = Resting(self._program, self._text)
        self._works = works(self._program, choices)
        cols = program.domain.cols
        self._span = Span(begin="0", end=str(cols), length=cols, multiple=cols)

    def write(self) -> Kernel:
        """Write the function."""
        with self._text.block(head(self._function, self._program, _SIZES)):
            self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
            over_rows = self._over_rows()
            for i in over_rows:
                kind = total_type(self._program, i)
                self._text.add(f"{kind}* {self._of_rows(i)} = new {kind}[rows];")
            self._parallel(over_rows)
            self._finish(over_rows)
        return finished(self._function, self._text, _SIZES)

    def _over_rows(self) -> tuple[int, ...]:
        return tuple(i for i in self._program.last if isinstance(self._program.values[i], Reduce))

    def _of_rows(self, reduction: int) -> str:
        return f"{self._program.values[reduction].name}_of_rows_"

    def _parallel(self, over_rows: tuple[int, ...]) -> None:
        self._text.add(f"#pragma omp parallel num_threads({thread_count(self._choices)})")
        with self._text.block():
            freed = list(self._buffers())
            self._text.add(f"#pragma omp for schedule({self._scheduled()})")
            with self._text.block("for (int64_t r = 0; r < rows; ++r)"):
                self._row()
                for i in over_rows:
                    arg = arguments(self._program.values[i])[0]
                    self._text.add(f"{self._of_rows(i)}[r] = {self._program.values[arg].name};")
            if self._style.streaming:
                self._text.add("stream_fence();")
            self._text.extend(freed)

    def _scheduled(self) -> str:
        grain = self._choices.get("schedule", "static")
        return "static" if grain == "static" else f"dynamic, {grain}"

    def _buffers(self) -> Iterator[str]:
        """Declare what keeps a row's values, on the stack if it is small; yield what frees it."""
        size = self._program.domain.cols + WIDEST
        for i in (i for work in self._works for i in work.keep):
            name = buffer(self._program, i)
            if size <= _ON_STACK:
                self._text.add(f"alignas(64) float {name}[{size}];")
            else:
                self._text.add(f"float* {name} = new float[{size}];")
                yield f"delete[] {name};"

    def _row(self) -> None:
        self._pointers()
        self._rest.declare(self._rest.level(self._program.before, Level.ROW))
        for number, work in enumerate(self._works, start=1):
            self._text.add(f"// Sweep {number} of {len(self._works)}.")
            self._sweep(work)
        self._rest.store(Level.ROW, "r")

    def _pointers(self) -> None:
        self._text.extend(pointers(self._program))
        self._text.extend(target_pointers(self._program))

    def _sweep(self, work: Work) -> None:
        both = pair(self._program)
        if work.elements and both:
            unroll = self._style.unroll
            merged = MergedWriter(self._program, both, unroll, self._text, self._rest)
            self._merged(merged, work)
        else:
            for i, total in self._separate(work).items():
                self._text.add(final(self._program, i, total))
        self._rest.declare(work.after)

    def _merged(self, writer: MergedWriter, work: Work) -> None:
        writer.begin()
        writer.lines(work, self._span)
        writer.finish(work)

    def _separate(self, work: Work) -> dict[int, str]:
        """Totals of the sweep's reductions, as expressions."""
        self._text.extend(carries(self._program, work.scans))
        writer = SweepWriter(self._program, self._style, self._text)
        return writer.write(work, self._span, targets(self._program))

    def _finish(self, over_rows: tuple[int, ...]) -> None:
        """Combine the rows' values in their order, so that the result never depends on threads."""
        for i in over_rows:
            total = f"{self._program.values[i].name}_total_"
            kind, identity = total_type(self._program, i), total_identity(self._program, i)
            step = Fold.of(self._program, i, "scalar").step(total, f"{self._of_rows(i)}[r]")
            self._text.add(f"{kind} {total} = {identity};")
            self._text.add(f"for (int64_t r = 0; r < rows; ++r) {step}")
            self._text.add(final(self._program, i, total), f"delete[] {self._of_rows(i)};")
        rest = [i for i in self._program.last if i not in over_rows]
        self._rest.declare(rest)
        self._rest.store(Level.SCALAR, "0")
