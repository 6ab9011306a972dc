"""Owns what can be chosen for reductions and scans across lines: every column by itself."""

from collections.abc import Mapping

from evokernel.proposers.templates.choices import Choice, Needs, Option, Space, Value
from evokernel.proposers.templates.column_blocks import BlocksWriter
from evokernel.proposers.templates.column_lines import SharedWriter
from evokernel.proposers.templates.expressions import Program, Reduce, Scan
from evokernel.proposers.templates.folds import PLACES
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.rows import keep_choices
from evokernel.proposers.templates.styles import style_choices

_BLOCK = 1024
"""Columns that a thread handles at a time: a line of them is 4 KB, their sums stay in the first
cache (ours)."""

_NARROW = 64
"""Columns of the smallest block: four full vectors (ours)."""

_OWN_CACHE = 512 * 2**10
"""Bytes that a core's own cache holds, about (ours)."""

_TASKS = 8
"""Fewer blocks than this would leave threads without work (ours)."""

_FEW_RESULTS = 4096
_MANY_LINES = 2048
"""Fewer results than the one, each over more lines than the other: threads may share the lines."""


def space(program: Program) -> Space:
    """Every way to write a program of columns."""
    spread = _spread(program)
    blocks: Needs = {"spread": ("blocks",)} if spread else {}
    keeping = keep_choices(program, blocks, ("separate",)) if _is_kept_near(program) else ()
    choices = (*spread, *_blocks(program, blocks), *style_choices(program), *keeping)
    return Space(family="columns", choices=choices)


def kernel(program: Program, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a program of columns."""
    if choices.get("spread") == "lines":
        everything = {**choices, "block": program.domain.cols}
        return SharedWriter(program, everything, function).write()
    return BlocksWriter(program, choices, function).write()


def _spread(program: Program) -> tuple[Choice, ...]:
    domain = program.domain
    parts = [v for v in program.values if isinstance(v, Reduce | Scan)]
    whole = any(isinstance(v, Scan) or v.op in PLACES for v in parts)
    if domain.results >= _FEW_RESULTS or domain.lines < _MANY_LINES or whole or program.last:
        return ()
    shared = Option(value="lines", technique="split-rows")
    return (Choice(name="spread", options=(Option(value="blocks"), shared)),)


def _is_kept_near(program: Program) -> bool:
    """Whether a block's values can wait for a later sweep in a core's own cache."""
    return program.domain.lines * min(program.domain.cols, _NARROW) * 4 <= _OWN_CACHE


def _blocks(program: Program, needs: Needs) -> tuple[Choice, ...]:
    rows, cols = program.domain.rows, program.domain.cols
    plain = _BLOCK
    while plain > _NARROW and rows * -(-cols // plain) < _TASKS:
        plain //= 2
    plain = min(plain, cols)
    others = [n for n in (_NARROW, 256, _BLOCK, 4096) if n < cols and n != plain]
    options = [Option(value=n, technique="column-blocking") for n in others]
    return (Choice(name="block", options=(Option(value=plain), *options), needs=needs),)
