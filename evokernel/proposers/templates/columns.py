"""Owns the loop structure for reductions and scans across lines: every column by itself."""

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
from evokernel.proposers.templates.choices import Choice, Needs, Option, Space, Value
from evokernel.proposers.templates.expressions import (
    Constant,
    Level,
    Program,
    Reduce,
    Scan,
    arguments,
)
from evokernel.proposers.templates.folds import PLACES, Fold, Form
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
    style_choices,
    style_of,
    thread_count,
)
from evokernel.proposers.templates.sweep import WIDEST, Work
from evokernel.proposers.templates.totals import final, total_identity, total_type

_SIZES = ("rows", "threads")

_BLOCK = 1024
"""Columns that a thread handles at a time: a line of them is 4 KB, their sums stay in the first
cache (ours)."""

_TASKS = 8
"""Fewer blocks than this would leave threads without work (ours)."""

_FEW_RESULTS = 4096
_MANY_LINES = 2048
"""Fewer results than the one, each over more lines than the other: threads may share the lines."""

_SHARE = 65536
"""Elements that a thread takes of shared lines at a time (ours)."""


def space(program: Program) -> Space:
    """Every way to write a program of columns."""
    spread = _spread(program)
    blocks: Needs = {"spread": ("blocks",)} if spread else {}
    return Space(
        family="columns",
        choices=(*spread, *_blocks(program, blocks), *style_choices(program)),
    )


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a program of columns."""
    return _Writer(program, choices, function).write()


def _spread(program: Program) -> tuple[Choice, ...]:
    domain = program.domain
    parts = [v for v in program.values if isinstance(v, Reduce | Scan)]
    whole = any(isinstance(v, Scan) or v.op in PLACES for v in parts)
    if domain.results >= _FEW_RESULTS or domain.lines < _MANY_LINES or whole or program.last:
        return ()
    shared = Option(value="lines", technique="split-rows")
    return (Choice(name="spread", options=(Option(value="blocks"), shared)),)


def _blocks(program: Program, needs: Needs) -> tuple[Choice, ...]:
    rows, cols = program.domain.rows, program.domain.cols
    plain = _BLOCK
    while plain > 4 * WIDEST and rows * -(-cols // plain) < _TASKS:
        plain //= 2
    plain = min(plain, cols)
    others = [n for n in (64, 256, _BLOCK, 4096) if n < cols and n != plain]
    options = [Option(value=n, technique="column-blocking") for n in others]
    return (Choice(name="block", options=(Option(value=plain), *options), needs=needs),)


class _Writer:
    """Writes one kernel."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = as_chosen(program, choices)
        self._choices = choices
        self._function = function
        self._text = Lines()
        self._style = style_of(choices)
        self._rest = Resting(self._program, self._text)
        self._memories = Memories(program=self._program)
        self._shared = choices.get("spread") == "lines"
        cols = program.domain.cols
        self._block = cols if self._shared else int(choices.get("block", cols))
        self._number = -(-cols // self._block)

    def write(self) -> Kernel:
        with self._text.block(head(self._function, self._program, _SIZES)):
            self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
            if self._shared:
                with self._text.block("for (int64_t r = 0; r < rows; ++r)"):
                    self._shared_row()
            else:
                self._parallel()
        return finished(self._function, self._text, _SIZES)

    # Blocks of columns, each the work of one thread.

    def _parallel(self) -> None:
        over_rows = [i for i in self._program.last if self._is_total(i)]
        for i in over_rows:
            kind = total_type(self._program, i)
            size = f"rows * {self._number}"
            self._text.add(f"{kind}* {self._of_tasks(i)} = new {kind}[{size}];")
        self._text.add(f"#pragma omp parallel num_threads({thread_count(self._choices)})")
        with self._text.block():
            self._text.add("#pragma omp for schedule(static)")
            with self._text.block(
                f"for (int64_t task_ = 0; task_ < rows * {self._number}; ++task_)"
            ):
                self._task(over_rows)
            if self._style.streaming:
                self._text.add("stream_fence();")
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
            self._text.add(f"alignas(64) {memory.type} {memory.name}[{size + WIDEST}];")
        self._at_rest((), self._program.before)
        for number, sweep in enumerate(self._program.passes, start=1):
            self._text.add(f"// Sweep {number} of {len(self._program.passes)}.")
            work = Work.of(sweep)
            self._begin(work)
            self._lines(work, "0", str(self._program.domain.lines))
            self._at_rest(work.reductions, sweep.after)
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

    # All threads on the lines of one row.

    def _shared_row(self) -> None:
        self._text.add("const int64_t begin = 0;", f"const int64_t end = {self._block};")
        self._text.extend(pointers(self._program))
        width = self._block + WIDEST
        for memory in self._memories.all:
            self._text.add(f"{memory.type}* {memory.name} = new {memory.type}[{width}];")
        self._at_rest((), self._program.before)
        for number, sweep in enumerate(self._program.passes, start=1):
            self._text.add(f"// Sweep {number} of {len(self._program.passes)}.")
            self._shared_sweep(Work.of(sweep), width)
            self._at_rest(sweep.reductions, sweep.after)
        self._text.extend(f"delete[] {memory.name};" for memory in self._memories.all)

    def _shared_sweep(self, work: Work, width: int) -> None:
        lines = self._program.domain.lines
        share = max(_SHARE // self._block, 1)
        number = -(-lines // share)
        parts = [(self._memories.running(i), i) for i in work.reductions]
        for memory, _ in parts:
            text = f"{memory.type}* {memory.name}parts_ = new {memory.type}[{number * width}];"
            self._text.add(text)
        self._text.add(
            f"#pragma omp parallel for schedule(static) num_threads({thread_count(self._choices)})"
        )
        with self._text.block(f"for (int64_t chunk = 0; chunk < {number}; ++chunk)"):
            for memory, _ in parts:
                start = f"{memory.name}parts_ + chunk * {width}"
                self._text.add(f"{memory.type}* {memory.name} = {start};")
            self._begin(work)
            self._text.add(
                f"const int64_t last_ = {lines} - chunk * {share} < {share} ? {lines} "
                f": (chunk + 1) * {share};"
            )
            self._lines(work, f"chunk * {share}", "last_")
            if self._style.streaming and work.outputs:
                self._text.add("stream_fence();")
        self._begin(work)
        for memory, i in parts:
            step = Fold.of(self._program, i, "scalar").step(
                f"{memory.name}[c]", f"{memory.name}parts_[chunk * {width} + c]"
            )
            with self._text.block(f"for (int64_t chunk = 0; chunk < {number}; ++chunk)"):
                self._text.add(f"for (int64_t c = begin; c < end; ++c) {step}")
            self._text.add(f"delete[] {memory.name}parts_;")

    # What both have in common.

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
        writer = LineWriter(self._program, self._memories, style, work, number, self._text)
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
