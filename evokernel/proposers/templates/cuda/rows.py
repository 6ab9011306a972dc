"""Owns kernels of rows: a team of threads each, its numbers held or read sweep by sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.choices import Choice, Family, Needs, Option, Space, Value
from evokernel.proposers.templates.cuda import split, totals
from evokernel.proposers.templates.cuda.accumulators import Accumulator
from evokernel.proposers.templates.cuda.kernel import (
    Launch,
    Part,
    Workspace,
    head,
    names,
    parameters,
)
from evokernel.proposers.templates.cuda.packs import Packs
from evokernel.proposers.templates.cuda.resting import Resting
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
from evokernel.proposers.templates.cuda.sweeps import Span, Sweeps, Task
from evokernel.proposers.templates.cuda.tasks import finish, tasks
from evokernel.proposers.templates.cuda.widths import widest
from evokernel.proposers.templates.expressions import Level, Load, Program
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.works import pair

_TEAMS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_BLOCK = 256
"""Threads of a block in which several teams have a row each (ours)."""
_USUAL_BYTES = 64
"""What a thread of a plain team holds of a row: four loads in flight (ours)."""
_SIDE_BY_SIDE = 64
"""Bytes that neighbouring threads of a plain team read together at least (ours)."""
_HELD_BYTES = {1024: 128, 512: 256}
"""What a thread holds at most, by the size of its team; registers allow no more."""
_MOST_BYTES = 256
_FEW_ROWS = 264
"""Rows from which whole rows keep a GPU of 132 multiprocessors busy (ours)."""
_LONG = 2**16
"""Bytes of a row from which it is worth being shared by blocks (ours)."""


def space(program: Program) -> Space:
    """Every way to write a program of rows, of one line or several."""
    spread = split.spread_choice(program, _is_few(program))
    whole: Needs = {"spread": ("team",)} if spread else {}
    fitting = held_teams(program)
    hold = _hold(program, fitting, whole)
    choices = (
        *spread,
        *width_choice(program),
        *hold,
        _team(program, fitting, hold[0].values[0] if hold else "none", whole),
        *_sweeps(program, bool(fitting), bool(spread)),
        numbers("unroll", 4, (1, 2, 8), "loop-unrolling", _loops(fitting, whole)),
        *split.choices(program, bool(spread)),
        numbers("grid", "whole", ("waves",), "persistent-grid", whole),
        *functions_choice(program),
        reads_choice(),
        writes_choice(),
    )
    family: Family = "planes" if program.kind == "planes" else "rows"
    return Space(family=family, choices=choices)


def part(program: Program, choices: Mapping[str, Value], function: str) -> Part:
    """Write a program of rows."""
    if choices.get("spread") == "blocks":
        return split.part(program, choices, function)
    return _Writer(as_chosen(program, choices), choices, function).part()


def row_bytes(program: Program) -> int:
    """Bytes of a row that its own loads read."""
    return program.domain.lines * program.domain.cols * sum(_sizes(program))


def _sizes(program: Program) -> list[int]:
    """Bytes of an element in each tensor of which every row has its own part."""
    loads = [v for v in program.values if isinstance(v, Load) and v.level is Level.ELEMENT]
    return [
        itemsize(program.sources[v.access.source].dtype)
        for v in loads
        if v.access.step and v.access.varies(rows=True, lines=True)
    ]


def held_teams(program: Program) -> tuple[int, ...]:
    """Teams whose registers hold a row; what is narrower than a register takes a whole one."""
    width = widest(program)
    packs = program.domain.lines * program.domain.cols // width
    held = sum(max(size * width, 4) for size in _sizes(program))
    return tuple(
        team
        for team in _TEAMS
        if team < 2 * packs and math.ceil(packs / team) * held <= _HELD_BYTES.get(team, _MOST_BYTES)
    )


def _is_few(program: Program) -> bool:
    return program.domain.rows < _FEW_ROWS and row_bytes(program) >= _LONG


def _hold(program: Program, fitting: Sequence[int], needs: Needs) -> tuple[Choice, ...]:
    """A long row that one sweep is enough for is better not held: it keeps others out."""
    if not fitting:
        return ()
    held, none = Option(value="registers", technique="row-caching"), Option(value="none")
    once = len(tasks(program, merged=True)) == 1 and row_bytes(program) >= _LONG // 2
    options = (none, held) if once else (held, none)
    return (Choice(name="hold", options=options, needs=needs),)


def _team(program: Program, fitting: Sequence[int], hold: Value, needs: Needs) -> Choice:
    """Threads per row: few bytes each at first, but no fewer threads than fill the GPU."""
    offered = fitting or tuple(t for t in _TEAMS if t >= 128)
    held = row_bytes(program)
    side = widest(program) * min(_sizes(program), default=4)
    usual = [t for t in offered if t * side >= _SIDE_BY_SIDE] or offered
    plain = next((t for t in usual if held / t <= _USUAL_BYTES), usual[-1])
    if plain == 1024 and 512 in offered and held <= 512 * 2 * _USUAL_BYTES:
        plain = 512  # two blocks fit beside each other: one computes while the other reads
    packs = program.domain.lines * program.domain.cols // widest(program)
    if packs % plain and plain // 2 in usual and packs % (plain // 2) == 0:
        plain //= 2  # no thread waits for others that have one pack more
    if hold == "none":
        plain = min(offered, key=lambda team: abs(team - _BLOCK))
    near = [t for t in offered if plain / 8 <= t <= plain * 4 and t != plain]
    return numbers("team", plain, tuple(near), "team-size", needs)


def _loops(fitting: Sequence[int], needs: Needs) -> Needs:
    return {**needs, "hold": ("none",)} if fitting else needs


def _sweeps(program: Program, is_held: bool, is_split: bool) -> tuple[Choice, ...]:
    both = pair(program)
    if both is None:
        return ()
    needs: Needs = {"hold": ("none",)} if is_held and not is_split else {}
    technique = "online-softmax" if both.kind == "online" else "single-pass-moments"
    merged = Option(value="merged", technique=technique)
    return (Choice(name="sweeps", options=(merged, Option(value="separate")), needs=needs),)


class _Writer:
    """Writes the kernel, and a second one where a number is made from all rows."""

    def __init__(self, program: Program, choices: Mapping[str, Value], function: str) -> None:
        self._program = program
        self._function = function
        self._text = Lines()
        self._rest = Resting(program, self._text)
        self._stays = choices.get("grid") == "waves"
        width = width_of(program, choices)
        self._team = int(choices.get("team", 128))
        self._held = choices.get("hold") == "registers" and self._team in held_teams(program)
        count = program.domain.lines * program.domain.cols // width
        many = math.ceil(count / self._team) if self._held else self._unroll(choices, count)
        even = count % (self._team * many) == 0
        span = Span(
            team=self._team, many=many, end=str(count), held=self._held, length=count, even=even
        )
        packs = Packs(program, width, caching_of(choices), self._text)
        self._sweeps = Sweeps(program, packs, span, self._text)
        self._tasks = tasks(program, choices.get("sweeps") == "merged" and not self._held)
        self._block = max(self._team, _BLOCK) if self._team <= 32 else self._team
        self._each = self._block // self._team if self._team <= 32 else 1

    def _unroll(self, choices: Mapping[str, Value], count: int) -> int:
        return max(1, min(int(choices.get("unroll", 1)), math.ceil(count / self._team)))

    def part(self) -> Part:
        """Write the text and its launches."""
        program = self._program
        found = totals.over_rows(program)
        late = [n for n, o in enumerate(program.outputs) if o.value in program.last]
        own = [n for n in range(len(program.outputs)) if n not in late]
        rows_of = [f"{C_TYPES[w.dtype]}* __restrict__ {w.name}" for w in found.values()]
        declared = [*parameters(program, own), *rows_of, "int rows"]
        with self._text.block(head(self._function, self._block, declared)):
            self._text.extend(self._sweeps.rooms(task for task, _ in self._tasks))
            self._kernel(found)
        launch = Launch(
            function=self._function,
            grid=self._grid(),
            block=self._block,
            tensors=(*names(program, own), *(w.name for w in found.values())),
            sizes=("rows",),
        )
        launches = [launch]
        if found:
            totals.write(program, self._function, found, late, self._text)
            launches.append(totals.launch(program, self._function, found, late))
        return Part(
            text=self._text.text(), launches=tuple(launches), workspaces=tuple(found.values())
        )

    def _grid(self) -> str:
        grid = f"-(-rows // {self._each})" if self._each > 1 else "rows"
        return f"min({grid}, wave * {max(2048 // self._block, 1)})" if self._stays else grid

    def _kernel(self, found: Mapping[int, Workspace]) -> None:
        self._rest.declare(self._rest.level(self._program.before, Level.SCALAR))
        self._rest.store(Level.SCALAR, "0", "blockIdx.x == 0 && threadIdx.x == 0")
        member = "threadIdx.x" if self._each == 1 else f"threadIdx.x % {self._team}"
        self._text.add(f"const int member_ = {member};")
        first = f"blockIdx.x * {self._each}" if self._each > 1 else "blockIdx.x"
        if self._stays:
            step = f"gridDim.x * {self._each}" if self._each > 1 else "gridDim.x"
            with self._text.block(f"for (int first_ = {first}; first_ < rows; first_ += {step})"):
                self._row(found)
                if self._team > 32:
                    self._text.add("__syncthreads();")
        else:
            self._text.add(f"const int first_ = {first};")
            self._row(found)

    def _row(self, found: Mapping[int, Workspace]) -> None:
        live = ""
        if self._each > 1:
            # Teams without a row of their own go along: warps work together as a whole.
            self._text.add(
                f"const int own_ = first_ + threadIdx.x / {self._team};",
                "const bool live_ = own_ < rows;",
                "const int r = live_ ? own_ : rows - 1;",
            )
            live = "live_"
        else:
            self._text.add("const int r = first_;")
        self._sweeps.live = live
        self._rest.declare(self._rest.level(self._program.before, Level.ROW))
        if self._held:
            self._sweeps.hold(task for task, _ in self._tasks)
        for number, (task, after) in enumerate(self._tasks, start=1):
            self._text.add(f"// Sweep {number} of {len(self._tasks)}.")
            self._sweep(task, after)
        first = "member_ == 0" + (f" && {live}" if live else "")
        self._rest.store(Level.ROW, "r", first)
        for i, workspace in found.items():
            arg = self._rest.name(totals.given(self._program, i))
            self._text.add(f"if ({first}) {workspace.name}[r] = {arg};")

    def _sweep(self, task: Task, after: tuple[int, ...]) -> None:
        self._text.extend(self._sweeps.carries(task))
        self._sweeps.write(task, lambda each, total: self._finish(task, each, total))
        self._rest.declare(after)

    def _finish(self, task: Task, each: Accumulator, total: str) -> None:
        finish(self._program, task, each, total, self._text, self._rest.declare)
