"""Owns one sweep of a block of threads over columns: some of them beside, some below each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from evokernel.frozen import Frozen
from evokernel.proposers.templates.cuda import totals
from evokernel.proposers.templates.cuda.accumulators import (
    Accumulator,
    carry_type,
    fold,
    single,
    total_of,
)
from evokernel.proposers.templates.cuda.kernel import outputs_at
from evokernel.proposers.templates.cuda.packs import Packs
from evokernel.proposers.templates.cuda.spelling import identity
from evokernel.proposers.templates.cuda.statements import Where, lower_values, statements
from evokernel.proposers.templates.cuda.sweeps import RUN, Task
from evokernel.proposers.templates.expressions import Level, Program, Reduce, Scan, arguments
from evokernel.proposers.templates.folds import PLACES
from evokernel.proposers.templates.lines import Lines


class Block(Frozen):
    """How threads stand over the columns."""

    wide: int
    """Threads beside each other, one pack of columns each."""
    deep: int
    """Threads that share a column's lines."""
    many: int
    """Lines that a thread has in registers at once."""
    is_held: bool
    """Whether they are all of its lines, and stay there from sweep to sweep."""
    begin: str
    end: str
    length: int = 0
    """Lines that a block goes through at most."""
    even: bool = False
    """Whether every thread has as many lines, so that none has to be asked for."""

    @property
    def inside(self) -> str:
        """What stands before the statements of a line."""
        return "" if self.even else f"if (d_ < {self.end})"


class ColumnSweeps:
    """Writes the sweeps of one program's columns; a thread has a number per column of its pack."""

    def __init__(self, program: Program, packs: Packs, block: Block, text: Lines) -> None:
        self._program = program
        self._packs = packs
        self._block = block
        self._text = text
        self._known: dict[int, str] = {}
        self._scanned: set[int] = set()
        self.live = ""
        """Condition under which results are stored; empty for always."""
        # Values per column are made where they are needed, from the totals of reductions.
        packs.lower = {
            i: name
            for i, name in lower_values(program).items()
            if program.values[i].level is Level.SCALAR and i not in program.last
        }

    @property
    def width(self) -> int:
        """Columns per pack."""
        return self._packs.width

    def begin(self) -> None:
        """Begin a kernel."""
        self._known, self._scanned = {}, set()
        scalars = [i for i in self._program.before if i in self._packs.lower]
        self._text.extend(statements(self._program, scalars, Where()).lines)

    def accumulators(self, task: Task) -> list[Accumulator]:
        """What a task folds into."""
        return [single(self._program, i) for i in task.reductions] + [
            total_of(self._program, i) for i in task.totals
        ]

    def hold(self, tasks: Iterable[Task]) -> None:
        """Load all lines that any task needs."""
        self._load(self._packs.streams([i for t in tasks for i in t.wanted(self._program)]))

    def write(self, task: Task, carries: bool = True) -> list[Accumulator]:
        """Write one sweep; each thread then has its share of every accumulator."""
        found = self.accumulators(task)
        for each in found:
            self._declare(each)
        if carries:
            for i in task.scans:
                scan = self._program.values[i]
                assert isinstance(scan, Scan)
                kind, start = carry_type(scan), identity(scan.op, scan.dtype)
                self._array("" if i in self._scanned else kind, f"{scan.name}_carry_", start)
                self._scanned.add(i)
        if self._block.is_held:
            self._turn(task, found, "")
        else:
            self._loop(task, found)
        return found

    def _loop(self, task: Task, found: list[Accumulator]) -> None:
        """Turn after turn; sums of very many numbers are made of sums of fewer."""
        step, begin, end = self._block.deep * self._block.many, self._block.begin, self._block.end
        is_long = bool(found) and not task.scans and self._block.length > RUN * step
        if is_long:
            for each in found:
                self._array(each.type, f"{each.name}_runs_", each.start)
            outer = f"for (int run_ = {begin}; run_ < {end}; run_ += {RUN * step})"
            self._text.add(f"{outer} {{")
            for each in found:
                self._array("", each.variable, each.restart)
            begin, end = "run_", f"min(run_ + {RUN * step}, {end})"
        with self._text.block(f"for (int base_ = {begin}; base_ < {end}; base_ += {step})"):
            self._load(self._packs.streams(task.wanted(self._program)))
            self._turn(task, found, "base_ + ")
        if is_long:
            for each in found:
                runs = f"{each.name}_runs_"
                taken = each.combined(f"{runs}[k_]", f"{each.variable}[k_]")
                self._array("", runs, taken)
            self._text.add("}")
            for each in found:
                self._array("", each.variable, f"{each.name}_runs_[k_]")

    def share(self, each: Accumulator) -> None:
        """Combine what the threads below each other have, in their order; all of them know it."""
        if self._block.deep > 1:
            wide, deep, room = self._block.wide, self._block.deep, f"{each.name}_room_"
            self._text.add(
                f"__shared__ {each.type} {room}[{deep}][{wide}][{self.width}];",
                "#pragma unroll",
                f"{self._lanes} {room}[member_][x_][k_] = {each.variable}[k_];",
                "__syncthreads();",
                "#pragma unroll",
            )
            with self._text.block(self._lanes):
                self._text.add(f"{each.variable}[k_] = {room}[0][x_][k_];")
                taken = each.combined(f"{each.variable}[k_]", f"{room}[n_][x_][k_]")
                loop = f"for (int n_ = 1; n_ < {deep}; ++n_)"
                self._text.add(f"{loop} {each.variable}[k_] = {taken};")
        self._note(each)

    def leave(self, each: Accumulator, memory: str, parts: int) -> None:
        """Store a part's result."""
        self.share(each)
        made = f"reinterpret_cast<{each.type}*>({memory})"
        place = self._place_of_part(parts, "part_")
        guard = "if (member_ == 0" + (f" && {self.live}" if self.live else "") + ")"
        with self._text.block(guard):
            self._text.add("#pragma unroll")
            self._text.add(f"{self._lanes} {made}[{place}] = {each.variable}[k_];")

    def combine(self, each: Accumulator, memory: str, parts: int) -> None:
        """Combine the parts of a column."""
        self._declare(each)
        known, deep = f"reinterpret_cast<const {each.type}*>({memory})", self._block.deep
        with self._text.block(f"for (int n_ = member_; n_ < {parts}; n_ += {deep})"):
            self._text.add("#pragma unroll")
            so_far, place = f"{each.variable}[k_]", self._place_of_part(parts, "n_")
            taken = each.combined(so_far, f"{known}[{place}]")
            self._text.add(f"{self._lanes} {so_far} = {taken};")
        self.share(each)

    def carry_on(self, each: Accumulator, memory: str, parts: int) -> None:
        """Let a scan go on from the parts before."""
        scan = self._program.values[each.reductions[0]]
        assert isinstance(scan, Scan)
        carry, kind = f"{scan.name}_carry_", carry_type(scan)
        self._array(kind, carry, each.start)
        with self._text.block("for (int n_ = 0; n_ < part_; ++n_)"):
            self._text.add("#pragma unroll")
            known = f"reinterpret_cast<const {each.type}*>({memory})"
            taken = f"static_cast<{kind}>({known}[{self._place_of_part(parts, 'n_')}])"
            combined = each.combined(f"{carry}[k_]", taken)
            self._text.add(f"{self._lanes} {carry}[k_] = {combined};")

    def results(self, of_rows: Mapping[int, str]) -> None:
        """Store what columns give."""
        program, cols = self._program, self._program.domain.cols
        found = outputs_at(program, Level.ROW)
        wanted = [program.outputs[n].value for n in found]
        wanted += [totals.given(program, i) for i in of_rows]
        guard = "if (member_ == 0" + (f" && {self.live}" if self.live else "") + ")"
        if wanted:
            self._text.add("#pragma unroll")
            with self._text.block(self._lanes):
                where = Where(column="(c_ + k_)")
                names = {**self._packs.lower, **self._known}
                block = statements(program, wanted, where, names)
                self._text.extend(block.lines)
                place = f"r * {cols}LL + c_ + k_"
                for n in found:
                    output = program.outputs[n]
                    value = block.names[output.value]
                    self._text.add(f"{guard} gpu::put({output.name} + {place}, {value});")
                for i, memory in of_rows.items():
                    value = block.names[totals.given(program, i)]
                    self._text.add(f"{guard} {memory}[{place}] = {value};")
        self._scalars()

    def _scalars(self) -> None:
        program = self._program
        for n in outputs_at(program, Level.SCALAR):
            output = program.outputs[n]
            if output.value not in program.last:
                block = statements(program, [output.value], Where(), self._packs.lower)
                put = f"gpu::put({output.name}, {block.names[output.value]});"
                self._text.add(f"if (blockIdx.x == 0 && threadIdx.x == 0) {put}")

    # Parts of the text.

    @property
    def _lanes(self) -> str:
        return f"for (int k_ = 0; k_ < {self.width}; ++k_)"

    def _declare(self, each: Accumulator) -> None:
        self._array(each.type, each.variable, each.start)

    def _array(self, kind: str, name: str, start: str) -> None:
        if kind:
            self._text.add(f"{kind} {name}[{self.width}];")
        self._text.add("#pragma unroll")
        self._text.add(f"{self._lanes} {name}[k_] = {start};")

    def _note(self, each: Accumulator) -> None:
        """From now on a reduction is known by its accumulator."""
        index = each.reductions[0]
        value = self._program.values[index]
        if isinstance(value, Reduce):
            at = ".at" if value.op in PLACES else ""
            self._known[index] = f"{each.variable}[k_]{at}"

    def _place_of_part(self, parts: int, part: str) -> str:
        return f"(r * {parts}LL + {part}) * {self._program.domain.cols} + c_ + k_"

    def _each(self) -> str:
        self._text.add("#pragma unroll")
        return f"for (int j_ = 0; j_ < {self._block.many}; ++j_)"

    def _at(self, base: str) -> None:
        times = f" + j_ * {self._block.deep}" if self._block.many > 1 else ""
        self._text.add(f"const int d_ = {base}member_{times};")

    def _load(self, streams: tuple[int, ...]) -> None:
        if not streams:
            return
        for i in streams:
            array = f"{self._packs.name_of(i)}[{self._block.many}]"
            self._text.add(f"{self._packs.type_of(i)} {array};")
        with self._text.block(self._each()):
            self._at("" if self._block.is_held else "base_ + ")
            with self._text.block(self._block.inside):
                for i in streams:
                    text = self._packs.load_text(i, Where())
                    self._text.add(f"{self._packs.name_of(i)}[j_] = {text};")

    def _turn(self, task: Task, found: list[Accumulator], base: str) -> None:
        program = self._program

        def sink(names: Mapping[int, str]) -> Iterator[str]:
            for each in found:
                index, so_far = each.reductions[0], f"{each.variable}[k_]"
                if index in task.totals:
                    arg = names[arguments(program.values[index])[0]]
                    yield f"{so_far} = {each.combined(so_far, arg)};"
                else:
                    yield from fold(program, each, names, "d_", so_far)

        streams = self._packs.streams(task.wanted(program))
        packs = {i: f"{self._packs.name_of(i)}[j_]" for i in streams}
        carries = {i: f"{program.values[i].name}_carry_[k_]" for i in task.scans}
        with self._text.block(self._each()):
            self._at(base)
            with self._text.block(self._block.inside):
                self._packs.write(
                    Where(),
                    (*task.taken(program), *task.scans),
                    packs,
                    sink,
                    task.outputs,
                    self._known,
                    self.live,
                    carries,
                )
