"""Owns the loop structure of row programs: one thread does a row, sweep after sweep."""

from collections.abc import Mapping

from evokernel.proposers.templates import flat
from evokernel.proposers.templates.addressing import pointers
from evokernel.proposers.templates.choices import Choice, Option, Space, Value
from evokernel.proposers.templates.expressions import Level, Map, Program, Reduce, arguments
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
from evokernel.proposers.templates.operators import OPERATORS
from evokernel.proposers.templates.styles import fetched, style_choices, style_of, thread_count
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

_SIZES = ("rows", "threads")

_FEW_ROWS = 64
_LONG_ROW = 65536
"""Fewer rows than the one, each longer than the other: threads may share a row (ours)."""


def space(program: Program) -> Space:
    """Every way to write a row program."""
    spread = _spread(program)
    whole: dict[str, tuple[Value, ...]] = {"spread": ("rows",)} if spread else {}
    choices = (*spread, *style_choices(program), *_keeping(program, whole), _schedule(whole))
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


def _keeping(program: Program, needs: dict[str, tuple[Value, ...]]) -> tuple[Choice, ...]:
    dear, every = kept(program, "dear"), kept(program, "all")
    options = [Option(value="none")]
    if dear:
        options.append(Option(value="dear", technique="row-caching"))
    if every and every != dear:
        options.append(Option(value="all", technique="row-caching"))
    return (Choice(name="keep", options=tuple(options), needs=needs),) if len(options) > 1 else ()


def _schedule(needs: dict[str, tuple[Value, ...]]) -> Choice:
    dynamic = [Option(value=n, technique="dynamic-scheduling") for n in (4, 16)]
    return Choice(name="schedule", options=(Option(value="static"), *dynamic), needs=needs)


def kept(program: Program, which: Value) -> tuple[int, ...]:
    """Values that later sweeps read from a buffer instead of computing them again.

    Args:
        program: A row program.
        which: `dear` for what needs a function such as exp, `all` for whatever is computed twice.
    """
    if which not in ("dear", "all"):
        return ()
    repeated = [i for i in program.repeated() if program.values[i].dtype == "float32"]
    pool = [i for i in repeated if which == "all" or is_dear(program, i)]
    found: set[int] = set()
    computed: set[int] = set()
    for sweep in program.passes:
        found |= _met_first(program, Work.of(sweep).wanted(program), computed & set(pool))
        computed |= set(sweep.values)
    return tuple(sorted(found))


def is_dear(program: Program, value: int) -> bool:
    """Whether computing a value at every column needs a function such as exp."""
    return any(
        isinstance(v, Map) and OPERATORS[v.op].group == "function"
        for v in (program.values[i] for i in program.elements([value]))
    )


def _met_first(program: Program, wanted: tuple[int, ...], pool: set[int]) -> set[int]:
    """Values of the pool that are met on the way down from what is wanted."""
    met: set[int] = set()
    todo = list(wanted)
    while todo:
        index = todo.pop()
        if index in pool:
            met.add(index)
        elif program.values[index].level is Level.ELEMENT:
            todo.extend(arguments(program.values[index]))
    return met


class _Writer:
    """Writes one kernel."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = program
        self._choices = choices
        self._function = function
        self._text = Lines()
        self._style = style_of(choices)
        self._rest = Resting(program, self._text)
        self._kept = kept(program, choices.get("keep", "none"))
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
        for i in self._kept:
            self._text.add(f"std::vector<float> {buffer(self._program, i)}v_({size});")
            self._text.add(
                f"float* {buffer(self._program, i)} = {buffer(self._program, i)}v_.data();"
            )

    def _row(self) -> None:
        self._text.extend(pointers(self._program))
        self._text.extend(target_pointers(self._program))
        self._rest.declare(self._rest.level(self._program.before, Level.ROW))
        works = self._works()
        for number, work in enumerate(works, start=1):
            self._text.add(f"// Sweep {number} of {len(works)}.")
            self._sweep(work)
        self._rest.store(Level.ROW, "r")

    def _works(self) -> list[Work]:
        works: list[Work] = []
        ready: set[int] = set()
        for sweep in self._program.passes:
            computed = set(self._program.elements(Work.of(sweep).wanted(self._program), ready))
            keep = tuple(i for i in self._kept if i in computed and i not in ready)
            works.append(
                Work.of(sweep).model_copy(update={"keep": keep, "kept": tuple(sorted(ready))})
            )
            ready |= set(keep)
        return self._fetching(works)

    def _fetching(self, works: list[Work]) -> list[Work]:
        """Let one sweep fetch ahead.

        The first one reads memory and may fetch a little ahead; or the one that computes most
        fetches the next row, so that memory and arithmetic are busy at the same time.
        """
        which = self._choices.get("prefetch", "none")
        if which == "next-row":
            busiest = max(range(len(works)), key=lambda n: (self._functions(works[n]), n))
            update = {"fetch": self._program.domain.cols}
            works[busiest] = works[busiest].model_copy(update=update)
        elif works:
            works[0] = fetched(works[0], self._choices)
        return works

    def _functions(self, work: Work) -> int:
        values = self._program.elements(work.wanted(self._program), work.kept)
        maps = [v for i in values if isinstance(v := self._program.values[i], Map)]
        return sum(OPERATORS[v.op].group == "function" for v in maps)

    def _sweep(self, work: Work) -> None:
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
