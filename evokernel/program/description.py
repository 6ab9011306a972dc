"""Owns the description of a task: everything that can be told about it before a run."""

from collections import Counter
from functools import lru_cache

from evokernel.frozen import Frozen
from evokernel.opgraph import CaptureFailed, OpGraph, TensorSpec, capture, rows_independent
from evokernel.program import Program
from evokernel.program.estimate import MemoryEstimate, estimate_from
from evokernel.program.shapes import shapes
from evokernel.task import Task, TaskOptions, Workload
from evokernel.wording import counted


class Operators(Frozen):
    """What a graph says in numbers."""

    calls: dict[str, int]
    """Calls of each operator, in order of first use."""
    family: str
    flops: int
    """Floating-point operations of one call."""
    min_bytes: int
    """Bytes that any implementation moves."""
    fingerprint: str
    """Knows the same task again under another name."""
    rows_independent: bool
    """Whether chunks along dimension 0 give the same results."""
    captured_by: str
    """`export` or `fx`."""


class WorkloadDescription(Frozen):
    """One workload of a task."""

    name: str
    hidden: bool
    """Never shown to whoever writes candidates."""
    inputs: tuple[TensorSpec, ...]
    """Tensors among forward's flattened arguments."""
    outputs: tuple[TensorSpec, ...] | None
    """What forward returns, flattened; None if that depends on values."""
    memory: MemoryEstimate
    operators: Operators | None
    """None where they could not be captured."""
    capture_fault: str | None
    """Why not."""


class Description(Frozen):
    """A task and its workloads."""

    name: str
    title: str
    level: int | None
    path: str | None
    """Where the file lies."""
    sha: str
    """Hash of the source with the device's sizes."""
    device: str
    """Device that the sizes were chosen for."""
    options: TaskOptions
    parameters: tuple[TensorSpec, ...]
    """Parameters and buffers of the module."""
    workloads: tuple[WorkloadDescription, ...]


def describe(task: Task) -> Description:
    """Execute the file, and find shapes, operators and memory needs of each workload.

    Raises:
        TaskError: the file does not run.
    """
    program = task.program()
    return Description(
        name=task.name,
        title=task.title,
        level=task.level,
        path=task.path,
        sha=task.sha,
        device=task.device,
        options=task.options,
        parameters=shapes(program).parameters,
        workloads=tuple(_workload(program, workload) for workload in program.workloads()),
    )


def further_shapes(task: Task) -> tuple[str, ...]:
    """The inputs of every workload after the first, one a line; hidden ones are only counted.

    Raises:
        TaskError: the file does not run.
    """
    return _further(task.source) if "get_workloads" in task.source else ()


@lru_cache(maxsize=4)
def _further(source: str) -> tuple[str, ...]:
    program = Task.from_source(source).program()
    workloads = program.workloads()[1:]
    shown = [workload for workload in workloads if not workload.hidden]
    told = [f"- `{each.name}`: {_inputs(program, each)}" for each in shown]
    if hidden := len(workloads) - len(shown):
        told.append(f"- {counted(hidden, 'further workload')} that nobody is shown")
    return ("It has to be right for these inputs, too:", *told) if told else ()


def _inputs(program: Program, workload: Workload) -> str:
    specs = shapes(program, workload).inputs
    return ", ".join(f"{spec.dtype}{list(spec.shape)}" for spec in specs) or "no tensors"


def _workload(program: Program, workload: Workload) -> WorkloadDescription:
    graph, fault = None, None
    try:
        graph = capture(program, workload)
    except CaptureFailed as failed:
        fault = str(failed)
    seen = shapes(program, workload)
    if fault:  # only running it tells a file that cannot be captured from one that is broken
        program.check(workload)
    return WorkloadDescription(
        name=workload.name,
        hidden=workload.hidden,
        inputs=seen.inputs,
        outputs=seen.outputs,
        memory=estimate_from(seen, graph),
        operators=None if graph is None else _operators(graph),
        capture_fault=fault,
    )


def _operators(graph: OpGraph) -> Operators:
    return Operators(
        calls=dict(Counter(node.op for node in graph.calls)),
        family=graph.family,
        flops=graph.flops,
        min_bytes=graph.min_bytes,
        fingerprint=graph.fingerprint,
        rows_independent=rows_independent(graph),
        captured_by=graph.source,
    )
