"""Owns Triton kernels that share a row or column among programs: parts first, then what they make.

Each sweep is a kernel. It begins by combining the parts that the kernels before it left, in a fixed
order, so results do not depend on which program is done first.
"""

from __future__ import annotations

from collections.abc import Sequence

from evokernel.proposers.templates.expressions import Level, Program, Reduce, Scan
from evokernel.proposers.templates.styles import with_values
from evokernel.proposers.templates.sweep import Work
from evokernel.proposers.templates.triton.folds import Fold
from evokernel.proposers.templates.triton.frame import Frame, operands, rows_argument
from evokernel.proposers.templates.triton.kernel import Launch, Operand, Scratch, Text
from evokernel.proposers.templates.triton.looped import (
    Span,
    Sweeper,
    exponential,
    finite,
    sweeps,
)
from evokernel.proposers.templates.triton.resting import store_rest
from evokernel.proposers.templates.triton.spelling import held
from evokernel.proposers.templates.triton.tile import Tile
from evokernel.proposers.templates.works import Pair, pair


class Parted:
    """Writes the kernels of one program."""

    def __init__(
        self, frame: Frame, name: str, keys: Sequence[str], merged: bool, exact: bool, options: str
    ) -> None:
        """Begin without kernels.

        Args:
            frame: What is kept.
            name: Begins the kernels' names.
            keys: Of the outputs.
            merged: Whether two dependent reductions share a sweep.
            exact: Whether no block reaches over the end.
            options: Behind the arguments of stores.
        """
        self.program = frame.program
        self._frame = frame
        self._name = name
        self._keys = keys
        self._works = sweeps(self.program, merged)
        self._exact = exact
        self._options = options

    def launches(
        self, constants: tuple[tuple[str, str], ...], options: tuple[tuple[str, str], ...]
    ) -> tuple[Launch, ...]:
        """One kernel per sweep, one more where the last sweep reduces, and scans' totals before."""
        bodies: list[tuple[str, tuple[str, ...], bool]] = []
        for number, work in enumerate(self._works):
            if work.scans:
                bodies.append((f"totals{number + 1}", self._totals(number), True))
            bodies.append((f"sweep{number + 1}", self._sweep(number), True))
        if self._works[-1].reductions:
            bodies.append(("rest", self._rest(), False))
        return tuple(self._launch(*body, constants, options) for body in bodies)

    def scratches(self) -> tuple[Scratch, ...]:
        """The parts of all reductions and scans."""
        results = self._frame.results
        size = "PARTS" if results == "1" else f"{results} * PARTS"
        return tuple(Scratch(name=o.name, size=size, dtype=o.dtype) for o in self._parts())

    def _parts(self) -> tuple[Operand, ...]:
        found = []
        for work in self._works:
            for i in (*work.reductions, *work.scans):
                name = f"{self.program.values[i].name}_parts_"
                dtype = held(self.program.values[i].dtype)
                found.append(Operand(name=name, kind="scratch", key=name, dtype=dtype))
        return tuple(dict.fromkeys(found))

    def _launch(
        self,
        suffix: str,
        body: tuple[str, ...],
        is_shared: bool,
        constants: tuple[tuple[str, str], ...],
        options: tuple[tuple[str, str], ...],
    ) -> Launch:
        words = "\n".join(body)
        parts = tuple(o for o in self._parts() if o.name in words)
        docs = {True: "Sweeps over a part of a row.", False: "Goes on from all parts."}
        return Launch(
            kernel=f"{self._name}_{suffix}",
            doc=docs[is_shared].replace("row", "column" if self._frame.across else "row"),
            operands=(*operands(self.program, self._keys, body), *parts),
            numbers=rows_argument(self._frame, body),
            constants=tuple((n, v) for n, v in constants if n in words),
            grid=("PARTS", self._frame.grid) if is_shared else ("1", self._frame.grid),
            options=options,
            body=body,
        )

    def _begin(self) -> tuple[Text, Sweeper]:
        text = Text()
        text.add("part_ = tl.program_id(0)")
        tile = self._frame.begin(text, "tl.program_id(1)")
        length = self._frame.swept
        text.add(f"span_ = ({length} + PARTS * BLOCK - 1) // (PARTS * BLOCK) * BLOCK")
        text.add("begin = part_ * span_", f"end = tl.minimum(begin + span_, {length})")
        span = Span(begin="begin", end="end", length=length, exact=self._exact)
        sweeper = Sweeper(self._frame, tile, text, span, self._options)
        sweeper.before()
        return text, sweeper

    def _known(self, sweeper: Sweeper, number: int) -> None:
        """Write what the sweeps before one have found."""
        for work in self._works[:number]:
            both = pair(self.program) if work.elements else None
            if both is None:
                for i in work.reductions:
                    self._combine(sweeper, i)
            else:
                self._combine_pair(sweeper, work, both)
            sweeper.statements.write(work.after)

    def _combined_tile(self, tile: Tile) -> Tile:
        return tile.model_copy(update={"sizes": (tile.sizes[0], "PARTS")})

    def _all_parts(self, sweeper: Sweeper, index: int) -> str:
        """The parts of a reduction, all at once."""
        tile = self._combined_tile(sweeper.tile)
        value = self.program.values[index]
        assert isinstance(value, Reduce | Scan)
        which = f"tl.arange(0, PARTS){'[:, None]' if tile.keeps else ''}"
        where = self._place(tile, which)
        mask = f", mask={tile.kept_mask}, other={Fold.of(value).nothing}" if tile.kept_mask else ""
        return f"tl.load({value.name}_parts_ + {where}{mask})"

    def _place(self, tile: Tile, part: str) -> str:
        """Where the part of a row or column lies."""
        rest = self._frame.rest(tile)
        if tile.shape == "columns":
            return f"{part} * ({self._frame.kept}) + {rest}"
        return f"{rest} * PARTS + {part}" if rest else part

    def _combine(self, sweeper: Sweeper, index: int) -> None:
        value = self.program.values[index]
        assert isinstance(value, Reduce)
        tile = self._combined_tile(sweeper.tile)
        total = Fold.of(value).total(tile, self._all_parts(sweeper, index))
        sweeper.text.add(f"{value.name} = {total}")
        sweeper.statements.known[index] = value.name

    def _combine_pair(self, sweeper: Sweeper, work: Work, both: Pair) -> None:
        text, known = sweeper.text, sweeper.statements.known
        tile = self._combined_tile(sweeper.tile)
        one, two = self.program.values[both.first], self.program.values[both.second]
        assert isinstance(one, Reduce)
        text.add(f"parts_one_ = {self._all_parts(sweeper, both.first)}")
        text.add(f"parts_two_ = {self._all_parts(sweeper, both.second)}")
        text.add(f"{one.name} = {Fold.of(one).total(tile, 'parts_one_')}")
        known[both.first] = one.name
        sweeper.statements.write(work.between)
        base = sweeper.statements.name(both.base)
        if both.kind == "online":
            scale = exponential(self.program, both, f"({finite('parts_one_')} - {base})")
            empty = f'(parts_one_ == -float("inf")) & ({one.name} > parts_one_)'
            total = f"tl.where({empty}, 0.0, parts_two_ * {scale})"
        else:
            place = "[:, None]" if tile.keeps else ""
            left = f"{self._frame.swept} - tl.arange(0, PARTS){place} * span_"
            text.add(f"parts_n_ = tl.minimum(tl.maximum({left}, 0), span_).to(tl.float32)")
            text.add(f"parts_away_ = parts_one_ / tl.maximum(parts_n_, 1.0) - {base}")
            total = "parts_two_ + parts_n_ * parts_away_ * parts_away_"
        text.add(f"{two.name} = {tile.reduced('tl.sum', total)}")
        known[both.second] = two.name

    def _sweep(self, number: int) -> tuple[str, ...]:
        text, sweeper = self._begin()
        self._known(sweeper, number)
        work = self._works[number]
        self._carries(sweeper, work)
        sweeper.accumulate(work)
        self._store(sweeper, work)
        if number == len(self._works) - 1 and not work.reductions:
            store_rest(sweeper.statements, self._frame, "part_ == 0")
        return text.lines

    def _store(self, sweeper: Sweeper, work: Work) -> None:
        """Write the parts that a sweep has found."""
        both = pair(self.program) if work.elements else None
        tile, text = sweeper.tile, sweeper.text
        found: dict[int, str] = {}
        if both is None:
            for i in work.reductions:
                text.add(sweeper.total(i))
                found[i] = self.program.values[i].name
        elif both.kind == "online":
            found = {both.first: "pair_top_", both.second: tile.reduced("tl.sum", "pair_sum_")}
        else:
            text.add(f"pair_all_ = {tile.reduced('tl.sum', 'pair_mean_ * pair_n_')}")
            text.add("pair_seen_ = tl.maximum(end - begin, 1).to(tl.float32)")
            text.add("pair_away_ = pair_mean_ - pair_all_ / pair_seen_")
            square = "pair_square_ + pair_n_ * pair_away_ * pair_away_"
            found = {both.first: "pair_all_", both.second: tile.reduced("tl.sum", square)}
        for i, name in found.items():
            self._store_part(sweeper, i, name)

    def _store_part(self, sweeper: Sweeper, index: int, name: str) -> None:
        tile = sweeper.tile
        mask = f", mask={tile.kept_mask}" if tile.kept_mask else ""
        pointer = f"{self.program.values[index].name}_parts_ + {self._place(tile, 'part_')}"
        sweeper.text.add(f"tl.store({pointer}, {name}{mask})")

    def _totals(self, number: int) -> tuple[str, ...]:
        """What each part adds to the scans of a sweep."""
        text, sweeper = self._begin()
        self._known(sweeper, number)
        for i in self._works[number].scans:
            scan = self.program.values[i]
            assert isinstance(scan, Scan)
            fold = Fold.of(scan)
            values = list(self.program.values)
            values[i] = Reduce(
                name=scan.name, level=Level.ROW, dtype=scan.dtype, op=scan.op, arg=scan.arg
            )
            changed = with_values(self.program, tuple(values))
            sweeper.statements.program = sweeper.program = changed
            sweeper.accumulate(Work(reductions=(i,)))
            total = fold.total(sweeper.tile, f"{scan.name}_all_")
            self._store_part(sweeper, i, total)
            sweeper.statements.program = sweeper.program = self.program
        return text.lines

    def _carries(self, sweeper: Sweeper, work: Work) -> None:
        """Write where this part's scans begin: what all parts before it add up to."""
        tile = self._combined_tile(sweeper.tile)
        for i in work.scans:
            scan = self.program.values[i]
            assert isinstance(scan, Scan)
            fold = Fold.of(scan)
            which = f"tl.arange(0, PARTS){'[:, None]' if tile.keeps else ''}"
            before = fold.masked(self._all_parts(sweeper, i), f"{which} < part_")
            sweeper.text.add(f"{scan.name}_carry_ = {fold.total(tile, before)}")
        sweeper.carry(work.scans)

    def _rest(self) -> tuple[str, ...]:
        """What follows from the parts of the last sweep."""
        text, sweeper = self._begin()
        self._known(sweeper, len(self._works))
        store_rest(sweeper.statements, self._frame)
        return text.lines


def can_be_parted(program: Program) -> bool:
    """Whether rows may be shared among programs."""
    if program.last or not program.passes:
        return False
    values = program.values
    if any(isinstance(v, Reduce) and v.op in ("argmax", "argmin", "any", "all") for v in values):
        return False
    scans = [i for i, v in enumerate(values) if isinstance(v, Scan)]
    if any(isinstance(v, Scan) and v.op == "prod" for v in values):
        return False
    below = [set(program.closure([i])) - {i} for i in scans]
    return not any(found & set(scans) for found in below)
