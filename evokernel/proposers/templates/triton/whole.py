"""Owns Triton kernels whose blocks hold whole rows or columns: everything is read once."""

from __future__ import annotations

from evokernel.proposers.templates.expressions import Level, Load, Program, Reduce, Scan
from evokernel.proposers.templates.kernel import outputs_at
from evokernel.proposers.templates.triton.folds import Fold, PlaceFold, is_place
from evokernel.proposers.templates.triton.frame import Frame, power, swept_index
from evokernel.proposers.templates.triton.kernel import Text
from evokernel.proposers.templates.triton.resting import (
    over_rows,
    store_elements,
    store_parts,
    store_rest,
)
from evokernel.proposers.templates.triton.spelling import held
from evokernel.proposers.templates.triton.statements import Statements
from evokernel.proposers.templates.triton.tile import Tile


def body(frame: Frame, persistent: bool, options: str) -> tuple[str, ...]:
    """Write a kernel.

    Args:
        frame: What is kept.
        persistent: Whether a program takes one block after the other.
        options: Behind the arguments of stores.
    """
    text = Text()
    number = "tl.program_id(0)"
    if persistent:
        head = f"{number}, {frame.blocks}, tl.num_programs(0), num_stages=STAGES"
        text.begin(f"for block_ in tl.range({head}):")
        number = "block_"
    tile = frame.begin(text, number)
    length = frame.swept
    size = power(length)
    if _is_plane(frame):
        tile = _plane(frame, tile, text)
    else:
        tile = swept_index(tile, text, "", str(size), length, exact=size == length)
    statements = Statements(frame.program, tile, text)
    _values(statements)
    store_elements(statements, outputs_at(frame.program, Level.ELEMENT), options)
    store_rest(statements, frame)
    store_parts(statements, number)
    return text.lines


def _is_plane(frame: Frame) -> bool:
    """Whether lines and columns get an index each, so that lines' numbers are read once each."""
    program, domain = frame.program, frame.program.domain
    by_line = any(
        isinstance(v, Load) and any(v.access.depth) and not v.access.step for v in program.values
    )
    size = power(domain.lines) * power(domain.cols)
    fits = size <= 2 * power(frame.swept)
    places = any(isinstance(v, Reduce) and is_place(v) for v in program.values)
    return program.kind == "planes" and by_line and fits and not frame.several and not places


def _plane(frame: Frame, tile: Tile, text: Text) -> Tile:
    domain = frame.program.domain
    lines, cols = power(domain.lines), power(domain.cols)
    text.add(f"d = tl.arange(0, {lines})[:, None]", f"c = tl.arange(0, {cols})[None, :]")
    masks = ["", ""]
    if lines != domain.lines:
        text.add(f"has_line_ = d < {domain.lines}")
        masks[0] = "has_line_"
    if cols != domain.cols:
        text.add(f"has_column_ = c < {domain.cols}")
        masks[1] = "has_column_"
    return tile.model_copy(
        update={
            "shape": "plane",
            "inner": "d",
            "column": "c",
            "inner_mask": masks[0],
            "column_mask": masks[1],
            "sizes": (str(lines), str(cols)),
        }
    )


def _values(statements: Statements) -> None:
    """Write what the results need, in the order of the program; memory first."""
    program = statements.program
    late = set(program.last)
    wanted = [o.value for o in program.outputs if o.value not in late]
    for i in over_rows(program):
        value = program.values[i]
        assert isinstance(value, Reduce)
        wanted.append(value.arg)
    needed = program.closure(wanted)
    statements.write(i for i in needed if _streams(program, i))
    for i in needed:
        value = program.values[i]
        if isinstance(value, Reduce):
            reduce_block(statements, i)
        elif isinstance(value, Scan):
            fold = Fold.of(value)
            arg = fold.taken(value, statements.name(value.arg))
            arg = fold.masked(arg, statements.tile.inner_mask)
            result = fold.given(value, fold.scanned(statements.tile, arg))
            statements.text.add(f"{value.name} = {result}")
            statements.known[i] = value.name
        else:
            statements.name(i)


def _streams(program: Program, index: int) -> bool:
    """Whether a value is read anew for each row."""
    value = program.values[index]
    return (
        isinstance(value, Load)
        and value.level is Level.ELEMENT
        and value.access.varies(rows=True)
        and not value.access.guards
    )


def reduce_block(statements: Statements, index: int) -> None:
    """Write a reduction of a block."""
    value = statements.program.values[index]
    assert isinstance(value, Reduce)
    tile, text = statements.tile, statements.text
    masks = " & ".join(filter(None, (tile.swept_masks, *map(tile.inside, value.guards))))
    arg = statements.name(value.arg)
    if is_place(value):
        of = held(statements.program.values[value.arg].dtype)
        fold = PlaceFold(name=value.name, op=value.op, dtype=of)
        block = f"tl.broadcast_to({arg}, {tile.block})"
        block = f"tl.where({masks}, {block}, {fold.nothing})" if masks else block
        places = f"tl.broadcast_to({tile.inner}, {tile.block})"
        places = f"tl.where({masks}, {places}, {2**31 - 1})" if masks else places
        call = tile.reduced("tl.reduce", f"({block}, {places})", fold.call)
        text.add(f"{value.name}_best_, {value.name} = {call}")
        text.add(f"{value.name} = {value.name}.to(tl.int64)")
    else:
        plain = Fold.of(value)
        if tile.shape == "plane":  # what is the same along a line counts once for each column
            arg = f"tl.broadcast_to({arg}, {tile.block})"
        text.add(f"{value.name} = {plain.total(tile, plain.masked(arg, masks))}")
    statements.known[index] = value.name
