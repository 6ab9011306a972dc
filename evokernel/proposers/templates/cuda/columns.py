"""Owns kernels of columns: each is reduced or scanned by itself, over lines read as they lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from evokernel.proposers.templates.choices import Choice, Option, Space, Value
from evokernel.proposers.templates.cuda import totals
from evokernel.proposers.templates.cuda.accumulators import Accumulator
from evokernel.proposers.templates.cuda.column_sweeps import Block, ColumnSweeps
from evokernel.proposers.templates.cuda.kernel import (
    Launch,
    Part,
    Workspace,
    head,
    names,
    parameters,
)
from evokernel.proposers.templates.cuda.packs import Packs
from evokernel.proposers.templates.cuda.spelling import C_TYPES
from evokernel.proposers.templates.cuda.styles import (
    as_chosen,
    caching_of,
    functions_choice,
    numbers,
    reads_choice,
    width_choice,
    width_of,
    writes_choice,
)
from evokernel.proposers.templates.cuda.sweeps import Task
from evokernel.proposers.templates.cuda.tasks import in_steps, tasks
from evokernel.proposers.templates.cuda.widths import widest
from evokernel.proposers.templates.expressions import Level, Program
from evokernel.proposers.templates.lines import Lines

_THREADS = 256
_BLOCKS = 132 * 8
"""Blocks of one wave on an H100 or H200."""
_HELD = 8
"""Packs of lines that a thread holds at most."""


def space(program: Program) -> Space:
    """Every way to write a program of columns."""
    scans = any(sweep.scans for sweep in program.passes)
    choices = (
        *width_choice(program),
        *_hold(program, scans),
        *_lines(program, scans),
        *_parts(program),
        numbers("unroll", 4, (1, 2, 8), "loop-unrolling"),
        *functions_choice(program),
        reads_choice(),
        writes_choice(),
    )
    return Space(family="columns", choices=choices)


def part(program: Program, choices: Mapping[str, Value], function: str) -> Part:
    """Write a program of columns."""
    return _Writer(as_chosen(program, choices), choices, function).part()


def _groups(program: Program) -> int:
    """Packs of columns in all rows."""
    return program.domain.rows * max(program.domain.cols // widest(program), 1)


def _hold(program: Program, scans: bool) -> tuple[Choice, ...]:
    """Several sweeps over few lines: they stay in registers."""
    if scans or len(program.passes) < 2 or program.domain.lines > 8 * _HELD:
        return ()
    held = Option(value="registers", technique="row-caching")
    return (Choice(name="hold", options=(held, Option(value="none"))),)


def _lines(program: Program, scans: bool) -> tuple[Choice, ...]:
    """Threads of a block that share a column."""
    if scans:
        return ()
    lines, many = program.domain.lines, _groups(program) // 32
    least = 1 if lines <= _HELD else 4
    if many < 2 * 132:
        least = 8
    plain = min(least, 2 ** max(lines - 1, 1).bit_length())
    others = [n for n in (1, 2, 4, 8, 16, 32) if n < 2 * lines and n != plain]
    return (numbers("lines", plain, tuple(others), "team-size"),)


def _parts(program: Program) -> tuple[Choice, ...]:
    """Blocks that share the lines of a column."""
    lines = program.domain.lines
    if program.last or lines < 64 or not _can_part(program):
        return ()
    usual = max(_BLOCKS * 32 // max(_groups(program), 1), 1)
    most = max(lines // 32, 1)
    plain = min(usual if usual > 4 else 1, most)
    others = sorted({min(max(n, 1), most) for n in (1, usual // 2, usual, usual * 2)} - {plain})
    options = [Option(value=n, technique="split-rows" if n > 1 else None) for n in (plain, *others)]
    return (Choice(name="parts", options=tuple(options)),) if len(options) > 1 else ()


def _can_part(program: Program) -> bool:
    return all(len(sweep.scans) < 2 for sweep in program.passes)


class _Writer:
    """Writes one kernel for whole columns, or one per sweep where blocks share them."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = program
        self._function = function
        self._text = Lines()
        domain, width = program.domain, width_of(program, choices)
        self._parts = min(int(choices.get("parts", 1)), domain.lines)
        self._share = -(-domain.lines // self._parts)
        self._parts = -(-domain.lines // self._share)
        threads = int(choices.get("lines", 1))
        is_held = choices.get("hold") == "registers" and self._parts == 1
        if is_held:
            threads = max(threads, 2 ** (math.ceil(domain.lines / _HELD) - 1).bit_length())
        wide = min(_THREADS // threads, 2 ** (domain.cols // width - 1).bit_length())
        many = math.ceil(domain.lines / threads) if is_held else self._unroll(choices, threads)
        self._block = Block(
            wide=max(wide, 1),
            deep=threads,
            many=many,
            is_held=is_held,
            length=self._share,
            even=domain.lines % self._share == 0 and self._share % (threads * many) == 0,
            begin="begin_" if self._parts > 1 else "0",
            end="end_" if self._parts > 1 else str(domain.lines),
        )
        packs = Packs(program, width, caching_of(choices), self._text)
        self._groups = domain.cols // width
        self._blocks = -(-self._groups // self._block.wide)
        self._sweeps = ColumnSweeps(program, packs, self._block, self._text)
        found = tasks(program, merged=False)
        self._steps = in_steps(found) if self._parts > 1 else found

    def _unroll(self, choices: Mapping[str, Value], threads: int) -> int:
        return max(1, min(int(choices.get("unroll", 1)), math.ceil(self._share / threads)))

    def part(self) -> Part:
        """Write the text and its launches."""
        found = totals.over_rows(self._program, f"rows * {self._program.domain.cols}")
        launches = self._shared() if self._parts > 1 else [self._whole(found)]
        workspaces = [*found.values()]
        if self._parts > 1:
            workspaces += [w for step in self._steps for w in self._workspaces(step[0])]
        if found:
            late = self._late()
            totals.write(self._program, self._function, found, late, self._text)
            last = totals.launch(self._program, self._function, found, late)
            size = f"rows * {self._program.domain.cols}"
            launches.append(last.model_copy(update={"sizes": (size,)}))
        used = {name for launch in launches for name in launch.tensors}
        kept = tuple(w for w in workspaces if w.name in used)
        return Part(text=self._text.text(), launches=tuple(launches), workspaces=kept)

    def _late(self) -> list[int]:
        return [n for n, o in enumerate(self._program.outputs) if o.value in self._program.last]

    def _launch(self, name: str, tensors: Sequence[str], parts: int = 1) -> Launch:
        return Launch(
            function=name,
            grid=f"rows * {self._blocks * parts}",
            block=self._block.wide * self._block.deep,
            tensors=tuple(tensors),
        )

    def _head(self, name: str, declared: Sequence[str]) -> str:
        return head(name, self._block.wide * self._block.deep, declared)

    def _begin(self, parts: int) -> None:
        """Where a thread's columns are."""
        wide, width = self._block.wide, self._sweeps.width
        self._text.add(
            f"const int x_ = threadIdx.x % {wide};",
            f"const int member_ = threadIdx.x / {wide};",
        )
        block = "blockIdx.x"
        if parts > 1:
            block = f"(blockIdx.x / {parts})"
            self._text.add(
                f"const int part_ = blockIdx.x % {parts};",
                f"const int begin_ = part_ * {self._share};",
                f"const int end_ = min(begin_ + {self._share}, {self._program.domain.lines});",
            )
        self._text.add(
            f"const int r = {block} / {self._blocks};",
            f"const int group_ = {block} % {self._blocks} * {wide} + x_;",
        )
        if self._groups % wide:
            self._text.add(
                f"const bool live_ = group_ < {self._groups};",
                f"const int c_ = min(group_, {self._groups - 1}) * {width};",
            )
            self._sweeps.live = "live_"
        else:
            self._text.add(f"const int c_ = group_ * {width};")
        self._sweeps.begin()

    def _whole(self, found: Mapping[int, Workspace]) -> Launch:
        program = self._program
        late = self._late()
        own = [n for n in range(len(program.outputs)) if n not in late]
        rows_of = [f"{C_TYPES[w.dtype]}* __restrict__ {w.name}" for w in found.values()]
        with self._text.block(self._head(self._function, [*parameters(program, own), *rows_of])):
            self._begin(1)
            if self._block.is_held:
                self._sweeps.hold(task for task, _ in self._steps)
            for number, (task, _) in enumerate(self._steps, start=1):
                self._text.add(f"// Sweep {number} of {len(self._steps)}.")
                for each in self._sweeps.write(task):
                    self._sweeps.share(each)
            self._sweeps.results({i: w.name for i, w in found.items()})
        self._text.add("")
        return self._launch(
            self._function, [*names(program, own), *(w.name for w in found.values())]
        )

    # Blocks that share columns.

    def _shared(self) -> list[Launch]:
        launches = [self._sweep(step) for step in range(len(self._steps))]
        rows = [o for o in self._program.outputs if self._is_row(o.value)]
        return [*launches, self._results()] if rows else launches

    def _is_row(self, value: int) -> bool:
        return self._program.values[value].level is not Level.ELEMENT

    def _workspaces(self, task: Task) -> Iterator[Workspace]:
        for each in self._sweeps.accumulators(task):
            size = f"rows * {self._parts * self._program.domain.cols * each.bytes}"
            yield Workspace(name=_parts_name(each), size=size, dtype="uint8")

    def _known(self, step: int) -> list[tuple[Task, Accumulator]]:
        return [(t, each) for t, _ in self._steps[:step] for each in self._sweeps.accumulators(t)]

    def _sweep(self, step: int) -> Launch:
        task, _ = self._steps[step]
        own, known = self._sweeps.accumulators(task), self._known(step)
        name = f"{self._function}_sweep{step + 1}"
        declared = [
            *parameters(self._program, task.outputs),
            *(f"const unsigned char* {_parts_name(each)}" for _, each in known),
            *(f"unsigned char* __restrict__ {_parts_name(each)}" for each in own),
        ]
        with self._text.block(self._head(name, declared)):
            self._begin(self._parts)
            self._before(known)
            if task.scans:
                for each in self._sweeps.accumulators(self._steps[step - 1][0]):
                    self._sweeps.carry_on(each, _parts_name(each), self._parts)
            for each in self._sweeps.write(task, carries=not task.scans):
                self._sweeps.leave(each, _parts_name(each), self._parts)
        self._text.add("")
        tensors = [
            *names(self._program, task.outputs),
            *(_parts_name(each) for _, each in known),
            *(_parts_name(each) for each in own),
        ]
        return self._launch(name, tensors, self._parts)

    def _results(self) -> Launch:
        known = self._known(len(self._steps))
        found = [n for n, o in enumerate(self._program.outputs) if self._is_row(o.value)]
        name = f"{self._function}_results"
        declared = [
            *parameters(self._program, found),
            *(f"const unsigned char* {_parts_name(each)}" for _, each in known),
        ]
        with self._text.block(self._head(name, declared)):
            self._begin(1)
            self._before(known)
            self._sweeps.results({})
        self._text.add("")
        tensors = [*names(self._program, found), *(_parts_name(each) for _, each in known)]
        return self._launch(name, tensors)

    def _before(self, known: Sequence[tuple[Task, Accumulator]]) -> None:
        for task, each in known:
            if not task.totals:
                self._sweeps.combine(each, _parts_name(each), self._parts)


def _parts_name(each: Accumulator) -> str:
    return f"{each.name}_parts_"
