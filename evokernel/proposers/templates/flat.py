"""Owns the loop structure for few long rows: all threads share each sweep of a row."""

from collections.abc import Mapping

from evokernel.proposers.templates.addressing import pointers
from evokernel.proposers.templates.choices import Choice, Option, Space, Value
from evokernel.proposers.templates.expressions import Level, Program
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
from evokernel.proposers.templates.styles import (
    as_chosen,
    fetched,
    style_choices,
    style_of,
    thread_count,
)
from evokernel.proposers.templates.sweep import (
    Span,
    SweepWriter,
    Work,
    final,
    stored_type,
    total_identity,
    total_type,
)

_CHUNK = 32768
"""Elements that one thread reduces at a time: the parts are the same for any number of threads, and
so is the result (ours)."""


def space(program: Program) -> Space:
    """Every way to write a program with few rows."""
    return Space(family="flat", choices=(*style_choices(program), *_chunks(program)))


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a program with few rows."""
    return _Writer(program, choices, function).write()


def _chunks(program: Program) -> tuple[Choice, ...]:
    others = [Option(value=n, technique="column-blocking") for n in (8192, 131072)]
    return (Choice(name="chunk", options=(Option(value=_CHUNK), *others)),)


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
        return finished(self._function, self._text, self._sizes, "vector")

    def _row(self) -> None:
        self._text.extend(pointers(self._program))
        self._text.extend(target_pointers(self._program))
        self._rest.declare(self._rest.level(self._program.before, Level.ROW))
        passes = self._program.passes
        for number, sweep in enumerate(passes, start=1):
            self._text.add(f"// Sweep {number} of {len(passes)}.")
            work = fetched(Work.of(sweep), self._choices)
            if work.scans:
                self._in_order(work)
            else:
                self._shared(work)
            self._rest.declare(work.after)
        self._rest.store(Level.ROW, "r")

    def _in_order(self, work: Work) -> None:
        """One thread runs a sweep with scans from end to end."""
        cols = self._program.domain.cols
        self._text.extend(carries(self._program, work.scans))
        span = Span(begin="0", end=str(cols), length=cols, multiple=cols)
        writer = SweepWriter(self._program, self._style, self._text)
        for i, total in writer.write(work, span, targets(self._program)).items():
            self._text.add(final(self._program, i, total))

    def _shared(self, work: Work) -> None:
        """All threads run a sweep, chunk by chunk; results are combined in the chunks' order."""
        for i in work.reductions:
            kind = stored_type(self._program, i)
            self._text.add(f"std::vector<{kind}> {self._of_chunks(i)}({self._number});")
        self._text.add(f"#pragma omp parallel num_threads({thread_count(self._choices)})")
        with self._text.block():
            self._text.add("#pragma omp for schedule(static)")
            with self._text.block(f"for (int64_t chunk = 0; chunk < {self._number}; ++chunk)"):
                self._one_chunk(work)
            if self._style.streaming and work.outputs:
                self._text.add("stream_fence();")
        for i in work.reductions:
            self._combine(i)

    def _one_chunk(self, work: Work) -> None:
        cols, size = self._program.domain.cols, self._chunk
        self._text.add(
            f"const int64_t begin = chunk * {size};",
            f"const int64_t end = {cols} - begin < {size} ? {cols} : begin + {size};",
        )
        even = size if cols % size == 0 else 1
        span = Span(begin="begin", end="end", length=size, multiple=even)
        writer = SweepWriter(self._program, self._style, self._text)
        for i, total in writer.write(work, span, targets(self._program)).items():
            self._text.add(f"{self._of_chunks(i)}[chunk] = {total};")

    def _combine(self, reduction: int) -> None:
        name = f"{self._program.values[reduction].name}_all_"
        kind = total_type(self._program, reduction)
        identity = total_identity(self._program, reduction)
        fold = Fold.of(self._program, reduction, "scalar")
        self._text.add(f"{kind} {name} = {identity};")
        each = f"for (const auto part_ : {self._of_chunks(reduction)})"
        self._text.add(f"{each} {fold.step(name, 'part_')}")
        self._text.add(final(self._program, reduction, name))

    def _of_chunks(self, reduction: int) -> str:
        return f"{self._program.values[reduction].name}_of_chunks_"
