"""Owns whether the number of rows of a pipeline may differ from call to call."""

from __future__ import annotations

from collections.abc import Sequence

from evokernel.proposers.templates.contraction import Contraction, Pipeline, Stage
from evokernel.proposers.templates.expressions import Program


def moving_tensors(pipeline: Pipeline, positions: Sequence[int]) -> frozenset[str]:
    """Keys of the tensors with a part for each row of the results; empty if rows are fixed.

    Args:
        pipeline: The stages.
        positions: Inputs whose rows go into the same rows of every output and into no others.
    """
    found = {s.key for s in pipeline.sources if s.kind == "input" and int(s.key) in positions}
    moving = [s.shape[:1] for s in pipeline.sources if s.key in found]
    heads = {*moving, *(o.shape[:1] for o in pipeline.outputs)}
    if not found or len(heads) != 1 or heads <= {(), (0,), (1,)}:
        return frozenset()
    rows = next(iter(heads))[0]
    for stage in pipeline.stages:
        if any(key in found for key in stage.reads):
            if not _goes_by_rows(stage, rows, found):
                return frozenset()
            found.add(stage.writes)
    return frozenset(found) if found.issuperset(pipeline.results) else frozenset()


def _goes_by_rows(stage: Stage, rows: int, moving: set[str]) -> bool:
    """Whether a stage's outermost loop runs over the rows, and nothing else depends on them."""
    if isinstance(stage, Contraction):
        known = moving | {stage.product}
        return _multiplies_by_rows(stage, rows, moving) and _is_by_rows(stage.program, rows, known)
    return _is_by_rows(stage.program, rows, moving)


def _multiplies_by_rows(stage: Contraction, rows: int, moving: set[str]) -> bool:
    if not stage.batch:
        is_left = stage.left.key in moving and stage.right.key not in moving
        return is_left and stage.rows % rows == 0
    walked = [(o.batch[0] != 0) == (o.key in moving) for o in (stage.left, stage.right)]
    return all(walked) and stage.batch[0] % rows == 0


def _is_by_rows(program: Program, rows: int, moving: set[str]) -> bool:
    outer = program.domain.outer
    fixed = [n for n, source in enumerate(program.sources) if source.key not in moving]
    if any(program.walks_rows(n) for n in fixed) or program.last:
        return False
    if not outer:
        return program.kind == "pointwise" and program.domain.cols % rows == 0
    return outer[0] % rows == 0
