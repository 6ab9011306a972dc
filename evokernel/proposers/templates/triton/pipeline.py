"""Owns candidates of several stages in Triton: products, and programs before, between and behind.

Stages are kernels that run one after the other, each with the structure that suits it; three stages
that are attention may become one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from evokernel.proposers.templates.choices import Choice, Family, Option, Space, Value
from evokernel.proposers.templates.contraction import Contraction, Pipeline, Stage
from evokernel.proposers.templates.expressions import Source
from evokernel.proposers.templates.triton import attention, products, structures
from evokernel.proposers.templates.triton.attention import Attention
from evokernel.proposers.templates.triton.kernel import Extent, Parameter, Scratch, Written, renamed
from evokernel.proposers.templates.triton.module import size_text
from evokernel.proposers.templates.triton.shortening import function_choice

_MOST_CONSTANTS = 12
"""Names that `TUNE` may have."""


def space(pipeline: Pipeline) -> Space:
    """Every way to write a pipeline; stages share the choices that they have in common."""
    dtypes = memory_dtypes(pipeline)
    found: dict[str, Choice] = {}
    fused = attention.found(pipeline)
    if fused is not None:
        together = Option(value="fused", technique="stage-fusion")
        options = (together, Option(value="separate"))
        found["kernels"] = Choice(name="kernels", options=options)
        for choice in attention.choices(fused, dtypes):
            found[choice.name] = choice.model_copy(update={"needs": {"kernels": ("fused",)}})
    product = pipeline.heaviest
    if product is not None:
        for stage in pipeline.contractions:  # all must be covered
            products.choices(stage, products.operand_dtype(stage, dtypes))
        dtype = products.operand_dtype(product, dtypes)
        for choice in products.choices(product, dtype):
            found.setdefault(choice.name, choice)
    for choice in function_choice(*(stage.program for stage in pipeline.stages)):
        found[choice.name] = choice
    for program in pipeline.fused:
        for choice in structures.space(program).choices:
            known = found.get(choice.name)
            found[choice.name] = _joined(known, choice) if known else choice
    if fused is not None and all(stage in fused.stages for stage in pipeline.stages):
        found = {name: _apart(choice) for name, choice in found.items()}
    family: Family = "contraction" if product else "sequence"
    return Space(family=family, choices=tuple(found.values()))


def _apart(choice: Choice) -> Choice:
    """A choice that means nothing where all stages are one kernel."""
    if choice.name in ("kernels", "functions", "products") or "kernels" in choice.needs:
        return choice
    return choice.model_copy(update={"needs": {**choice.needs, "kernels": ("separate",)}})


def _joined(one: Choice, two: Choice) -> Choice:
    """A choice of several stages: every option of each."""
    more = [option for option in two.options if option.value not in one.values]
    return one.model_copy(update={"options": (*one.options, *more)})


def memory_dtypes(pipeline: Pipeline) -> dict[str, str]:
    """Dtypes of all tensors in memory, by key."""
    found = {s.key: s.dtype for s in (*pipeline.sources, *pipeline.between)}
    outputs = zip(pipeline.results, pipeline.outputs, strict=True)
    return {**found, **{key: output.dtype for key, output in outputs}}


def written(
    pipeline: Pipeline, choices: Mapping[str, Value], name: str, rows: str, policy: str
) -> Written:
    """Write a pipeline.

    Args:
        pipeline: The stages.
        choices: A plan's.
        name: Begins the kernels' names.
        rows: Python expression of the first size of the results.
        policy: The task's precision.
    """
    return _Writer(pipeline, choices, name, rows, policy).write()


class _Writer:
    """Writes the stages of one plan."""

    def __init__(
        self, pipeline: Pipeline, choices: Mapping[str, Value], name: str, rows: str, policy: str
    ) -> None:
        self._pipeline = pipeline
        self._choices = choices
        self._name = name
        self._rows = rows
        self._dtypes = memory_dtypes(pipeline)
        self._precision = products.precision(choices, policy)
        fused = attention.found(pipeline)
        self._fused = fused if choices.get("kernels") == "fused" else None

    def write(self) -> Written:
        parts: list[Written] = []
        skipped = () if self._fused is None else self._fused.stages
        for number, stage in enumerate(self._pipeline.stages, start=1):
            if self._fused is not None and stage == self._fused.values:
                parts.append(self._attention(self._fused, f"{self._name}_stage{number}"))
            elif stage not in skipped:
                parts.append(self._stage(stage, number))
        made = {launch_output for part in parts for launch_output in _made(part)}
        between = tuple(
            self._between(source) for source in self._pipeline.between if source.key in made
        )
        constants = _once([c for part in parts for c in part.constants])
        return Written(
            launches=tuple(launch for part in parts for launch in part.launches),
            scratches=(*between, *(s for part in parts for s in part.scratches)),
            constants=_limited((*self._product_numbers(), *constants)),
        )

    def _product_numbers(self) -> tuple[Parameter, ...]:
        product = self._pipeline.heaviest
        skipped = () if self._fused is None else self._fused.stages
        if product is None or all(stage in skipped for stage in self._pipeline.contractions):
            return ()
        dtype = products.operand_dtype(product, self._dtypes)
        return products.numbers(products.choices(product, dtype), self._choices)

    def _between(self, source: Source) -> Scratch:
        return Scratch(
            name=source.key,
            size=self._count(math.prod(source.shape), source.key),
            dtype=source.dtype,
        )

    def _count(self, size: int, key: str) -> str:
        if key not in self._pipeline.moving:
            return str(size)
        return size_text(size, self._pipeline.domain.rows, self._rows)

    def _extent(self, size: int, key: str) -> Extent:
        return Extent(rows=self._count(size, key), is_free=key in self._pipeline.moving)

    def _stage(self, stage: Stage, number: int) -> Written:
        name = f"{self._name}_stage{number}"
        if isinstance(stage, Contraction):
            size = math.prod(stage.batch) if stage.batch else stage.rows
            extent = self._extent(size, stage.writes)
            writer = products.ProductWriter(
                stage, self._choices, self._dtypes, extent, self._precision
            )
            return writer.write(name)
        program = stage.program
        plan = structures.space(program).settle(self._choices)
        count = program.domain.rows if program.domain.outer else program.domain.cols
        extent = self._extent(count, stage.writes)
        own = structures.written(program, plan.choices, name, [stage.writes], extent)
        return _numbered(own, number)

    def _attention(self, fused: Attention, name: str) -> Written:
        extent = self._extent(math.prod(fused.scores.batch), fused.values.writes)
        return attention.written(fused, self._choices, self._dtypes, name, extent, self._precision)


def _made(part: Written) -> set[str]:
    return {o.key for launch in part.launches for o in launch.operands}


def _once(constants: list[Parameter]) -> tuple[Parameter, ...]:
    return tuple({c.name: c for c in constants}.values())


def _limited(constants: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """No more constants to tune than the harness takes."""
    return tuple(
        c if number < _MOST_CONSTANTS else c.model_copy(update={"others": ()})
        for number, c in enumerate(constants)
    )


def _numbered(written: Written, number: int) -> Written:
    """The kernels with constants and scratches of their own."""
    names = {c.name: f"{c.name}_{number}" for c in written.constants}
    return renamed(written, names, {s.name: f"{s.name}_{number}" for s in written.scratches})
