"""Owns the memory that judging a task takes, and how the fp64 reference is made to fit."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from evokernel.errors import TaskTooLarge
from evokernel.frozen import Frozen
from evokernel.nested import leaves, map_leaves
from evokernel.opgraph import OpGraph, TensorSpec, itemsize, same_operators
from evokernel.opgraph.work import peak_bytes
from evokernel.program import Program
from evokernel.program.shapes import Shapes, cut_rows, fake_inputs, shadow, shapes, silence
from evokernel.task import Workload


class MemoryEstimate(Frozen):
    """Bytes that one workload needs, for the judge's part; known before anything is allocated."""

    inputs: int
    """Arguments of forward."""
    parameters: int
    """Parameters and buffers."""
    outputs: int
    """What forward returns; taken as large as the inputs where that is not known."""
    fp64_inputs: int
    """The inputs converted to fp64."""
    fp64_parameters: int
    """The parameters converted to fp64."""
    fp64_outputs: int
    """The expected values."""
    fp64_intermediates: int
    """Most memory that intermediate results of the fp64 reference take at once."""

    @property
    def own(self) -> int:
        """What a call at the task's own precision needs, without intermediate results."""
        return self.inputs + self.parameters + self.outputs

    @property
    def fp64(self) -> int:
        """What the fp64 reference adds."""
        copies = self.fp64_inputs + self.fp64_parameters + self.fp64_outputs
        return copies + self.fp64_intermediates

    @property
    def total(self) -> int:
        """Everything at once."""
        return self.own + self.fp64

    def in_chunks(self, count: int) -> int:
        """Bytes if the fp64 reference runs over the rows in `count` pieces."""
        pieces = -(-(self.fp64_inputs + self.fp64_intermediates) // count)
        return self.own + self.fp64_parameters + self.fp64_outputs + pieces

    def require_fits(self, available: int, needed: int | None = None) -> None:
        """Refuse what cannot fit.

        Args:
            available: Bytes that may be used.
            needed: Bytes that are needed; None is `total`.

        Raises:
            TaskTooLarge: with both figures.
        """
        needed = self.total if needed is None else needed
        if needed > available:
            raise TaskTooLarge(
                f"This task needs about {size_text(needed)} of memory (inputs "
                f"{size_text(self.inputs)}, parameters {size_text(self.parameters)}, outputs "
                f"{size_text(self.outputs)}, fp64 reference {size_text(self.fp64)}), but "
                f"{size_text(available)} are available; expected it to fit. Make the sizes in the "
                "task file smaller, or use a machine with more memory."
            )


class ReferencePlan(Frozen):
    """How the fp64 reference of one workload is computed."""

    mode: Literal["whole", "chunked", "reduced"]
    """At once; in pieces of the rows, with the same result; or on the first rows only."""
    chunks: int = 1
    """Pieces to compute one after the other."""
    rows: int | None = None
    """Rows that take part, of `of_rows`; None if all are computed at once."""
    of_rows: int | None = None
    """Size of dimension 0 of the inputs that are cut."""
    positions: tuple[int, ...] = ()
    """Which of forward's flattened arguments are cut along dimension 0."""
    label: str = ""
    """What to say beside the result; empty when everything is compared at once."""
    estimate: MemoryEstimate
    """Of the full workload."""

    def pieces(self, inputs: list[Any]) -> Iterator[list[Any]]:
        """Arguments of the calls to make in turn; views, so copy what a call may overwrite.

        Whole and reduced give one; chunked gives `chunks`, whose outputs `join` puts together.
        """
        if self.rows is None:
            yield inputs
            return
        step = -(-self.rows // self.chunks)
        for start in range(0, self.rows, step):
            yield cut_rows(inputs, self.positions, start, min(start + step, self.rows))

    def join(self, outputs: Sequence[Any]) -> Any:
        """The outputs of all pieces as one, rows in order; every output of a chunk has its rows."""
        import torch

        if len(outputs) == 1:
            return outputs[0]
        flat = [[leaf for _, leaf in leaves(output)] for output in outputs]
        columns = iter(zip(*flat, strict=True))

        def together(leaf: Any) -> Any:
            parts = next(columns)
            return leaf if leaf is None else torch.cat(parts)

        return map_leaves(together, outputs[0])


def memory_estimate(
    program: Program, workload: Workload | None = None, graph: OpGraph | None = None
) -> MemoryEstimate:
    """Estimate from shapes alone; a graph adds what intermediate results take.

    Raises:
        TaskError: the file cannot make its inputs or its module.
    """
    return estimate_from(shapes(program, workload), graph)


def plan_reference(
    program: Program, workload: Workload | None, graph: OpGraph | None, available: int
) -> ReferencePlan:
    """Choose how the fp64 reference is computed so that it fits.

    Args:
        program: The executed task.
        workload: One of its workloads; None is the first.
        graph: Its operators for this workload, if they could be captured.
        available: Bytes that may be used; the task's own `memory_bytes` lowers it.

    Returns:
        `whole` if it fits; `chunked` if the graph shows that rows are independent; else `reduced`:
        the largest half, quarter, ... of the rows that fits and that the reference accepts.

    Raises:
        TaskTooLarge: nothing fits; the message holds both figures.
    """
    available = min(available, program.task.options.memory_bytes or available)
    full = shapes(program, workload)
    estimate = estimate_from(full, graph)
    if estimate.total <= available:
        return ReferencePlan(mode="whole", estimate=estimate)
    estimate.require_fits(available, estimate.own)
    plan = _chunked(program, workload, graph, estimate, available)
    plan = plan or _reduced(program, workload, graph, estimate, available)
    if plan is None:
        estimate.require_fits(available)
        raise AssertionError("unreachable: the estimate did not fit")
    return plan


def size_text(count: int) -> str:
    """Bytes in words, e.g. `1.5 GiB`."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def estimate_from(found: Shapes, graph: OpGraph | None) -> MemoryEstimate:
    """The estimate of a call whose shapes are known."""
    outputs = found.inputs if found.outputs is None else found.outputs
    unknown = _wide(found.inputs) + _wide(outputs)
    return MemoryEstimate(
        inputs=_bytes(found.inputs),
        parameters=_bytes(found.parameters),
        outputs=_bytes(outputs),
        fp64_inputs=_wide(found.inputs),
        fp64_parameters=_wide(found.parameters),
        fp64_outputs=_wide(outputs),
        fp64_intermediates=unknown if graph is None else peak_bytes(graph, widen),
    )


def widen(spec: TensorSpec) -> int:
    """Bytes of a tensor in fp64; integers keep their width."""
    is_real = spec.dtype.startswith(("float", "bfloat"))
    return spec.numel * (8 if is_real else itemsize(spec.dtype))


def _wide(specs: Sequence[TensorSpec]) -> int:
    return sum(widen(spec) for spec in specs)


def _bytes(specs: Sequence[TensorSpec]) -> int:
    return sum(spec.nbytes for spec in specs)


def _chunked(
    program: Program,
    workload: Workload | None,
    graph: OpGraph | None,
    estimate: MemoryEstimate,
    available: int,
) -> ReferencePlan | None:
    if graph is None or not graph.row_inputs:
        return None
    rows = next(n.outputs[0].shape[0] for n in graph.inputs if int(n.op) == graph.row_inputs[0])
    chunks = 2
    while chunks <= rows and estimate.in_chunks(chunks) > available:
        chunks *= 2
    step = -(-rows // chunks)
    if chunks > rows or not same_operators(program, workload, graph, graph.row_inputs, step):
        return None
    return ReferencePlan(
        mode="chunked",
        chunks=-(-rows // step),
        rows=rows,
        of_rows=rows,
        positions=graph.row_inputs,
        label=f"fp64 reference computed in {-(-rows // step)} chunks of {step} rows",
        estimate=estimate,
    )


def _reduced(
    program: Program,
    workload: Workload | None,
    graph: OpGraph | None,
    estimate: MemoryEstimate,
    available: int,
) -> ReferencePlan | None:
    for positions, of_rows in _leading(program, workload):
        rows = of_rows // 2
        while rows:
            found = _with_rows(program, workload, positions, rows)
            if found.outputs is None:  # forward does not take fewer rows of just these inputs
                break
            share = rows / of_rows
            part = estimate_from(found, None)
            inner = estimate.fp64_intermediates * share
            needed = estimate.own + part.fp64 - part.fp64_intermediates + int(inner)
            if needed <= available:
                return _reduced_plan(estimate, available, positions, rows, of_rows)
            rows //= 2
    return None


def _reduced_plan(
    estimate: MemoryEstimate, available: int, positions: tuple[int, ...], rows: int, of_rows: int
) -> ReferencePlan:
    return ReferencePlan(
        mode="reduced",
        rows=rows,
        of_rows=of_rows,
        positions=positions,
        label=(
            f"compared on {rows} of {of_rows} rows: the whole needs {size_text(estimate.total)}, "
            f"{size_text(available)} are available"
        ),
        estimate=estimate,
    )


def _with_rows(
    program: Program, workload: Workload | None, positions: tuple[int, ...], rows: int
) -> Shapes:
    return shapes(program, workload, lambda inputs: cut_rows(inputs, positions, 0, rows))


def _leading(program: Program, workload: Workload | None) -> Iterator[tuple[tuple[int, ...], int]]:
    """Choices of inputs to cut: all that agree with the first in dimension 0, then it alone."""
    with silence():
        flat = [leaf for _, leaf in leaves(fake_inputs(shadow(program), workload))]
    ranked = [n for n, leaf in enumerate(flat) if getattr(leaf, "ndim", 0)]
    if not ranked:
        return
    rows = int(flat[ranked[0]].shape[0])
    alike = tuple(n for n in ranked if flat[n].shape[0] == rows)
    yield alike, rows
    if len(alike) > 1:
        yield alike[:1], rows
