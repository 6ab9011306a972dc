"""Owns the loops in which each thread takes blocks of columns."""

from collections.abc import Mapping

from evokernel.proposers.templates import emit
from evokernel.proposers.templates.across import (
    LineWriter,
    columns,
    finished_value,
    load_kept,
    store_kept,
)
from evokernel.proposers.templates.addressing import pointers
from evokernel.proposers.templates.choices import Value
from evokernel.proposers.templates.expressions import Constant, Level, Program, Reduce, arguments
from evokernel.proposers.templates.folds import Fold, Form
from evokernel.proposers.templates.kernel import (
    Kernel,
    Resting,
    finished,
    head,
    outputs_at,
)
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.memories import Memories
from evokernel.proposers.templates.styles import (
    as_chosen,
    style_of,
    thread_count,
)
from evokernel.proposers.templates.sweep import WIDEST, Work, buffer
from evokernel.proposers.templates.totals import final, total_identity, total_type
from evokernel.proposers.templates.works import works

SIZES = ("rows", "threads")
"""What the function takes behind its pointers."""


class BlocksWriter:
    """Writes a kernel in which each thread takes blocks of columns, a block at a time."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = as_chosen(program, choices)
        self._choices = choices
        self._function = function
        self._text = Lines()
        self._style = style_of(choices)
        self._rest = Resting(self._program, self._text)
        self._memories = Memories(program=self._program)
        cols = program.domain.cols
        self._block = int(choices.get("block", cols))
        self._number = -(-cols // self._block)
        self._width = self._block + WIDEST
        self._works = works(self._program, choices)

    def write(self) -> Kernel:
        """Write the function."""
        with self._text.block(head(self._function, self._program, SIZES)):
            self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
            self._parallel()
        return finished(self._function, self._text, SIZES)

    def _parallel(self) -> None:
        over_rows = [i for i in self._program.last if self._is_total(i)]
        for i in over_rows:
            kind = total_type(self._program, i)
            tasks = f"rows * {self._number}"
            self._text.add(f"{kind}* {self._of_tasks(i)} = new {kind}[{tasks}];")
        self._text.add(f"#pragma omp parallel num_threads({thread_count(self._choices)})")
        with self._text.block():
            kept = [buffer(self._program, i) for work in self._works for i in work.keep]
            size = self._program.domain.lines * self._width
            self._text.extend(f"float* {name} = new float[{size}];" for name in kept)
            self._text.add("#pragma omp for schedule(static)")
            with self._text.block(
                f"for (int64_t task_ = 0; task_ < rows * {self._number}; ++task_)"
            ):
                self._task(over_rows)
            if self._style.streaming:
                self._text.add("stream_fence();")
            self._text.extend(f"delete[] {name};" for name in kept)
        self._finish(over_rows)

    def _task(self, over_rows: list[int]) -> None:
        cols, size = self._program.domain.cols, self._block
        self._text.add(
            f"const int64_t r = task_ / {self._number};",
            f"const int64_t begin = task_ % {self._number} * {size};",
            f"const int64_t end = {cols} - begin < {size} ? {cols} : begin + {size};",
        )
        self._text.extend(pointers(self._program))
        for memory in self._memories.all:
            self._text.add(f"alignas(64) {memory.type} {memory.name}[{self._width}];")
        self._at_rest((), self._program.before)
        for number, work in enumerate(self._works, start=1):
            self._text.add(f"// Sweep {number} of {len(self._works)}.")
            self._begin(work)
            self._lines(work, "0", str(self._program.domain.lines))
            self._at_rest(work.reductions, work.after)
        for i in over_rows:
            self._over_columns(i)

    def _is_total(self, value: int) -> bool:
        return isinstance(self._program.values[value], Reduce)

    def _of_tasks(self, reduction: int) -> str:
        return f"{self._program.values[reduction].name}_of_tasks_"

    def _over_columns(self, reduction: int) -> None:
        (arg,) = arguments(self._program.values[reduction])
        kind = total_type(self._program, reduction)
        total = f"{self._program.values[reduction].name}_total_"
        step = Fold.of(self._program, reduction, "scalar").step(
            total, f"{self._memories.kept(arg).name}[c - begin]"
        )
        self._text.add(
            f"{kind} {total} = {total_identity(self._program, reduction)};",
            f"for (int64_t c = begin; c < end; ++c) {step}",
            f"{self._of_tasks(reduction)}[task_] = {total};",
        )

    def _finish(self, over_rows: list[int]) -> None:
        """Combine the blocks' values in their order: the result never depends on threads."""
        for i in over_rows:
            total = f"{self._program.values[i].name}_total_"
            kind, identity = total_type(self._program, i), total_identity(self._program, i)
            step = Fold.of(self._program, i, "scalar").step(total, f"{self._of_tasks(i)}[task_]")
            each = f"for (int64_t task_ = 0; task_ < rows * {self._number}; ++task_)"
            self._text.add(f"{kind} {total} = {identity};", f"{each} {step}")
            self._text.add(final(self._program, i, total), f"delete[] {self._of_tasks(i)};")
        self._rest.declare(i for i in self._program.last if i not in over_rows)
        self._rest.store(Level.SCALAR, "0")

    def _begin(self, work: Work) -> None:
        """Let every column's results begin."""
        for i in (*work.reductions, *work.scans):
            for memory, identity in self._memories.starts(i):
                each = f"for (int64_t k = 0; k < end - begin + {WIDEST}; ++k)"
                self._text.add(f"{each} {memory.name}[k] = {identity};")

    def _lines(self, work: Work, first: str, last: str) -> None:
        number = self._style.unroll
        with self._text.block():
            self._text.add(f"int64_t line_ = {first};")
            if number > 1:
                head_ = f"for (; line_ + {number} <= {last}; line_ += {number})"
                with self._text.block(head_):
                    self._line(work, number)
            with self._text.block(f"for (; line_ < {last}; ++line_)"):
                self._line(work, 1)

    def _line(self, work: Work, number: int) -> None:
        style = self._style
        writer = LineWriter(
            self._program, self._memories, style, work, number, self._text, self._width
        )
        writer.write(self._is_even)

    @property
    def _is_even(self) -> bool:
        return self._block % WIDEST == 0 and self._program.domain.cols % self._block == 0

    def _at_rest(self, reductions: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Per column, what is known once a sweep is complete."""
        rows = self._rest.level((*reductions, *after), Level.ROW)
        ends = {n: self._program.outputs[n].value for n in outputs_at(self._program, Level.ROW)}
        outputs = [n for n, value in ends.items() if value in rows]
        keep = [i for i in rows if i in self._memories.later]
        wanted = tuple(dict.fromkeys((*keep, *(ends[n] for n in outputs))))
        if not wanted:
            return
        here = [i for i in self._program.closure(wanted) if i in rows]
        form: Form = "scalar" if emit.vector_problem(self._program, here) else self._style.emitted
        for loop in columns("begin", "end", form, self._is_even):
            with loop.block(self._text):
                names = self._finished(set(reductions), wanted, form, loop.count)
                self._text.extend(store_kept(self._program, self._memories, i, form) for i in keep)
                for n in outputs:
                    target = (
                        f"{self._program.outputs[n].name} + r * {self._program.domain.cols} + c"
                    )
                    self._text.add(emit.store(form, target, names[ends[n]], loop.count))

    def _finished(
        self, reductions: set[int], wanted: tuple[int, ...], form: Form, count: str
    ) -> dict[int, str]:
        """Statements that make ROW values from results and from earlier values."""
        program, names = self._program, dict[int, str]()
        stage = max(program.stages[i] for i in wanted)
        for i in program.closure(wanted):
            value = program.values[i]
            if isinstance(value, Constant):
                continue
            if i in reductions:
                self._text.add(finished_value(program, self._memories, i, form))
            elif value.level is Level.ROW and program.stages[i] < stage:
                if i not in self._memories.later:
                    continue
                self._text.add(load_kept(program, self._memories, i, form))
            elif value.level is not Level.SCALAR:
                continue
            names[i] = value.name
        block = emit.elements(program, wanted, form, known=names, count=count)
        self._text.extend(block.lines)
        return block.names
