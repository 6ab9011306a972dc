"""Owns the loop structure of row programs: one thread does a row, sweep after sweep."""

from collections.abc import Mapping

from evokernel.proposers.templates import flat
from evokernel.proposers.templates.addressing import pointers
from evokernel.proposers.templates.choices import Choice, Option, Space, Value
from evokernel.proposers.templates.emit import vector_problem
from evokernel.proposers.templates.expressions import Level, Program, Reduce, arguments
from evokernel.proposers.templates.folds import Fold, carries
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
from evokernel.proposers.templates.sweep import (
    WIDEST,
    Span,
    SweepWriter,
    Work,
    buffer,
    final,
    stored_type,
    total_identity,
    total_type,
)
from evokernel.proposers.templates.works import kept, pair, works

_SIZES = ("rows", "threads")

_FEW_ROWS = 64
_LONG_ROW = 65536
"""Fewer rows than the one, each longer than the other: threads may share a row (ours)."""


def space(program: Program) -> Space:
    """Every way to write a row program."""
    spread = _spread(program)
    whole: dict[str, tuple[Value, ...]] = {"spread": ("rows",)} if spread else {}
    choices = (
        *spread,
        *style_choices(program),
        *_sweeps(program, whole),
        *_keeping(program, whole),
        _schedule(whole),
    )
    return Space(family="rows", choices=choices)


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a row program."""
    if choices.get("spread") == "columns":
        return flat.kernel(program, choices, function)
    return _Writer(program, choices, function).write()


def _spread(program: Program) -> tuple[Choice, ...]:
    """Rows that are few and long can be cut up; a result over all rows needs whole rows."""
    if program.domain.rows >= _FEW_ROWS or program.domain.cols < _LONG_ROW or program.last:
        return ()
    columns = Option(value="columns", technique="split-rows")
    return (Choice(name="spread", options=(Option(value="rows"), columns)),)


def _sweeps(program: Program, needs: dict[str, tuple[Value, ...]]) -> tuple[Choice, ...]:
    """Two dependent reductions may share a sweep; that is written in vectors only."""
    both = pair(program)
    if both is None or vector_problem(program) is not None:
        return ()
    technique = "online-softmax" if both.kind == "online" else "single-pass-moments"
    options = (Option(value="separate"), Option(value="merged", technique=technique))
    return (Choice(name="sweeps", options=options, needs={**needs, **VECTOR}),)


def _keeping(program: Program, needs: dict[str, tuple[Value, ...]]) -> tuple[Choice, ...]:
    dear, every = kept(program, {"keep": "dear"}), kept(program, {"keep": "all"})
    options = [Option(value="none")]
    if dear:
        options.append(Option(value="dear", technique="row-caching"))
    if every and every != dear:
        options.append(Option(value="all", technique="row-caching"))
    return (Choice(name="keep", options=tuple(options), needs=needs),) if len(options) > 1 else ()


def _schedule(needs: dict[str, tuple[Value, ...]]) -> Choice:
    dynamic = [Option(value=n, technique="dynamic-scheduling") for n in (4, 16)]
    return Choice(name="schedule", options=(Option(value="static"), *dynamic), needs=needs)


class _Writer:
    """Writes one kernel."""

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
        with self._text.block(head(self._function, self._program, _SIZES)):
            self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
            over_rows = self._over_rows()
            for i in over_rows:
                kind = stored_type(self._program, i)
                self._text.add(f"std::vector<{kind}> {self._of_rows(i)}(rows);")
            self._parallel(over_rows)
            self._finish(over_rows)
        return finished(self._function, self._text, _SIZES, "vector")

    def _over_rows(self) -> tuple[int, ...]:
        return tuple(i for i in self._program.last if isinstance(self._program.values[i], Reduce))

    def _of_rows(self, reduction: int) -> str:
        return f"{self._program.values[reduction].name}_of_rows_"

    def _parallel(self, over_rows: tuple[int, ...]) -> None:
        self._text.add(f"#pragma omp parallel num_threads({thread_count(self._choices)})")
        with self._text.block():
            self._buffers()
            self._text.add(f"#pragma omp for schedule({self._scheduled()})")
            with self._text.block("for (int64_t r = 0; r < rows; ++r)"):
                self._row()
                for i in over_rows:
                    arg = arguments(self._program.values[i])[0]
                    self._text.add(f"{self._of_rows(i)}[r] = {self._program.values[arg].name};")
            if self._style.streaming:
                self._text.add("stream_fence();")

    def _scheduled(self) -> str:
        grain = self._choices.get("schedule", "static")
        return "static" if grain == "static" else f"dynamic, {grain}"

    def _buffers(self) -> None:
        size = self._program.domain.cols + WIDEST
        for i in (i for work in self._works for i in work.keep):
            self._text.add(f"std::vector<float> {buffer(self._program, i)}v_({size});")
            self._text.add(
                f"float* {buffer(self._program, i)} = {buffer(self._program, i)}v_.data();"
            )

    def _row(self) -> None:
        self._text.extend(pointers(self._program))
        self._text.extend(target_pointers(self._program))
        self._rest.declare(self._rest.level(self._program.before, Level.ROW))
        for number, work in enumerate(self._works, start=1):
            self._text.add(f"// Sweep {number} of {len(self._works)}.")
            self._sweep(work)
        self._rest.store(Level.ROW, "r")

    def _sweep(self, work: Work) -> None:
        both = pair(self._program)
        if work.elements and both:
            unroll = self._style.unroll
            MergedWriter(self._program, both, unroll, self._text, self._rest).write(
                work, self._span
            )
        else:
            self._text.extend(carries(self._program, work.scans))
            writer = SweepWriter(self._program, self._style, self._text)
            totals = writer.write(work, self._span, targets(self._program))
            for i, total in totals.items():
                self._text.add(final(self._program, i, total))
        self._rest.declare(work.after)

    def _finish(self, over_rows: tuple[int, ...]) -> None:
        """Combine the rows' values in their order, so that the result never depends on threads."""
        for i in over_rows:
            total = f"{self._program.values[i].name}_total_"
            kind, identity = total_type(self._program, i), total_identity(self._program, i)
            step = Fold.of(self._program, i, "scalar").step(total, f"{self._of_rows(i)}[r]")
            self._text.add(f"{kind} {total} = {identity};")
            self._text.add(f"for (int64_t r = 0; r < rows; ++r) {step}")
            self._text.add(final(self._program, i, total))
        rest = [i for i in self._program.last if i not in over_rows]
        self._rest.declare(rest)
        self._rest.store(Level.SCALAR, "0")
