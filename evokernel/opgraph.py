"""Owns the reference as a small operator graph: family, shapes, work and fingerprint."""

from typing import Literal

from evokernel.frozen import Frozen

Scalar = bool | int | float | str | None


class TensorSpec(Frozen):
    """Shape and dtype of one tensor."""

    shape: tuple[int, ...]
    """Sizes, outermost first."""
    dtype: str
    """Name without the `torch.` prefix, e.g. `float32`."""
    strides: tuple[int, ...] = ()
    """In elements; empty for contiguous."""


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
