"""Owns one line of a block of columns: what each column takes in from it, and what it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from evokernel.frozen import Frozen
from evokernel.proposers.templates import emit
from evokernel.proposers.templates.addressing import Start, line_starts
from evokernel.proposers.templates.expressions import Constant, Level, Program, Reduce, arguments
from evokernel.proposers.templates.folds import PLACES, Fold, Form, keep_place
from evokernel.proposers.templates.kernel import target_starts, targets
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.literals import C_TYPES
from evokernel.proposers.templates.memories import Memories, Memory
from evokernel.proposers.templates.sweep import Style, Work, buffer
from evokernel.proposers.templates.totals import accumulates_wide

_AT = "c - begin"
"""Which element of an array a column has."""


class Columns(Frozen):
    """A loop over columns, or what is left over from one."""

    head: str
    count: str = ""
    """Name of the number of columns, where it is less than a vector."""
    last: str

    @contextmanager
    def block(self, text: Lines) -> Iterator[None]:
        """Its braces; what is left over is counted first."""
        with text.block(self.head):
            if self.count:
                text.add(f"const int {self.count} = static_cast<int>({self.last} - c);")
            yield


def columns(first: str, last: str, form: Form, is_even: bool = False) -> tuple[Columns, ...]:
    """The loops over columns [first, last); an even number leaves nothing over."""
    start = f"int64_t c = {first}"
    if form == "scalar":
        return (Columns(head=f"for ({start}; c < {last}; ++c)", last=last),)
    whole = Columns(head=f"for ({start}; c + LANES <= {last}; c += LANES)", last=last)
    over = f"if (const int64_t c = {last} - ({last} - {first}) % LANES; c < {last})"
    return (whole,) if is_even else (whole, Columns(head=over, count="n", last=last))


def finished_value(program: Program, memories: Memories, reduction: int, form: Form) -> str:
    """The statement that takes a reduction's result out of its array."""
    value = program.values[reduction]
    running = memories.running(reduction)
    kind = _type(value.dtype, form)
    text = _load(running, form)
    if isinstance(value, Reduce) and value.op in PLACES:
        text = f"{memories.place(reduction).name}[{_AT}]"
    elif accumulates_wide(program, reduction):
        text = f"narrow({text})" if form == "vector" else f"static_cast<{kind}>({text})"
    return f"const {kind} {value.name} = {text};"


def load_kept(program: Program, memories: Memories, value: int, form: Form) -> str:
    """The statement that reads a ROW value which was finished before."""
    found = program.values[value]
    return f"const {_type(found.dtype, form)} {found.name} = {_load(memories.kept(value), form)};"


def store_kept(program: Program, memories: Memories, value: int, form: Form) -> str:
    """The statement that keeps a ROW value for later."""
    return _store(memories.kept(value), program.values[value].name, form)


class LineWriter:
    """Writes what happens at a line, or at several lines together."""

    def __init__(
        self,
        program: Program,
        memories: Memories,
        style: Style,
        work: Work,
        number: int,
        text: Lines,
        width: int,
    ) -> None:
        self._program = program
        self._memories = memories
        self._style = style
        self._work = work
        self._number = number
        self._text = text
        self._width = width
        self._wanted = work.wanted(program)
        self._elements = program.elements(self._wanted, work.kept)
        used = {*self._wanted, *(a for i in self._elements for a in self._arguments(i))}
        self._again_read = sorted(used & set(work.kept))

    def write(self, is_even: bool) -> None:
        """Write the loops over the block's columns."""
        names = self._begin()
        for loop in columns("begin", "end", self._style.emitted, is_even):
            if self._style.form == "simd":
                self._text.add("#pragma omp simd")
            with loop.block(self._text):
                self._text.extend(self._rows())
                self._text.extend(self._fetched())
                with self._each_line():
                    self._text.extend(self._again(names))
                    self._text.extend(self._statements(names, loop.count))
                self._text.extend(self._put_back())

    @contextmanager
    def _each_line(self) -> Iterator[None]:
        """A block for each of several lines; one line needs none."""
        if self._number == 1:
            yield
            return
        self._text.add(f"#pragma GCC unroll {self._number}")
        with self._text.block(f"for (int u_ = 0; u_ < {self._number}; ++u_)"):
            yield

    # What all columns of a line have in common.

    @property
    def _starts(self) -> list[Start]:
        written = [targets(self._program)[n] for n in self._work.outputs]
        targeted = [s for s in target_starts(self._program) if s.name in written]
        return [*line_starts(self._program), *targeted]

    def _begin(self) -> dict[int, str]:
        """Pointers and values of the lines; several lines have them in arrays."""
        wanted = self._program.per_line(self._wanted)
        block = emit.elements(self._program, wanted, "scalar")
        made = {i: block.names[i] for i in wanted}
        if self._number > 1:
            for start in self._starts:
                self._text.add(f"{start.type} {start.name}s_[{self._number}];")
            for i, name in made.items():
                kind = C_TYPES[self._program.values[i].dtype]
                self._text.add(f"{kind} {name}_of_lines_[{self._number}];")
        with self._each_line():
            offset = " + u_" if self._number > 1 else ""
            self._text.add(f"const int64_t d = line_{offset};")
            for start in self._starts:
                own = f"{start.name}s_[u_]" if offset else f"{start.type} {start.name}"
                self._text.add(f"{own} = {start.place};")
            self._text.extend(block.lines)
            if offset:
                self._text.extend(f"{name}_of_lines_[u_] = {name};" for name in made.values())
        return made

    def _arguments(self, value: int) -> tuple[int, ...]:
        return arguments(self._program.values[value])

    def _again(self, names: dict[int, str]) -> Iterable[str]:
        """Inside of the columns' loop: what belongs to one of several lines, by its usual name."""
        if self._number == 1:
            return
        yield "const int64_t d = line_ + u_;"
        for start in self._starts:
            yield f"{start.type} {start.name} = {start.name}s_[u_];"
        for i, name in names.items():
            kind = C_TYPES[self._program.values[i].dtype]
            yield f"const {kind} {name} = {name}_of_lines_[u_];"

    # What a column has.

    def _rows(self) -> Iterable[str]:
        """ROW values that were finished before."""
        used = {a for i in self._elements for a in self._arguments(i)} | set(self._wanted)
        for i in sorted(used):
            value = self._program.values[i]
            if value.level is Level.ROW and not isinstance(value, Constant):
                yield load_kept(self._program, self._memories, i, self._style.emitted)

    def _fetched(self) -> Iterable[str]:
        """Results so far. Floats add up over these lines only, then they go into a double."""
        form = self._style.emitted
        for i in self._work.reductions:
            running, name = self._memories.running(i), self._name(i)
            if self._is_place(i):
                kind = _type(self._program.values[self._argument(i)].dtype, form)
                yield f"{kind} {name}_best = {_load(running, form)};"
                yield self._place_so_far(i)
                continue
            fold = Fold.of(self._program, i, form)
            start = _load(running, form)
            if accumulates_wide(self._program, i):
                start = fold.identity
            yield f"{fold.type} {name}_step = {start};"
        for i in self._work.scans:
            running = self._memories.running(i)
            yield f"{_running_type(running, form)} {self._name(i)}_carry = {_load(running, form)};"

    def _place_so_far(self, reduction: int) -> str:
        at, name = self._memories.place(reduction).name, self._name(reduction)
        if self._style.emitted == "vector":
            return f"Ints {name}_at = load_places({at} + {_AT});"
        return f"int32_t {name}_at = {at}[{_AT}];"

    def _statements(self, names: dict[int, str], count: str) -> Iterable[str]:
        form = self._style.emitted
        known = {**names, **{i: self._name(i) for i in self._again_read}}
        kind = "const float" if form == "scalar" else "const V"
        for i in self._again_read:
            yield f"{kind} {self._name(i)} = {_load(self._kept(i), form, self._at)};"
        block = emit.elements(self._program, self._wanted, form, known=known, count=count)
        yield from block.lines
        for i in self._work.keep:
            yield _store(self._kept(i), block.names[i], form, self._at)
        for i in self._work.reductions:
            name = block.names[self._argument(i)]
            if self._is_place(i):
                yield self._compared(i, name)
            else:
                yield Fold.of(self._program, i, form).step(f"{self._name(i)}_step", name)
        for n in self._work.outputs:
            output = self._program.outputs[n]
            step = (output.walk or self._program.domain.in_order).step
            target = emit.place(targets(self._program)[n], "c", step)
            streaming = self._style.streaming and output.dtype == "float32"
            value = block.names[output.value]
            yield emit.store(form, target, value, count, streaming=streaming, step=step)

    def _compared(self, reduction: int, name: str) -> str:
        value = self._program.values[reduction]
        assert isinstance(value, Reduce)
        form = self._style.emitted
        place = "same_place(d)" if form == "vector" else "d"
        best, at = f"{value.name}_best", f"{value.name}_at"
        return keep_place(value, form, best, at, name, place)

    def _put_back(self) -> Iterable[str]:
        form = self._style.emitted
        for i in self._work.reductions:
            running = self._memories.running(i)
            if self._is_place(i):
                at = self._memories.place(i).name
                yield _store(running, f"{self._name(i)}_best", form)
                place = f"{self._name(i)}_at"
                vector = form == "vector"
                yield (
                    f"store_places({at} + {_AT}, {place});" if vector else f"{at}[{_AT}] = {place};"
                )
            elif accumulates_wide(self._program, i):
                fold = Fold.of(self._program, i, form)
                both = fold.combine.format(_load(running, form), f"{self._name(i)}_step")
                yield _store(running, both, form)
            else:
                yield _store(running, f"{self._name(i)}_step", form)
        for i in self._work.scans:
            yield _store(self._memories.running(i), f"{self._name(i)}_carry", form)

    @property
    def _at(self) -> str:
        """Where a line's part of what is kept for later sweeps has a column."""
        return f"d * {self._width} + {_AT}"

    def _kept(self, value: int) -> Memory:
        return Memory(name=buffer(self._program, value), type="float")

    def _name(self, value: int) -> str:
        return self._program.values[value].name

    def _argument(self, reduction: int) -> int:
        (arg,) = self._arguments(reduction)
        return arg

    def _is_place(self, reduction: int) -> bool:
        value = self._program.values[reduction]
        return isinstance(value, Reduce) and value.op in PLACES


def _type(dtype: str, form: Form) -> str:
    if form == "scalar":
        return C_TYPES[dtype]
    return "M" if dtype == "bool" else "V"


def _running_type(memory: Memory, form: Form) -> str:
    if form == "scalar":
        return memory.type
    return {"double": "D", "bool": "M"}.get(memory.type, "V")


def _load(memory: Memory, form: Form, at: str = _AT) -> str:
    if form == "scalar":
        return f"{memory.name}[{at}]"
    stem = {"double": "load_wide", "bool": "load_mask"}.get(memory.type, "load")
    return f"{stem}({memory.name} + {at})"


def _store(memory: Memory, value: str, form: Form, at: str = _AT) -> str:
    if form == "scalar":
        return f"{memory.name}[{at}] = {value};"
    stem = "store_wide" if memory.type == "double" else "store"
    return f"{stem}({memory.name} + {at}, {value});"
