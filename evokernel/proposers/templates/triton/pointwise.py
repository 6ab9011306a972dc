"""Owns Triton kernels without reductions: blocks of elements, each with several loads in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.choices import Space, Value
from evokernel.proposers.templates.expressions import Level, Load, Program
from evokernel.proposers.templates.kernel import outputs_at
from evokernel.proposers.templates.triton.frame import operands
from evokernel.proposers.templates.triton.kernel import Extent, Launch, Text, Written
from evokernel.proposers.templates.triton.resting import store_elements
from evokernel.proposers.templates.triton.shortening import as_chosen, function_choice
from evokernel.proposers.templates.triton.sizes import constants, number
from evokernel.proposers.templates.triton.statements import Statements
from evokernel.proposers.templates.triton.sweeps import store_options, stores_choice
from evokernel.proposers.templates.triton.tile import Tile

_BYTES = 8192
"""Bytes of the widest tensor in a block: four loads of 16 bytes for each of 128 threads (ours)."""

_MOST = 8192
"""Elements of the largest block offered."""


def space(program: Program) -> Space:
    """Every way to write a point-wise program."""
    plain = _BYTES // max((itemsize(s.dtype) for s in program.sources), default=4)
    others = [n for n in (512, 1024, 2048, 4096, 8192) if n != plain]
    choices = (
        number("block", plain, others),
        number("warps", 4, (2, 8)),
        *function_choice(program),
        *stores_choice(program),
    )
    return Space(family="elementwise", choices=choices)


def written(
    program: Program, choices: Mapping[str, Value], name: str, keys: Sequence[str], extent: Extent
) -> Written:
    """Write a point-wise program; see `sweeps.written`."""
    program = as_chosen(program, choices)
    text, size = Text(), program.domain.size
    count = _count(program, extent)
    number_ = "tl.program_id(0)"
    if extent.is_free or size >= 2**31:
        number_ = f"{number_}.to({'INDEX' if extent.is_free else 'tl.int64'})"
    text.add(f"i_ = {number_} * BLOCK + tl.arange(0, BLOCK)")
    mask = ""
    if extent.is_free or size % _MOST:
        text.add(f"kept_ = i_ < {'count_' if extent.is_free else size}")
        mask = "kept_"
    tile = Tile(
        shape="flat",
        domain=program.domain,
        row="i_",
        kept_mask=mask,
        sizes=("BLOCK", ""),
        wide=extent.is_free or size >= 2**31,
    )
    statements = Statements(program, tile, text)
    for index, value in enumerate(program.values):
        if isinstance(value, Load) and value.level is not Level.SCALAR and not value.access.guards:
            statements.name(index)
    store_elements(statements, outputs_at(program, Level.ELEMENT), store_options(choices))
    _store_others(statements)
    numbers = constants(space(program).choices, choices, ("BLOCK", "WARPS"))
    compiled = [("BLOCK", "BLOCK")]
    if extent.is_free:
        compiled.append(("INDEX", f"tl.int64 if {count} >= 2**31 else tl.int32"))
    launch = Launch(
        kernel=name,
        doc="Computes one block of elements.",
        operands=operands(program, keys, text.lines),
        numbers=(("count_", count),) if extent.is_free else (),
        constants=tuple(compiled),
        grid=(f"triton.cdiv({count}, BLOCK)",),
        options=(("num_warps", "WARPS"),),
        body=text.lines,
    )
    return Written(launches=(launch,), constants=numbers)


def _count(program: Program, extent: Extent) -> str:
    """Number of elements, where kernels are launched."""
    if not program.domain.outer:
        return extent.rows if extent.is_free else str(program.domain.cols)
    cols = program.domain.cols
    return extent.rows if cols == 1 else f"{extent.rows} * {cols}"


def _store_others(statements: Statements) -> None:
    """Write outputs that have one number per row, or one at all."""
    program, tile, text = statements.program, statements.tile, statements.text
    for number_ in (*outputs_at(program, Level.ROW), *outputs_at(program, Level.SCALAR)):
        output = program.outputs[number_]
        is_row = program.values[output.value].level is Level.ROW
        cols = program.domain.cols
        mask = f"i_ % {cols} == 0" if is_row else "tl.program_id(0) == 0"
        if is_row and tile.kept_mask:
            mask = f"({mask}) & kept_"
        where = f"{output.name} + i_ // {cols}" if is_row else output.name
        text.add(f"tl.store({where}, {statements.name(output.value)}, mask={mask})")
