"""Owns requests that nobody answers: the steps that could come next, for whoever reads prompts."""

from collections.abc import Sequence
from pathlib import Path

from evokernel.attempt import Attempt, Backend, Stage
from evokernel.errors import StoreError
from evokernel.graphs import claims
from evokernel.graphs.requests import facts
from evokernel.graphs.selection import step_seed
from evokernel.memory.experience import Experience
from evokernel.memory.store import Memory
from evokernel.memory.values import Value
from evokernel.opgraph import OpGraph
from evokernel.program.description import further_shapes
from evokernel.proposers import Request
from evokernel.record import RunRecord
from evokernel.task import Task


def first_request(
    task: Task, graph: OpGraph | None, backend: Backend, environment: dict[str, str]
) -> Request:
    """The first draft of a task, before anything was measured."""
    return Request(
        task=task,
        graph=graph,
        backend=backend,
        stage=Stage.DRAFT,
        step="preview/1",
        seed=step_seed(0, 1),
        workloads=further_shapes(task),
        machine=facts(environment, backend),
        contract=task.options.contract or "own_kernels_only",
    )


def next_request(record: RunRecord, stage: Stage, parents: Sequence[Attempt]) -> Request:
    """A step that could come next in a run.

    It is shown the experiences that the last step of its stage was shown: asking memory for new
    ones would be recorded as a step.
    """
    attempts, config, task = record.attempts(), record.config, record.task()
    first = parents[0].proposal.candidate.sha if parents else None
    number = record.next_number()
    shown, values = _shown(record, stage)
    return Request(
        task=task,
        graph=record.graph(),
        backend=config.backend,
        stage=stage,
        step=f"{record.id}/{number}",
        seed=step_seed(config.search.seed, number),
        parents=tuple(parents),
        children=tuple(a for a in attempts if (*a.proposal.parents, None)[0] == first),
        tried=tuple(claims.first_with(attempts)),
        history=attempts,
        workloads=further_shapes(task),
        shown=shown,
        values=values,
        machine=facts(record.header.environment, config.backend),
        baselines=record.baselines() or {},
        contract=task.options.contract or config.bench.contract,
    )


def _shown(record: RunRecord, stage: Stage) -> tuple[tuple[Experience, ...], dict[str, Value]]:
    """What the last step of a stage was shown, and what it is worth now."""
    ids = next(
        (a.shown for a in reversed(record.attempts()) if a.shown and a.proposal.stage is stage), ()
    )
    path: Path = record.config.memory.path or record.memory
    if not ids:
        return (), {}
    try:
        with Memory.open(record.config.memory.model_copy(update={"path": path}), create=False) as m:
            return tuple(m.get(id).experience for id in ids), {id: m.value(id, stage) for id in ids}
    except StoreError:  # forgotten meanwhile, or the memory lies elsewhere: shown without them
        return (), {}
