"""Owns the reference as a small operator graph: family, shapes, work and fingerprint."""

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from pydantic import field_validator

from evokernel.frozen import Frozen

if TYPE_CHECKING:
    from evokernel.program import Program
    from evokernel.task import Workload

Scalar = bool | int | float | str | None


class TensorSpec(Frozen):
    """Shape and dtype of one tensor."""

    shape: tuple[int, ...]
    """Sizes, outermost first."""
    dtype: str
    """Name without the `torch.` prefix, e.g. `float32`."""
    strides: tuple[int, ...] = ()
    """In elements; empty for contiguous."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that its distinct elements take; a broadcast dimension (stride 0) counts once."""
        steps = self.strides or (1,) * len(self.shape)
        distinct = prod(size for size, step in zip(self.shape, steps, strict=True) if step)
        return (distinct if self.numel else 0) * itemsize(self.dtype)


class Ref(Frozen):
    """An argument that is the output of another node."""

    node: str
    """Name of the node."""
    index: int = 0
    """Which of its outputs."""


Argument = Ref | Scalar | tuple["Ref | Scalar", ...]


class Node(Frozen):
    """One operator call, or one value that comes from outside."""

    name: str
    """Unique within the graph."""
    kind: Literal["input", "parameter", "constant", "call"]
    """`input` in the order of forward's arguments; `parameter` covers buffers too."""
    op: str
    """Canonical name without namespace and overload, e.g. `add`, `softmax`, `layer_norm`; for
    values from outside the input's position or the parameter's qualified name."""
    args: tuple[Argument, ...] = ()
    """Positional arguments, defaults filled in, so that position alone tells the meaning."""
    argnames: tuple[str, ...] = ()
    """Schema name of each argument."""
    outputs: tuple[TensorSpec, ...] = ()
    """What it returns; empty for non-tensors."""
    value: bool | int | float | None = None
    """The value of a one-element constant that no attribute of the module holds."""

    @field_validator("args", mode="before")
    @classmethod
    def _infinities_from_json(cls, args: Any) -> Any:
        return tuple(_number(arg) for arg in args)

    def argument(self, name: str, default: Argument = None) -> Argument:
        """The argument that the schema calls `name`, or `default` if there is none."""
        return dict(zip(self.argnames, self.args, strict=True)).get(name, default)

    def refs(self) -> Iterator[Ref]:
        """Every argument that another node makes, in order, those inside of tuples included."""
        for arg in self.args:
            for item in arg if isinstance(arg, tuple) else (arg,):
                if isinstance(item, Ref):
                    yield item


class OpGraph(Frozen):
    """The operators of a reference for one workload, in execution order."""

    nodes: tuple[Node, ...]
    """Topologically sorted."""
    results: tuple[Ref, ...]
    """What forward returns, flattened."""
    source: Literal["export", "fx"]
    """How it was captured."""
    flops: int
    """Floating-point operations of one call; a fused multiply-add counts two."""
    min_bytes: int
    """Bytes that any implementation moves: what comes in read once, what goes out written once."""
    family: str
    """Coarse kind: `elementwise`, `softmax`, `normalization`, `reduction`, `scan`, `loss`, ..."""
    fingerprint: str
    """Hash of operators, wiring, shapes and dtypes without names: knows a renamed task again."""
    row_inputs: tuple[int, ...] | None = None
    """Positions of the inputs whose rows (dimension 0) go into the same rows of every output and
    into no others, so that it may be computed piece by piece; None where that is not known."""

    def node(self, name: str) -> Node:
        """The node of that name.

        Raises:
            KeyError: there is none.
        """
        return next(node for node in self.nodes if node.name == name)

    def spec(self, ref: Ref) -> TensorSpec:
        """Shape and dtype of a value."""
        return self.node(ref.node).outputs[ref.index]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The tensors that forward takes, in order; those that it does not use are left out."""
        return tuple(node for node in self.nodes if node.kind == "input")

    @property
    def calls(self) -> tuple[Node, ...]:
        """The operators, in order."""
        return tuple(node for node in self.nodes if node.kind == "call")


class CaptureFailed(Exception):
    """The reference could not be captured; a run goes on without what a graph adds."""


def capture(program: "Program", workload: "Workload | None" = None) -> OpGraph:
    """Record the operators that the reference runs for one workload.

    Composite operators (softmax, layer_norm, gelu, linear, ...) stay whole; their spelling is that
    of `evokernel.opgraph.lowering`. Inputs are made for their shapes only, nothing is computed
    unless the fall-back is needed. The first capture of a process imports torch.export (seconds).

    Args:
        program: The executed task.
        workload: One of its workloads; None is the first.

    Raises:
        CaptureFailed: no tracer works on this file; the message says why, in one paragraph.
        TaskError: the file does not run at all.
    """
    from evokernel.opgraph.tracing import trace

    return trace(program, workload)


def same_operators(
    program: "Program",
    workload: "Workload | None",
    graph: OpGraph,
    positions: tuple[int, ...],
    rows: int,
) -> bool:
    """Whether the reference runs the operators of `graph` also on fewer rows.

    It would not if it divides by the number of rows, say, which a graph shows as a plain number.

    Args:
        program: The executed task.
        workload: The workload that `graph` was captured for.
        graph: Its operators.
        positions: Which of forward's flattened arguments are cut along dimension 0.
        rows: How many rows are left.
    """
    from evokernel.opgraph.tracing import trace_rows

    return trace_rows(program, workload, graph, positions, rows)


def rows_independent(graph: OpGraph) -> bool:
    """Whether chunks along dimension 0 give the same results; False where that is not certain."""
    return graph.row_inputs is not None


def itemsize(dtype: str) -> int:
    """Bytes per element of a dtype, e.g. 4 for `float32`."""
    if dtype == "bool":
        return 1
    digits = "".join(c for c in dtype.partition("_")[0].partition("8_")[0] if c.isdigit())
    bits = 8 if dtype.startswith("float8") else int(digits[:3] or 8)
    return max(1, bits // 8)


def _number(arg: Any) -> Any:
    """JSON has no infinities: records write them as text, which no operator takes."""
    if isinstance(arg, str) and arg in {"Infinity", "-Infinity", "NaN"}:
        return float(arg)
    return tuple(_number(item) for item in arg) if isinstance(arg, list | tuple) else arg
