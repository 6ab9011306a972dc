"""Owns the kernels of a pipeline: what can be chosen in them, and its stages in one CUDA file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from evokernel.proposers.templates.choices import Choice, Family, Space, Value
from evokernel.proposers.templates.contraction import Contraction, Pipeline, Stage
from evokernel.proposers.templates.cuda import products, structures, tiles
from evokernel.proposers.templates.cuda.kernel import Kernel, Launch, Part, Workspace, joined


def space(pipeline: Pipeline) -> Space:
    """Every way to write a pipeline; stages share the choices that they have in common.

    Raises:
        Unsupported: a stage has no structure.
    """
    product = pipeline.heaviest
    own = tiles.choices(product, dtypes_of(pipeline)) if product else ()
    choices: dict[str, Choice] = {choice.name: choice for choice in own}
    for program in pipeline.fused:
        for choice in structures.space(program).choices:
            known = choices.get(choice.name)
            choices[choice.name] = _joined(known, choice) if known else choice
    family: Family = "contraction" if pipeline.heaviest else "sequence"
    return Space(family=family, choices=tuple(choices.values()))


def kernel(pipeline: Pipeline, choices: Mapping[str, Value], function: str) -> Kernel:
    """Write a pipeline: the kernels of its stages, one after the other."""
    dtypes = dtypes_of(pipeline)
    parts = [
        _placed(
            pipeline, stage, _written(stage, dtypes, choices, f"{function}_stage{number}"), number
        )
        for number, stage in enumerate(pipeline.stages, start=1)
    ]
    between = tuple(
        Workspace(name=s.name, size=str(math.prod(s.shape)), dtype=s.dtype)
        for s in pipeline.between
    )
    made = joined(parts)
    return made.model_copy(update={"workspaces": (*between, *made.workspaces)})


def _joined(one: Choice, two: Choice) -> Choice:
    """A choice of several stages: every option of each, where both have a meaning."""
    more = [option for option in two.options if option.value not in one.values]
    needs = one.needs if one.needs == two.needs else {}
    return one.model_copy(update={"options": (*one.options, *more), "needs": needs})


def dtypes_of(pipeline: Pipeline) -> dict[str, str]:
    """The dtype of every tensor in memory, by its key."""
    found = {source.key: source.dtype for source in (*pipeline.sources, *pipeline.between)}
    found.update(zip(pipeline.results, (o.dtype for o in pipeline.outputs), strict=True))
    return found


def _written(
    stage: Stage, dtypes: Mapping[str, str], choices: Mapping[str, Value], name: str
) -> Part:
    if isinstance(stage, Contraction):
        return products.part(stage, dtypes, choices, name)
    plan = structures.space(stage.program).settle(choices)
    return structures.part(stage.program, plan.choices, name)


def _placed(pipeline: Pipeline, stage: Stage, part: Part, number: int) -> Part:
    """The part with tensors by the pipeline's names, and sizes that are numbers."""
    keys = {source.name: source.key for source in stage.program.sources}
    keys.update((output.name, stage.writes) for output in stage.program.outputs)
    if isinstance(stage, Contraction):
        keys.update(left_=stage.left.key, right_=stage.right.key)
    names = {source.key: source.name for source in (*pipeline.sources, *pipeline.between)}
    names.update(zip(pipeline.results, (o.name for o in pipeline.outputs), strict=True))
    own = {w.name: f"stage{number}_{w.name}" for w in part.workspaces}

    def counted(text: str) -> str:
        domain = stage.program.domain
        text = re.sub(r"\brows\b", str(domain.rows), text)
        return re.sub(r"\bcols\b", str(domain.cols), text)

    def placed(launch: Launch) -> Launch:
        tensors = tuple(own.get(n) or names[keys[n]] for n in launch.tensors)
        sizes = tuple(counted(size) for size in launch.sizes)
        return launch.model_copy(
            update={"tensors": tensors, "sizes": sizes, "grid": counted(launch.grid)}
        )

    return Part(
        text=part.text,
        launches=tuple(placed(launch) for launch in part.launches),
        workspaces=tuple(
            w.model_copy(update={"name": own[w.name], "size": counted(w.size)})
            for w in part.workspaces
        ),
    )
