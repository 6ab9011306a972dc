"""Owns what becomes of the numbers that reductions leave: outputs, and reductions over all rows."""

from __future__ import annotations

from evokernel.proposers.templates.expressions import Level, Program, Reduce
from evokernel.proposers.templates.kernel import outputs_at
from evokernel.proposers.templates.triton.folds import Fold
from evokernel.proposers.templates.triton.frame import Frame, operands
from evokernel.proposers.templates.triton.kernel import (
    Launch,
    Operand,
    Scratch,
    Text,
    Written,
)
from evokernel.proposers.templates.triton.spelling import held
from evokernel.proposers.templates.triton.statements import Statements
from evokernel.proposers.templates.triton.tile import Tile

_AT_ONCE = 4096
"""Partial results that one program combines in a first step, where there are many (ours)."""


def over_rows(program: Program) -> tuple[int, ...]:
    """Reductions over all rows."""
    return tuple(i for i in program.last if isinstance(program.values[i], Reduce))


def store_elements(statements: Statements, outputs: tuple[int, ...], options: str = "") -> None:
    """Write those outputs that have one number per element."""
    program, tile = statements.program, statements.tile
    for number in outputs:
        output = program.outputs[number]
        name = statements.name(output.value)
        walk = output.walk or program.domain.in_order
        mask = tile.all_masks()
        parts = [tile.place(output.name, walk), name, *[f"mask={mask}"] * bool(mask)]
        statements.text.add(f"tl.store({', '.join(parts)}{options})")


def store_rest(statements: Statements, frame: Frame, only: str = "") -> None:
    """Write the outputs that have one number per row, and those that have one at all.

    Args:
        statements: Knows the values.
        frame: Of the kernel.
        only: Condition under which this program is the one that writes.
    """
    program, tile, text = statements.program, statements.tile, statements.text
    late = set(program.last)
    for number in outputs_at(program, Level.ROW):
        output = program.outputs[number]
        where = frame.rest(tile)
        masks = " & ".join(filter(None, (tile.kept_mask, only)))
        parts = [f"{output.name} + {where}" if where else output.name]
        parts += [statements.name(output.value), *[f"mask={masks}"] * bool(masks)]
        text.add(f"tl.store({', '.join(parts)})")
    for number in outputs_at(program, Level.SCALAR):
        output = program.outputs[number]
        if output.value in late:
            continue
        first = "tl.program_id(0) == 0"
        masks = f"({first}) & ({only})" if only else first
        text.add(f"tl.store({output.name}, {statements.name(output.value)}, mask={masks})")


def scratch_name(program: Program, reduction: int) -> str:
    """What holds the parts of a reduction over all rows."""
    return f"{program.values[reduction].name}_parts_"


def store_parts(statements: Statements, block: str) -> None:
    """Write what this block's rows contribute to reductions over all rows."""
    program, tile = statements.program, statements.tile
    for reduction in over_rows(program):
        value = program.values[reduction]
        assert isinstance(value, Reduce)
        fold = Fold.of(value)
        name = statements.name(value.arg)
        if tile.kept:
            name = f"tl.broadcast_to({name}, {tile.kept})"
            whole = Tile(shape="line", domain=tile.domain, sizes=("", "ROWS"))
            flat = f"tl.ravel({fold.masked(name, tile.kept_mask)})"
            name = fold.total(whole, flat)
        statements.text.add(f"tl.store({scratch_name(program, reduction)} + {block}, {name})")


def part_operands(program: Program) -> tuple[Operand, ...]:
    """The tensors that hold these contributions."""
    return tuple(
        Operand(
            name=scratch_name(program, i),
            kind="scratch",
            key=scratch_name(program, i),
            dtype=held(program.values[i].dtype),
        )
        for i in over_rows(program)
    )


def combined(program: Program, frame: Frame, name: str, keys: list[str], least: int) -> Written:
    """The kernels that reduce over all rows and go on from there.

    Args:
        program: The program.
        frame: Of the kernel that wrote the parts.
        name: Begins the kernels' names.
        keys: Of the outputs.
        least: Number of parts for the sizes of the capture.
    """
    parts = part_operands(program)
    scratches = [Scratch(name=o.name, size=frame.grid, dtype=o.dtype) for o in parts]
    if not parts:
        return Written(launches=())
    launches, count, suffix = [], frame.grid, ""
    if least > 4 * _AT_ONCE:
        fewer = f"triton.cdiv({count}, {_AT_ONCE})"
        launches.append(_fewer(program, parts, name, count, fewer))
        scratches += [Scratch(name=f"{o.name}_few_", size=fewer, dtype=o.dtype) for o in parts]
        count, suffix = fewer, "_few_"
    launches.append(_final(program, frame, name, keys, count, suffix))
    return Written(launches=tuple(launches), scratches=tuple(scratches))


def _fewer(
    program: Program, parts: tuple[Operand, ...], name: str, count: str, fewer: str
) -> Launch:
    text = Text()
    text.add(f"k = tl.program_id(0) * {_AT_ONCE} + tl.arange(0, {_AT_ONCE})", "swept_ = k < count_")
    tile = Tile(shape="line", domain=program.domain, inner="k", sizes=("", str(_AT_ONCE)))
    for reduction, part in zip(over_rows(program), parts, strict=True):
        value = program.values[reduction]
        assert isinstance(value, Reduce)
        fold = Fold.of(value)
        total = fold.total(tile, f"tl.load({part.name} + k, mask=swept_, other={fold.nothing})")
        text.add(f"tl.store({part.name}_few_ + tl.program_id(0), {total})")
    few = [o.model_copy(update={"name": f"{o.name}_few_", "key": f"{o.name}_few_"}) for o in parts]
    return Launch(
        kernel=f"{name}_fewer",
        doc="Reduces the parts of many blocks to fewer ones.",
        operands=(*parts, *few),
        numbers=(("count_", count),),
        grid=(fewer,),
        options=(("num_warps", "8"),),
        body=text.lines,
    )


def _final(
    program: Program, frame: Frame, name: str, keys: list[str], count: str, suffix: str
) -> Launch:
    text = Text()
    tile = Tile(shape="line", domain=program.domain, inner="k", sizes=("", "1024"))
    folds = {}
    for i in over_rows(program):
        value = program.values[i]
        assert isinstance(value, Reduce)
        folds[i] = Fold.of(value)
    for fold in folds.values():
        text.add(f"{fold.name}_all_ = {fold.start('[1024]')}")
    text.begin("for start_ in range(0, count_, 1024):")
    text.add("k = start_ + tl.arange(0, 1024)", "swept_ = k < count_")
    for i, fold in folds.items():
        part = f"{scratch_name(program, i)}{suffix}"
        load = f"tl.load({part} + k, mask=swept_, other={fold.nothing})"
        text.add(f"{fold.name}_all_ = {fold.step(f'{fold.name}_all_', load)}")
    text.end()
    statements = Statements(program, tile, text)
    for i, fold in folds.items():
        text.add(f"{fold.name} = {fold.total(tile, f'{fold.name}_all_')}")
        statements.known[i] = fold.name
    for number in outputs_at(program, Level.SCALAR):
        output = program.outputs[number]
        if output.value in program.last:
            text.add(f"tl.store({output.name}, {statements.name(output.value)})")
    held_parts = [
        o.model_copy(update={"name": f"{o.name}{suffix}", "key": f"{o.name}{suffix}"})
        for o in part_operands(program)
    ]
    return Launch(
        kernel=f"{name}_combine",
        doc="Reduces the blocks' parts to one number, in their order.",
        operands=(*held_parts, *operands(program, keys, text.lines)),
        numbers=(("count_", count),),
        grid=("1",),
        options=(("num_warps", "8"),),
        body=text.lines,
    )
