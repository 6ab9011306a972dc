"""Owns kernels of few long rows: blocks share one, the next kernel combines what they found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evokernel.proposers.templates.choices import Choice, Needs, Option, Value
from evokernel.proposers.templates.cuda.accumulators import Accumulator
from evokernel.proposers.templates.cuda.kernel import (
    Launch,
    Part,
    Workspace,
    head,
    names,
    outputs_at,
    parameters,
)
from evokernel.proposers.templates.cuda.packs import Packs
from evokernel.proposers.templates.cuda.resting import Resting
from evokernel.proposers.templates.cuda.styles import (
    as_chosen,
    caching_of,
    numbers,
    width_of,
)
from evokernel.proposers.templates.cuda.sweeps import Span, Sweeps, Task
from evokernel.proposers.templates.cuda.tasks import finish, in_steps, tasks
from evokernel.proposers.templates.cuda.widths import widest
from evokernel.proposers.templates.expressions import Level, Program, arguments
from evokernel.proposers.templates.lines import Lines

_THREADS = 256
_BLOCKS = 132 * 8
"""Blocks of one wave, 2048 threads on each of an H100's or H200's multiprocessors."""


def spread_choice(program: Program, is_first: bool) -> tuple[Choice, ...]:
    """Rows to teams or to many blocks; a result over all rows needs whole rows."""
    packs = program.domain.lines * program.domain.cols // widest(program)
    if program.last or packs < 4 * _THREADS or not can_begin_in_the_middle(program):
        return ()
    if outputs_at(program, Level.SCALAR):
        return ()
    team, blocks = Option(value="team"), Option(value="blocks", technique="split-rows")
    options = (blocks, team) if is_first else (team, blocks)
    return (Choice(name="spread", options=options),)


def choices(program: Program, is_offered: bool = True) -> tuple[Choice, ...]:
    """How a row is shared, where it can be."""
    if not is_offered:
        return ()
    needs: Needs = {} if program.kind == "flat" else {"spread": ("blocks",)}
    usual = max(_BLOCKS // program.domain.rows, 1)
    packs = program.domain.lines * program.domain.cols // widest(program)
    most = max(packs // _THREADS, 1)
    plain = min(usual, most)
    others = {min(max(n, 1), most) for n in (usual // 4, usual // 2, usual * 2, usual * 4)}
    return (
        numbers("parts", plain, tuple(sorted(others - {plain})), "split-rows", needs),
        numbers("turns", 4, (1, 2, 8), "loop-unrolling", needs),
        numbers("block", _THREADS, (128, 512), "block-size", needs),
    )


def can_begin_in_the_middle(program: Program) -> bool:
    """Whether no scan needs another scan of the same sweep."""
    for sweep in program.passes:
        for i in sweep.scans:
            behind = program.closure(arguments(program.values[i]))
            if any(other in behind for other in sweep.scans):
                return False
    return True


def part(program: Program, choices: Mapping[str, Value], function: str) -> Part:
    """Write one kernel per sweep, and one for what rows give if anything asks for it."""
    return _Writer(as_chosen(program, choices), choices, function).part()


class _Writer:
    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = program
        self._function = function
        self._text = Lines()
        self._threads = int(choices.get("block", _THREADS))
        width = width_of(program, choices)
        count = program.domain.lines * program.domain.cols // width
        parts = min(int(choices.get("parts", 1)), count)
        self._share = -(-count // parts)
        self._parts = -(-count // self._share)
        many = max(min(int(choices.get("turns", 1)), math.ceil(self._share / self._threads)), 1)
        even = count % self._share == 0 and self._share % (self._threads * many) == 0
        span = Span(
            team=self._threads,
            many=many,
            begin="begin_",
            end="end_",
            length=self._share,
            even=even,
        )
        packs = Packs(program, width, caching_of(choices), self._text)
        self._count = count
        self._sweeps = Sweeps(program, packs, span, self._text)
        self._steps = in_steps(tasks(program, choices.get("sweeps") == "merged"))
        self._level = Level.SCALAR if program.kind == "flat" else Level.ROW
        self._rest = Resting(program, self._text)

    def part(self) -> Part:
        launches = [self._kernel(number) for number in range(len(self._steps))]
        if outputs_at(self._program, self._level):
            launches.append(self._results())
        workspaces = [w for n in range(len(self._steps)) for w in self._workspaces(n)]
        used = {name for launch in launches for name in launch.tensors}
        kept = tuple(w for w in workspaces if w.name in used)
        return Part(text=self._text.text(), launches=tuple(launches), workspaces=kept)

    def _workspaces(self, step: int) -> list[Workspace]:
        return [
            Workspace(
                name=_parts_name(each),
                size=f"rows * {self._parts * each.bytes}",
                dtype="uint8",
            )
            for each in self._sweeps.accumulators(self._steps[step][0])
        ]

    def _known(self, step: int) -> list[tuple[Task, Accumulator]]:
        """What earlier kernels left behind and this one needs."""
        return [(t, each) for t, _ in self._steps[:step] for each in self._sweeps.accumulators(t)]

    def _declared(self, step: int, outputs: Sequence[int], own: Sequence[Accumulator]) -> list[str]:
        known = [f"const unsigned char* {_parts_name(each)}" for _, each in self._known(step)]
        made = [f"unsigned char* __restrict__ {_parts_name(each)}" for each in own]
        return [*parameters(self._program, outputs), *known, *made]

    def _kernel(self, step: int) -> Launch:
        """One sweep of every part of every row."""
        task, _ = self._steps[step]
        own = self._sweeps.accumulators(task)
        name = f"{self._function}_sweep{step + 1}"
        with self._text.block(head(name, self._threads, self._declared(step, task.outputs, own))):
            self._text.add(
                "const int member_ = threadIdx.x;",
                f"const int part_ = blockIdx.x % {self._parts};",
                f"const int r = blockIdx.x / {self._parts};",
                f"const int begin_ = part_ * {self._share};",
                f"const int end_ = min(begin_ + {self._share}, {self._count});",
            )
            self._text.extend(self._sweeps.rooms([task]))
            self._before(step)
            if task.scans:
                self._carried(step, task)
            self._sweeps.write(task, self._leave)
        self._text.add("")
        tensors = (
            *names(self._program, task.outputs),
            *(_parts_name(each) for _, each in self._known(step)),
            *(_parts_name(each) for each in own),
        )
        return Launch(
            function=name, grid=f"rows * {self._parts}", block=self._threads, tensors=tensors
        )

    def _results(self) -> Launch:
        """What rows give, one block each."""
        found, step = outputs_at(self._program, self._level), len(self._steps)
        name = f"{self._function}_results"
        with self._text.block(head(name, self._threads, self._declared(step, found, ()))):
            self._text.add("const int member_ = threadIdx.x;", "const int r = blockIdx.x;")
            self._before(step)
            index = "0" if self._level is Level.SCALAR else "r"
            self._rest.store(self._level, index, "member_ == 0")
        self._text.add("")
        known = (_parts_name(each) for _, each in self._known(step))
        tensors = (*names(self._program, found), *known)
        return Launch(function=name, grid="rows", block=self._threads, tensors=tensors)

    def _before(self, step: int) -> None:
        """What is known of the row: each block combines the parts for itself, in their order."""
        self._rest = Resting(self._program, self._text)
        self._rest.declare(self._program.before)
        for task, after in self._steps[:step]:
            for each in self._sweeps.accumulators(task):
                if not task.totals:
                    self._combined(each, f"{self._parts}")
                    total = self._total(each)
                    finish(self._program, task, each, total, self._text, self._rest.declare)
            self._rest.declare(after)

    def _combined(self, each: Accumulator, end: str) -> None:
        """A thread's share of the parts of a row."""
        warps = self._threads // 32
        known = f"reinterpret_cast<const {each.type}*>({_parts_name(each)})"
        self._text.add(
            f"__shared__ {each.type} {each.name}_parts_room_[{warps}];",
            f"{each.type} {each.name}_so_far_ = {each.start};",
        )
        taken = each.combined(f"{each.name}_so_far_", f"{known}[r * {self._parts} + n_]")
        loop = f"for (int n_ = member_; n_ < {end}; n_ += {self._threads})"
        self._text.add(f"{loop} {each.name}_so_far_ = {taken};")

    def _total(self, each: Accumulator) -> str:
        return (
            f"gpu::of_block<{self._threads}>({each.name}_so_far_, {each.combine}(), "
            f"{each.name}_parts_room_)"
        )

    def _carried(self, step: int, task: Task) -> None:
        """Scans go on from the parts before."""
        totals, _ = self._steps[step - 1]
        for index, each in zip(task.scans, self._sweeps.accumulators(totals), strict=True):
            self._combined(each, "part_")
            name = self._program.values[index].name
            self._text.add(f"{each.type} {name}_carry_ = {self._total(each)};")

    def _leave(self, each: Accumulator, total: str) -> None:
        """Store a part's result."""
        whole = f"{each.name}_whole_"
        made = f"reinterpret_cast<{each.type}*>({_parts_name(each)})"
        self._text.add(
            f"const {each.type} {whole} = {total};",
            f"if (member_ == 0) {made}[r * {self._parts} + part_] = {whole};",
        )


def _parts_name(each: Accumulator) -> str:
    return f"{each.name}_parts_"
