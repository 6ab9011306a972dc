"""Owns the kernel of a pipeline: what can be chosen in it, and its stages in one C++ file."""

from __future__ import annotations

import math
from collections.abc import Mapping

from evokernel.opgraph import itemsize
from evokernel.proposers.templates import blocked, structures
from evokernel.proposers.templates.blocked import Function
from evokernel.proposers.templates.choices import Choice, Family, Option, Space, Value
from evokernel.proposers.templates.contraction import Contraction, Matrix, Patches, Pipeline, Stage
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.header import preamble
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.literals import C_TYPES
from evokernel.proposers.templates.styles import shortened
from evokernel.proposers.templates.tiles import Tile

_TILES = ("4x1", "6x2", "4x2", "4x3", "8x1")
_NARROW = ("{0}x1", "{0}x2", "{0}x4")
"""Rows and vectors of a tile: sixteen registers hold twelve sums and what is multiplied (ours). The
second line is for products of less than four rows."""

_SHARED_BYTES = 64 * 2**20
"""An operand is packed as a whole, or in a block by each thread, up to this size (ours)."""

_DEEPEST = 8192
"""Depth up to which a plain block takes in all of it (ours)."""


_PANEL_BYTES = 320 * 2**10
"""What a plain block packs of the right operand: a core's second cache holds it (ours)."""


def space(pipeline: Pipeline) -> Space:
    """Every way to write a pipeline; stages share the choices that they have in common."""
    product = pipeline.heaviest
    choices = {choice.name: choice for choice in (_own(pipeline, product) if product else ())}
    for program in pipeline.fused:
        for choice in structures.space(program).choices:
            known = choices.get(choice.name)
            choices[choice.name] = _joined(known, choice) if known else choice
    family: Family = "contraction" if product else "sequence"
    return Space(family=family, choices=tuple(choices.values()))


def kernel(pipeline: Pipeline, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a pipeline as a function of its sources, its outputs and `threads`.

    Raises:
        Unsupported: its products have several dtypes.
    """
    dtypes = {stage.dtype for stage in pipeline.contractions}
    if len(dtypes) > 1:
        raise Unsupported("products of several dtypes in one graph are not covered")
    texts = [
        Tile.of(choices, blocked.form_of(dtype, choices), C_TYPES[dtype]).text for dtype in dtypes
    ]
    stages = [
        _written(pipeline, stage, choices, f"{function}_stage{number}")
        for number, stage in enumerate(pipeline.stages, start=1)
    ]
    calls = _calls(pipeline, stages, function)
    text = "\n".join([*texts, *(stage.text for stage in stages)])
    body = f"namespace {{\n\n{text}\n}}  // namespace\n\n{calls}"
    sizes = ("rows", "threads") if pipeline.moving else ("threads",)
    return Kernel(source=f"{preamble(body)}\n{body}", function=function, sizes=sizes)


# What can be chosen.


def _own(pipeline: Pipeline, stage: Contraction) -> tuple[Choice, ...]:
    """Choices of the products; sizes are those of the one with most operations, `stage`."""
    vectors = Option(value="vector", technique="vectorized-math")
    has_vectors = stage.dtype == "float32"
    return (
        Choice(name="form", options=(Option(value="scalar"), *[vectors] * has_vectors)),
        _tile(stage),
        *_panels(stage),
        *_blocks(stage),
        _numbers("steps", 1, (2, 4), "loop-unrolling"),
        _numbers("fetch", 0, (8,), "software-prefetch"),
        *_functions(pipeline),
        _numbers("schedule", "static", (1, 4), "dynamic-scheduling"),
        _numbers("threads", "all", ("half",), "fewer-threads"),
    )


def _numbers(name: str, plain: Value, others: tuple[Value, ...], technique: str) -> Choice:
    options = [Option(value=other, technique=technique) for other in others]
    return Choice(name=name, options=(Option(value=plain), *options))


def _tile(stage: Contraction) -> Choice:
    names: tuple[str, ...] = _TILES
    if stage.rows < 4:
        names = tuple(name.format(stage.rows) for name in _NARROW)
    return _numbers("tile", names[0], names[1:], "register-tiling")


def _panels(stage: Contraction) -> tuple[Choice, ...]:
    """How each operand is brought into the order in which tiles read it."""
    found = []
    for side, operand in (("left", stage.left), ("right", stage.right)):
        ways: list[Value] = ["none", "block", "whole"]
        if side == "right" and not blocked.in_place(operand, stage.cols):
            ways.remove("none")
        if isinstance(operand, Patches) or _bytes(stage, operand) > _SHARED_BYTES:
            ways.remove("whole")
        if len(ways) > 1:
            found.append(_numbers(side, ways[0], tuple(ways[1:]), "panel-packing"))
    return tuple(found)


def _bytes(stage: Contraction, operand: Matrix) -> int:
    times = math.prod(stage.batch) if any(operand.batch) else 1
    width = stage.rows if operand is stage.left else stage.cols
    return times * width * stage.depth * itemsize(stage.dtype)


def _blocks(stage: Contraction) -> tuple[Choice, ...]:
    """Sizes of a block; 0 is all there is."""
    deepest = 0 if stage.depth <= _DEEPEST else _DEEPEST
    depths = tuple(n for n in (128, 256, 512, 1024) if n < stage.depth)
    found = [_numbers("depth", deepest, depths, "cache-blocking")]
    panel = _PANEL_BYTES // (stage.depth * itemsize(stage.dtype))
    usual = next((n for n in (256, 128) if n <= panel), 64)
    most = _SHARED_BYTES // (min(stage.depth, _DEEPEST) * itemsize(stage.dtype))
    for name, size, plain, sizes in (
        ("rows", stage.rows, 64, (32, 64, 128, 256, 0)),
        ("cols", stage.cols, usual, (64, 128, 256, 512, 1024, 0)),
    ):
        start = plain if plain < size else 0
        others = tuple(n for n in sizes if n < size and n != start and (n or size) <= most)
        found.append(_numbers(name, start, others, "output-blocking"))
    return tuple(found)


def _functions(pipeline: Pipeline) -> tuple[Choice, ...]:
    programs = [stage.program for stage in pipeline.contractions]
    if all(shortened(program) == program for program in programs):
        return ()
    short = Option(value="short", technique="shorter-functions")
    options = (Option(value="full"), short)
    return (Choice(name="functions", options=options, needs={"form": ("vector",)}),)


def _joined(one: Choice, two: Choice) -> Choice:
    """A choice of several stages: every option of each."""
    more = [option for option in two.options if option.value not in one.values]
    return one.model_copy(update={"options": (*one.options, *more)})


# The C++ file.


def _written(pipeline: Pipeline, stage: Stage, choices: Mapping[str, Value], name: str) -> Function:
    if isinstance(stage, Contraction):
        outermost = math.prod(stage.batch) if stage.batch else stage.rows
        return blocked.write(stage, choices, name, pipeline.count(outermost, stage.writes))
    plan = structures.space(stage.program).settle(choices)
    written = structures.kernel(stage.program, plan.choices, name)
    text = written.source[written.source.index('extern "C" ') :].removeprefix('extern "C" ')
    tensors = (*(source.key for source in stage.program.sources), stage.writes)
    counts = {"rows": stage.program.domain.rows, "cols": stage.program.domain.cols}
    texts = {which: pipeline.count(count, stage.writes) for which, count in counts.items()}
    sizes = tuple(texts.get(which, which) for which in written.sizes)
    return Function(text=text, tensors=tensors, sizes=sizes)


def _calls(pipeline: Pipeline, stages: list[Function], function: str) -> str:
    """The function that runs one stage after the other."""
    names = {source.key: source.name for source in (*pipeline.sources, *pipeline.between)}
    names.update(zip(pipeline.results, (o.name for o in pipeline.outputs), strict=True))
    parameters = [f"const {C_TYPES[s.dtype]}* {s.name}" for s in pipeline.sources]
    parameters += [f"{C_TYPES[o.dtype]}* {o.name}" for o in pipeline.outputs]
    parameters += ["int64_t rows"] * bool(pipeline.moving) + ["int threads"]
    lines = [f'extern "C" void {function}({", ".join(parameters)}) {{']
    for source in pipeline.between:
        kind = C_TYPES[source.dtype]
        size = pipeline.count(math.prod(source.shape), source.key)
        lines.append(f"    {kind}* const {source.name} = new {kind}[{size}];")
    for number, stage in enumerate(stages, start=1):
        arguments = [*(names[key] for key in stage.tensors), *stage.sizes]
        lines.append(f"    {function}_stage{number}({', '.join(arguments)});")
    lines += [f"    delete[] {source.name};" for source in pipeline.between]
    return "\n".join([*lines, "}", ""])
