"""Owns one sweep of a team of threads over a row: what is loaded, folded, scanned and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from evokernel.frozen import Frozen
from evokernel.proposers.templates.cuda.accumulators import (
    Accumulator,
    both,
    fold,
    single,
    total_of,
)
from evokernel.proposers.templates.cuda.packs import Packs
from evokernel.proposers.templates.cuda.spelling import C_TYPES, COMBINE, identity
from evokernel.proposers.templates.cuda.statements import Where
from evokernel.proposers.templates.expressions import Program, Scan, arguments
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.works import Pair

RUN = 32
"""Turns after which a thread begins a new sum (ours): it rounds a few hundred times at most."""


class Task(Frozen):
    """What one sweep computes."""

    reductions: tuple[int, ...] = ()
    pair: Pair | None = None
    """Two reductions that it does instead."""
    totals: tuple[int, ...] = ()
    """Scans of whose arguments it takes the total only."""
    scans: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    def taken(self, program: Program) -> tuple[int, ...]:
        """Values that it takes in or stores at every column."""
        folded = [a for i in (*self.reductions, *self.totals) for a in arguments(program.values[i])]
        elements = (self.pair.element,) if self.pair else ()
        return (*folded, *elements, *(program.outputs[n].value for n in self.outputs))

    def wanted(self, program: Program) -> tuple[int, ...]:
        """The same, and what its scans run over."""
        scanned = [a for i in self.scans for a in arguments(program.values[i])]
        return (*self.taken(program), *scanned)


class Span(Frozen):
    """The packs of a row that a team sweeps, and how many of them a thread has at a time."""

    team: int
    """Threads."""
    many: int
    """Packs that a thread has in registers at once."""
    end: str
    """Number of the first pack that is not swept."""
    begin: str = "0"
    held: bool = False
    """Whether they are all of them, and stay there from sweep to sweep."""
    length: int = 0
    """Packs that are swept at most."""
    even: bool = False
    """Whether every thread has as many, so that none has to be asked for."""

    @property
    def inside(self) -> str:
        """What stands before the statements of a pack."""
        return "" if self.even else f"if (q_ < {self.end})"


class Sweeps:
    """Writes the sweeps of one program's rows."""

    def __init__(self, program: Program, packs: Packs, span: Span, text: Lines) -> None:
        self._program = program
        self._packs = packs
        self._span = span
        self._text = text
        self._scanned: set[int] = set()
        self.live = ""
        """Condition under which results are stored; empty for always."""

    def accumulators(self, task: Task) -> list[Accumulator]:
        """What a task folds into; totals of scans are called as the scans are."""
        found = [both(self._program, task.pair)] if task.pair else []
        found += [single(self._program, i) for i in task.reductions]
        return found + [total_of(self._program, i) for i in task.totals]

    def rooms(self, tasks: Iterable[Task]) -> Iterator[str]:
        """Shared memory through which the warps of a team tell each other."""
        if self._span.team <= 32:
            return
        warps, scanned = self._span.team // 32, set[int]()
        for task in tasks:
            for each in self.accumulators(task):
                yield f"__shared__ {each.type} {each.name}_room_[{warps}];"
            for i in task.scans:
                scan = self._program.values[i]
                size = warps * self._span.many
                if i not in scanned:
                    yield f"__shared__ {C_TYPES[scan.dtype]} {scan.name}_room_[{size}];"
                scanned.add(i)

    def hold(self, tasks: Iterable[Task]) -> None:
        """Load all of a row that any task needs."""
        streams = self._packs.streams([i for task in tasks for i in task.wanted(self._program)])
        self._load(streams)

    def write(self, task: Task, total: Callable[[Accumulator, str], None]) -> None:
        """Write one sweep.

        Args:
            task: What it computes.
            total: Told each accumulator, and its value for the whole team as an expression; writes
                what follows.
        """
        found = self.accumulators(task)
        self._text.extend(each.declared() for each in found)
        if self._span.held:
            self._turn(task, found, "")
        else:
            self._loop(task, found)
        for each in found:
            room = f"{each.name}_room_" if self._span.team > 32 else f"&{each.variable}"
            whole = f"gpu::of_team<{self._span.team}>({each.variable}, {each.combine}(), {room})"
            total(each, whole)

    def _loop(self, task: Task, found: list[Accumulator]) -> None:
        """Turn after turn; sums of very many numbers are made of sums of fewer."""
        step, begin, end = self._span.team * self._span.many, self._span.begin, self._span.end
        is_long = bool(found) and not task.scans and self._span.length > RUN * step
        if is_long:
            for each in found:
                self._text.add(f"{each.type} {each.name}_runs_ = {each.start};")
            outer = f"for (int run_ = {begin}; run_ < {end}; run_ += {RUN * step})"
            self._text.add(f"{outer} {{")
            self._text.extend(f"{each.variable} = {each.restart};" for each in found)
            begin, end = "run_", f"min(run_ + {RUN * step}, {end})"
        with self._text.block(f"for (int base_ = {begin}; base_ < {end}; base_ += {step})"):
            self._load(self._packs.streams(task.wanted(self._program)))
            self._turn(task, found, "base_ + ")
        if is_long:
            for each in found:
                runs = f"{each.name}_runs_"
                self._text.add(f"{runs} = {each.combined(runs, each.variable)};")
            self._text.add("}")
            self._text.extend(f"{each.variable} = {each.name}_runs_;" for each in found)

    def carries(self, task: Task) -> Iterator[str]:
        """What scans begin with."""
        for i in task.scans:
            scan = self._scan(i)
            kind = "" if i in self._scanned else f"{C_TYPES[scan.dtype]} "
            yield f"{kind}{scan.name}_carry_ = {identity(scan.op, scan.dtype)};"

    def _scan(self, index: int) -> Scan:
        scan = self._program.values[index]
        assert isinstance(scan, Scan)
        return scan

    # One turn: `many` packs of each thread.

    def _each(self) -> str:
        self._text.add("#pragma unroll")
        return f"for (int j_ = 0; j_ < {self._span.many}; ++j_)"

    def _at(self, base: str) -> None:
        times = f" + j_ * {self._span.team}" if self._span.many > 1 else ""
        self._text.add(f"const int q_ = {base}member_{times};")

    def _position(self) -> None:
        domain, width = self._program.domain, self._packs.width
        per_line = domain.cols // width
        times = f" * {width}" if width > 1 else ""
        if domain.lines == 1:
            self._text.add(f"const int c_ = q_{times};")
        else:
            self._text.add(
                f"const int d_ = q_ / {per_line};", f"const int c_ = q_ % {per_line}{times};"
            )

    def _load(self, streams: tuple[int, ...]) -> None:
        if not streams:
            return
        for i in streams:
            array = f"{self._packs.name_of(i)}[{self._span.many}]"
            self._text.add(f"{self._packs.type_of(i)} {array};")
        with self._text.block(self._each()):
            self._at("" if self._span.held else "base_ + ")
            with self._text.block(self._span.inside):
                self._position()
                for i in streams:
                    text = self._packs.load_text(i, Where())
                    self._text.add(f"{self._packs.name_of(i)}[j_] = {text};")

    def _turn(self, task: Task, found: list[Accumulator], base: str) -> None:
        known: dict[int, str] = {}
        for i in task.scans:
            self._run(i, base, known)
        singles = [each for each in found if len(each.reductions) == 1]
        place = "q_" if self._packs.width == 1 else f"q_ * {self._packs.width} + k_"
        program = self._program

        def sink(names: Mapping[int, str]) -> Iterator[str]:
            for each in singles:
                index = each.reductions[0]
                if index in task.totals:
                    arg = names[arguments(program.values[index])[0]]
                    yield f"{each.variable} = {each.combined(each.variable, arg)};"
                else:
                    yield from fold(program, each, names, place)
            if task.pair:
                yield f"each_[k_] = {names[task.pair.element]};"

        with self._text.block(self._each()):
            self._at(base)
            with self._text.block(self._span.inside):
                self._position()
                if task.pair:
                    self._text.add(f"float each_[{self._packs.width}];")
                self._packs.write(
                    Where(),
                    task.taken(program),
                    self._loaded(task),
                    sink,
                    task.outputs,
                    known,
                    self.live,
                )
                if task.pair:
                    self._text.extend(_merged(program, found[0], task.pair, self._packs.width))

    def _loaded(self, task: Task) -> dict[int, str]:
        streams = self._packs.streams(task.wanted(self._program))
        return {i: f"{self._packs.name_of(i)}[j_]" for i in streams}

    def _run(self, index: int, base: str, known: dict[int, str]) -> None:
        """A scan over the packs of this turn: in each pack, over the team, then both together."""
        scan, many, width = self._scan(index), self._span.many, self._packs.width
        kind, start, name = C_TYPES[scan.dtype], identity(scan.op, scan.dtype), scan.name
        combine = COMBINE[scan.op]
        if index not in self._scanned or not self._span.held:
            self._text.add(f"{kind} {name}_runs_[{many}][{width}], {name}_before_[{many}];")
        self._scanned.add(index)

        def sink(names: Mapping[int, str]) -> Iterator[str]:
            yield f"run_ = {combine}()(run_, {names[scan.arg]});"
            yield f"{name}_runs_[j_][k_] = run_;"

        loaded = self._loaded(Task(scans=(index,)))
        with self._text.block(self._each()):
            self._at(base)
            self._text.add(f"{kind} run_ = {start};")
            with self._text.block(self._span.inside):
                self._position()
                self._packs.write(Where(), (scan.arg,), loaded, sink, known=known)
            self._text.add(f"{name}_before_[j_] = run_;")
        room = f"{name}_room_" if self._span.team > 32 else f"&{name}_carry_"
        if self._span.team > 32 and not self._span.held:
            self._text.add("__syncthreads();")
        self._text.add(
            f"gpu::before<{self._span.team}, {many}>({name}_before_, {name}_carry_, {combine}(), "
            f"static_cast<{kind}>({start}), {room});"
        )
        known[index] = f"{combine}()({name}_before_[j_], {name}_runs_[j_][k_])"


def _merged(program: Program, accumulator: Accumulator, pair: Pair, width: int) -> Iterator[str]:
    """Take a pack into a running maximum and sum, or into running moments."""
    if pair.kind == "online":
        yield "float top_ = each_[0];"
        if width > 1:
            yield "#pragma unroll"
            yield f"for (int k_ = 1; k_ < {width}; ++k_) top_ = fmaxf(top_, each_[k_]);"
        (term,) = arguments(program.values[pair.second])
        is_short = getattr(program.values[term], "op", "") == "exp_short"
        name = "weigh_short" if is_short else "weigh"
        yield f"gpu::{name}({accumulator.variable}, top_, each_);"
    else:
        yield f"gpu::measure({accumulator.variable}, each_);"
