"""Owns the loop structure for few long rows: all threads share each sweep of a row."""

from collections.abc import Mapping

from evokernel.proposers.templates.addressing import pointers
from evokernel.proposers.templates.choices import Choice, Needs, Option, Space, Value
from evokernel.proposers.templates.expressions import Level, Program, Reduce, Scan
from evokernel.proposers.templates.folds import Fold, carries, carry_type
from evokernel.proposers.templates.kernel import (
    Kernel,
    Resting,
    finished,
    head,
    target_pointers,
    targets,
)
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.styles import (
    as_chosen,
    fetched,
    style_choices,
    style_of,
    thread_count,
    with_values,
)
from evokernel.proposers.templates.sweep import Span, SweepWriter, Work
from evokernel.proposers.templates.totals import final, total_identity, total_type

_CHUNK = 32768
"""Elements that one thread reduces at a time: the parts are the same for any number of threads, and
so is the result (ours)."""


def space(program: Program) -> Space:
    """Every way to write a program with few rows."""
    scans = _scans(program)
    is_one_thread = all(sweep.scans for sweep in program.passes)
    shared: Needs = {"scan": ("two-level",)} if is_one_thread else {}
    choices = (*scans, *style_choices(program, shared=shared), _chunks(shared))
    return Space(family="flat", choices=choices)


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a program with few rows."""
    return _Writer(program, choices, function).write()


def _chunks(shared: Needs) -> Choice:
    others = [Option(value=n, technique="column-blocking") for n in (8192, 131072)]
    return Choice(name="chunk", options=(Option(value=_CHUNK), *others), needs=shared)


def _scans(program: Program) -> tuple[Choice, ...]:
    if not can_begin_in_the_middle(program):
        return ()
    levels = Option(value="two-level", technique="two-level-scan")
    return (Choice(name="scan", options=(Option(value="in-order"), levels)),)


def can_begin_in_the_middle(program: Program) -> bool:
    """Whether there are scans, none of which needs another one or multiplies.

    Products in another order meet infinities with what underflowed elsewhere.
    """
    scans = [i for i, v in enumerate(program.values) if isinstance(v, Scan)]
    if any(isinstance(v, Scan) and v.op == "prod" for v in program.values):
        return False
    below = [set(program.closure([i])) - {i} for i in scans]
    return bool(scans) and not any(found & set(scans) for found in below)


class _Writer:
    """Writes one kernel."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = as_chosen(program, choices)
        self._choices = choices
        self._function = function
        self._text = Lines()
        self._style = style_of(choices)
        self._rest = Resting(self._program, self._text)
        self._sizes = ("rows", "threads") if program.domain.outer else ("threads",)
        self._chunk = int(choices.get("chunk", _CHUNK))
        self._allocated: list[str] = []
        self._number = -(-program.domain.cols // self._chunk)

    def write(self) -> Kernel:
        with self._text.block(head(self._function, self._program, self._sizes)):
            self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
            if self._program.domain.outer:
                with self._text.block("for (int64_t r = 0; r < rows; ++r)"):
                    self._row()
            else:
                self._row()
            self._rest.store(Level.SCALAR, "0")
        return finished(self._function, self._text, self._sizes)

    def _row(self) -> None:
        self._text.extend(pointers(self._program))
        self._text.extend(target_pointers(self._program))
        self._rest.declare(self._rest.level(self._program.before, Level.ROW))
        passes = self._program.passes
        for number, sweep in enumerate(passes, start=1):
            self._text.add(f"// Sweep {number} of {len(passes)}.")
            work = fetched(Work.of(sweep), self._choices)
            if not work.scans:
                self._shared(self._program, work)
            elif self._choices.get("scan") == "two-level":
                self._two_level(work)
            else:
                self._in_order(work)
            self._rest.declare(work.after)
        self._rest.store(Level.ROW, "r")
        self._text.extend(f"delete[] {name};" for name in self._allocated)

    def _in_order(self, work: Work) -> None:
        """One thread runs a sweep with scans from end to end."""
        cols = self._program.domain.cols
        self._text.extend(carries(self._program, work.scans))
        span = Span(begin="0", end=str(cols), length=cols, multiple=cols)
        writer = SweepWriter(self._program, self._style, self._text)
        for i, total in writer.write(work, span, targets(self._program)).items():
            self._text.add(final(self._program, i, total))

    def _two_level(self, work: Work) -> None:
        """First what each chunk adds, then where each begins, then the scans inside of them."""
        totals, names = _with_totals(self._program, work.scans)
        first = Work(reductions=tuple(names))
        self._shared(totals, first)
        for total, scan in names.items():
            self._starts(totals, total, scan)
        self._shared(self._program, work, tuple(names.values()))

    def _starts(self, totals: Program, total: int, scan: int) -> None:
        value = self._program.values[scan]
        assert isinstance(value, Scan)
        kind = carry_type(value)
        fold = Fold.of(totals, total, "scalar")
        before = total_identity(totals, total)
        self._allocate(kind, f"{value.name}_starts_")
        with self._text.block():
            self._text.add(f"{kind} before_ = {before};")
            with self._text.block(f"for (int64_t chunk = 0; chunk < {self._number}; ++chunk)"):
                self._text.add(
                    f"{value.name}_starts_[chunk] = before_;",
                    fold.step("before_", f"{_of_chunks(totals, total)}[chunk]"),
                )

    def _allocate(self, kind: str, name: str) -> None:
        self._text.add(f"{kind}* {name} = new {kind}[{self._number}];")
        self._allocated.append(name)

    def _shared(self, program: Program, work: Work, scans: tuple[int, ...] = ()) -> None:
        """All threads run a sweep, chunk by chunk; results are combined in the chunks' order."""
        for i in work.reductions:
            self._allocate(total_type(program, i), _of_chunks(program, i))
        self._text.add(f"#pragma omp parallel num_threads({thread_count(self._choices)})")
        with self._text.block():
            self._text.add("#pragma omp for schedule(static)")
            with self._text.block(f"for (int64_t chunk = 0; chunk < {self._number}; ++chunk)"):
                for scan in scans:
                    name, value = program.values[scan].name, program.values[scan]
                    kind = carry_type(value) if isinstance(value, Scan) else ""
                    self._text.add(f"{kind} {name}_carry = {name}_starts_[chunk];")
                self._one_chunk(program, work)
            if self._style.streaming and work.outputs:
                self._text.add("stream_fence();")
        for i in work.reductions:
            self._combine(program, i)

    def _one_chunk(self, program: Program, work: Work) -> None:
        cols, size = program.domain.cols, self._chunk
        self._text.add(
            f"const int64_t begin = chunk * {size};",
            f"const int64_t end = {cols} - begin < {size} ? {cols} : begin + {size};",
        )
        even = size if cols % size == 0 else 1
        span = Span(begin="begin", end="end", length=size, multiple=even)
        writer = SweepWriter(program, self._style, self._text)
        for i, total in writer.write(work, span, targets(program)).items():
            self._text.add(f"{_of_chunks(program, i)}[chunk] = {total};")

    def _combine(self, program: Program, reduction: int) -> None:
        name = f"{program.values[reduction].name}_all_"
        kind = total_type(program, reduction)
        fold = Fold.of(program, reduction, "scalar")
        self._text.add(f"{kind} {name} = {total_identity(program, reduction)};")
        parts = _of_chunks(program, reduction)
        each = f"for (int64_t chunk = 0; chunk < {self._number}; ++chunk)"
        self._text.add(f"{each} {fold.step(name, f'{parts}[chunk]')}")
        self._text.add(final(program, reduction, name))


def _of_chunks(program: Program, reduction: int) -> str:
    return f"{program.values[reduction].name}_of_chunks_"


def _with_totals(program: Program, scans: tuple[int, ...]) -> tuple[Program, dict[int, int]]:
    """The program with a reduction for each scan, and which is whose."""
    values = list(program.values)
    names: dict[int, int] = {}
    for scan in scans:
        value = program.values[scan]
        assert isinstance(value, Scan)
        names[len(values)] = scan
        values.append(
            Reduce(
                name=f"{value.name}_total_",
                level=Level.SCALAR,
                dtype=value.dtype,
                op=value.op,
                arg=value.arg,
            )
        )
    return with_values(program, tuple(values)), names
