"""Owns the loop structure of point-wise programs: every element by itself, in one sweep."""

from collections.abc import Mapping

from evokernel.proposers.templates.addressing import pointers
from evokernel.proposers.templates.choices import Choice, Option, Space, Value
from evokernel.proposers.templates.expressions import Level, Program
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
from evokernel.proposers.templates.sweep import Span, SweepWriter, Work

_SHARE = 16384
"""Elements that one iteration handles where there are no rows: 64 KB of each stream (ours)."""

_FEW_ROWS = 64
"""With fewer rows than this, rows are cut up so that every thread has something to do (ours)."""


def space(program: Program) -> Space:
    """Every way to write a point-wise program."""
    return Space(family="elementwise", choices=(*_blocks(program), *style_choices(program)))


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a point-wise program."""
    return _Writer(program, choices, function).write()


def _blocks(program: Program) -> tuple[Choice, ...]:
    rows, cols = program.domain.rows, program.domain.cols
    if not program.domain.outer:
        return ()
    sizes = [n for n in (1024, 4096, _SHARE) if n < cols]
    options = [Option(value=n, technique="column-blocking") for n in sizes]
    if rows >= _FEW_ROWS or not sizes:
        options.insert(0, Option(value=0))
    else:
        options[-1] = Option(value=sizes[-1])
        options.reverse()
    return (Choice(name="block", options=tuple(options)),)


class _Writer:
    """Writes one kernel."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = as_chosen(program, choices)
        self._choices = choices
        self._function = function
        self._text = Lines()
        self._style = style_of(choices)
        self._rest = Resting(self._program, self._text)
        self._sizes = ("rows" if self._program.domain.outer else "cols", "threads")

    def write(self) -> Kernel:
        with self._text.block(head(self._function, self._program, self._sizes)):
            self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
            self._rest.store(Level.SCALAR, "0")
            if self._program.passes or self._program.domain.outer:
                self._parallel()
        return finished(self._function, self._text, self._sizes)

    def _parallel(self) -> None:
        self._text.add(f"#pragma omp parallel num_threads({thread_count(self._choices)})")
        with self._text.block():
            self._text.add("#pragma omp for schedule(static)")
            if not self._program.domain.outer:
                self._without_rows()
            elif self._choices.get("block"):
                self._blocked(int(self._choices["block"]))
            else:
                with self._text.block("for (int64_t r = 0; r < rows; ++r)"):
                    cols = self._program.domain.cols
                    self._row(Span(begin="0", end=str(cols), length=cols, multiple=cols))
            if self._style.streaming:
                self._text.add("stream_fence();")

    def _without_rows(self) -> None:
        with self._text.block(f"for (int64_t begin = 0; begin < cols; begin += {_SHARE})"):
            self._text.add(
                f"const int64_t end = cols - begin < {_SHARE} ? cols : begin + {_SHARE};"
            )
            self._sweep(Span(begin="begin", end="end"))

    def _blocked(self, size: int) -> None:
        cols = self._program.domain.cols
        number = -(-cols // size)
        with self._text.block(f"for (int64_t task_ = 0; task_ < rows * {number}; ++task_)"):
            self._text.add(
                f"const int64_t r = task_ / {number};",
                f"const int64_t begin = task_ % {number} * {size};",
                f"const int64_t end = {cols} - begin < {size} ? {cols} : begin + {size};",
            )
            even = size if cols % size == 0 else 1
            self._row(Span(begin="begin", end="end", length=size, multiple=even))

    def _row(self, span: Span) -> None:
        self._text.extend(pointers(self._program))
        self._text.extend(target_pointers(self._program))
        self._rest.declare(self._rest.level(self._program.before, Level.ROW))
        self._sweep(span)
        self._rest.store(Level.ROW, "r")

    def _sweep(self, span: Span) -> None:
        for sweep in self._program.passes:
            writer = SweepWriter(self._program, self._style, self._text)
            work = fetched(Work.of(sweep), self._choices)
            writer.write(work, span, targets(self._program))
