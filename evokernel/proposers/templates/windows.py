"""Owns the loop structure of pooling: every window by itself, its results in registers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from evokernel.frozen import Frozen
from evokernel.proposers.templates import emit
from evokernel.proposers.templates.addressing import element, line_starts, pointers
from evokernel.proposers.templates.choices import Space, Value
from evokernel.proposers.templates.domain import Inside
from evokernel.proposers.templates.expressions import (
    Constant,
    Level,
    Load,
    Program,
    Reduce,
    arguments,
)
from evokernel.proposers.templates.folds import Fold, Form
from evokernel.proposers.templates.kernel import Kernel, Resting, finished, head, outputs_at
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.rows import schedule_choice
from evokernel.proposers.templates.styles import (
    as_chosen,
    style_choices,
    style_of,
    thread_count,
)

_SIZES = ("rows", "threads")

_UNROLLED = 8
"""Longest side of a window whose loop is written out (ours)."""


class Limit(Frozen):
    """Which places of a window's axis there are."""

    axis: int
    """Of `Domain.depth`."""
    guard: Inside

    @property
    def stride(self) -> int:
        """How far one place moves."""
        return self.guard.walk.depth[self.axis]


def space(program: Program) -> Space:
    """Every way to write a pool."""
    return Space(family="windows", choices=(*style_choices(program), schedule_choice({})))


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a pool that `lower` let pass."""
    return _Writer(program, choices, function).write()


class _Writer:
    """Writes one kernel."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = as_chosen(program, choices)
        self._choices = choices
        self._function = function
        self._text = Lines()
        self._style = style_of(choices)
        self._rest = Resting(self._program, self._text)
        (sweep,) = self._program.passes
        self._reductions = sweep.reductions
        limits = [_limit(g) for g in _guards(self._program)]
        self._rows = [limit for limit in limits if limit.guard.walk.step == 0]
        self._columns = [limit for limit in limits if limit.guard.walk.step]

    def write(self) -> Kernel:
        grain = self._choices.get("schedule", "static")
        schedule = "static" if grain == "static" else f"dynamic, {grain}"
        with self._text.block(head(self._function, self._program, _SIZES)):
            self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
            self._text.add(
                f"#pragma omp parallel for schedule({schedule}) "
                f"num_threads({thread_count(self._choices)})"
            )
            with self._text.block("for (int64_t r = 0; r < rows; ++r)"):
                self._row()
        return finished(self._function, self._text, _SIZES)

    def _row(self) -> None:
        self._text.extend(pointers(self._program))
        self._rest.declare(self._same_for_all)
        for limit in self._rows:
            self._limited(limit, element(self._program.domain, limit.guard.walk, line=self._zeros))
        cols = self._program.domain.cols
        if self._style.emitted == "scalar":
            with self._text.block(f"for (int64_t c = 0; c < {cols}; ++c)"):
                self._windows("scalar")
            return
        first, last = self._inner()
        self._vectors(first, last)
        if self._columns:
            with self._text.block(f"for (int64_t c = 0; c < {cols}; ++c)"):
                self._text.add(f"if (c == {first}) c = {last};", f"if (c >= {cols}) break;")
                self._windows("scalar")

    @property
    def _same_for_all(self) -> list[int]:
        """ROW values that are the same in every column."""
        values = self._program.values

        def is_fixed(index: int) -> bool:
            below = [values[i] for i in self._program.closure([index])]
            return not any(isinstance(v, Load) and v.access.varies(columns=True) for v in below)

        return [i for i in self._rest.level(self._program.before, Level.ROW) if is_fixed(i)]

    # Which windows are whole.

    @property
    def _zeros(self) -> list[str]:
        return ["0"] * len(self._program.domain.depth)

    def _limited(self, limit: Limit, start: str) -> None:
        """Declare the first place of an axis that there is, and the one behind the last."""
        size, stride = self._program.domain.depth[limit.axis], limit.stride
        bound = f"scalar::first_from({start}, {stride}, {limit.guard.size})"
        self._text.add(
            f"const int64_t first{limit.axis}_ = scalar::first_from({start}, {stride}, 0);",
            f"const int64_t last{limit.axis}_ = scalar::least({size}, {bound});",
        )

    def _inner(self) -> tuple[str, str]:
        """The first column, and the one behind the last, whose windows are whole along the row."""
        cols = self._program.domain.cols
        if not self._columns:
            return "0", str(cols)
        (limit,) = self._columns
        guard, size = limit.guard, self._program.domain.depth[limit.axis]
        start = element(self._program.domain, guard.walk, line=self._zeros)
        far = f"{start} + {(size - 1) * limit.stride}"
        begin = f"scalar::first_from({start}, {guard.walk.step}, 0)"
        end = f"scalar::first_from({far}, {guard.walk.step}, {guard.size})"
        self._text.add(
            f"const int64_t begin = scalar::least({begin}, {cols});",
            f"const int64_t end = scalar::most(begin, scalar::least({end}, {cols}));",
        )
        return "begin", "end"

    # Windows.

    def _vectors(self, first: str, last: str) -> None:
        number = self._style.unroll
        with self._text.block():
            self._text.add(f"int64_t c = {first};")
            if number > 1:
                step = f"{number} * LANES"
                with self._text.block(f"for (; c + {step} <= {last}; c += {step})"):
                    self._windows("vector", number)
            with self._text.block(f"for (; c + LANES <= {last}; c += LANES)"):
                self._windows("vector")
            with self._text.block(f"if (c < {last})"):
                self._text.add(f"const int n = static_cast<int>({last} - c);")
                self._windows("vector", count="n")

    def _windows(self, form: Form, number: int = 1, count: str = "") -> None:
        """One window, or as many as there are lanes, `number` times."""
        folds = {i: Fold.of(self._program, i, form) for i in self._reductions}
        part = "[u_]" if number > 1 else ""
        for i, fold in folds.items():
            name = f"{self._program.values[i].name}_acc_"
            if part:
                self._text.add(f"{fold.type} {name}[{number}];")
                self._text.add(f"for ({fold.type}& each_ : {name}) each_ = {fold.identity};")
            else:
                self._text.add(f"{fold.type} {name} = {fold.identity};")
        if form == "scalar":
            for limit in self._columns:
                start = element(self._program.domain, limit.guard.walk, line=self._zeros)
                self._limited(limit, f"{start} + c * {limit.guard.walk.step}")
        self._places(form, folds, number, part, count)
        with ExitStack() as stack:
            if part:
                stack.enter_context(self._each(number))
            self._results(form, part, count)

    def _places(
        self, form: Form, folds: Mapping[int, Fold], number: int, part: str, count: str
    ) -> None:
        """The loops over a window."""
        indices = [f"k{axis}_" for axis in range(len(self._program.domain.depth))]
        column = "c + u_ * LANES" if part else "c"
        wanted = [arguments(self._program.values[i])[0] for i in folds]
        with ExitStack() as stack:
            for axis, index in enumerate(indices):
                for line in self._unrolled(axis, form):
                    self._text.add(line)
                stack.enter_context(self._text.block(self._loop(axis, index, form)))
            for start in line_starts(self._program, line=indices):
                self._text.add(f"{start.type} {start.name} = {start.place};")
            if part:
                stack.enter_context(self._each(number))
            block = emit.elements(self._program, wanted, form, column=column, count=count)
            self._text.extend(block.lines)
            for (i, fold), arg in zip(folds.items(), wanted, strict=True):
                name = f"{self._program.values[i].name}_acc_{part}"
                self._text.add(fold.step(name, block.names[arg]))

    def _each(self, number: int) -> AbstractContextManager[None]:
        self._text.add(f"#pragma GCC unroll {number}")
        return self._text.block(f"for (int u_ = 0; u_ < {number}; ++u_)")

    def _has_limits(self, axis: int, form: Form) -> bool:
        limits = self._rows if form == "vector" else [*self._rows, *self._columns]
        return any(limit.axis == axis for limit in limits)

    def _unrolled(self, axis: int, form: Form) -> Iterator[str]:
        size = self._program.domain.depth[axis]
        if form == "vector" and size <= _UNROLLED and not self._has_limits(axis, form):
            yield f"#pragma GCC unroll {size}"

    def _loop(self, axis: int, index: str, form: Form) -> str:
        first, last = "0", str(self._program.domain.depth[axis])
        if self._has_limits(axis, form):
            first, last = f"first{axis}_", f"last{axis}_"
        return f"for (int64_t {index} = {first}; {index} < {last}; ++{index})"

    def _results(self, form: Form, part: str, count: str) -> None:
        """What is made from a window's results, and stored."""
        program, known = self._program, dict[int, str]()
        for i in self._reductions:
            name = program.values[i].name
            kind = Fold.of(program, i, form).type
            self._text.add(f"const {kind} {name} = {name}_acc_{part};")
        fixed = {*self._same_for_all, *self._reductions}
        for i, value in enumerate(program.values):
            scalar = value.level is Level.SCALAR and not isinstance(value, Constant)
            if scalar or i in fixed:
                known[i] = value.name
        column = "c + u_ * LANES" if part else "c"
        outputs = outputs_at(program, Level.ROW)
        wanted = [program.outputs[n].value for n in outputs]
        block = emit.elements(program, wanted, form, known=known, column=column, count=count)
        self._text.extend(block.lines)
        for n in outputs:
            output = program.outputs[n]
            target = f"{output.name} + r * {program.domain.cols} + {column}"
            self._text.add(emit.store(form, target, block.names[output.value], count))


def _guards(program: Program) -> Sequence[Inside]:
    found = [v.guards for v in program.values if isinstance(v, Reduce)]
    return found[0] if found else ()


def _limit(guard: Inside) -> Limit:
    (axis,) = (n for n, stride in enumerate(guard.walk.depth) if stride)
    return Limit(axis=axis, guard=guard)
