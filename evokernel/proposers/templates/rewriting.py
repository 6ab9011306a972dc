"""Owns the writing of new nodes into an operator graph, in the graph's own spelling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evokernel.opgraph import Argument, Node, Ref, TensorSpec
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.symbols import broadcast

PRODUCTS = frozenset({"product", "patch_product"})
"""Operators that only a `Rewriter` writes: of two stacks of matrices, of an image and filters."""


class Rewriter:
    """Collects the nodes of the new graph."""

    def __init__(self, taken: Iterable[str]) -> None:
        """Begin without nodes; the names in `taken` are those of the graph."""
        self.nodes: list[Node] = []
        self._taken = set(taken)

    def node(self, ref: Ref) -> Node:
        """The node behind a reference."""
        return next(node for node in self.nodes if node.name == ref.node)

    def shape(self, ref: Ref) -> tuple[int, ...]:
        """Sizes of a value."""
        return self.node(ref).outputs[ref.index].shape

    def call(
        self, op: str, shape: Sequence[int], dtype: str, hint: str, /, **args: Argument
    ) -> Ref:
        """A new node; `hint` is what a reader would call it."""
        name = hint
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        spec = TensorSpec(shape=tuple(shape), dtype=dtype)
        self.nodes.append(
            Node(
                name=name,
                kind="call",
                op=op,
                args=tuple(args.values()),
                argnames=tuple(args),
                outputs=(spec,),
            )
        )
        return Ref(node=name)

    def finish(self, node: Node) -> None:
        """Let what was written last stand for a call of the graph."""
        last = self.nodes.pop()
        if last.outputs[0].shape != node.outputs[0].shape:
            self.nodes.append(last)
            self.reshape(Ref(node=last.name), node.outputs[0].shape)
            last = self.nodes.pop()
        self.nodes.append(last.model_copy(update={"name": node.name, "outputs": node.outputs}))

    # Ordinary operators, as `opgraph.lowering` spells them.

    def reshape(self, x: Ref, shape: Sequence[int]) -> Ref:
        """The same elements in the same order under other axes."""
        return self._of(x, "reshape", shape, size=tuple(shape))

    def swapped(self, x: Ref) -> Ref:
        """The last two axes the other way round."""
        *front, one, two = self.shape(x)
        rank = len(front)
        return self._of(x, "transpose", (*front, two, one), dim0=rank, dim1=rank + 1)

    def permuted(self, x: Ref, order: Sequence[int]) -> Ref:
        """The axes in another order."""
        shape = self.shape(x)
        if tuple(order) == tuple(range(len(shape))):
            return x
        return self._of(x, "permute", [shape[i] for i in order], dims=tuple(order))

    def flipped(self, x: Ref, dims: Sequence[int]) -> Ref:
        """Axes from their ends."""
        return self._of(x, "flip", self.shape(x), dims=tuple(dims))

    def add(self, x: Ref, other: Argument, hint: str) -> Ref:
        """A sum of the shape of `x`."""
        shape, dtype = self.shape(x), self._dtype(x)
        return self.call("add", shape, dtype, hint, self=x, other=other, alpha=1)

    def scaled(self, x: Ref, factor: float, hint: str) -> Ref:
        """Every element times a number."""
        if factor == 1:
            return x
        return self.call("mul", self.shape(x), self._dtype(x), hint, self=x, other=factor)

    def times(self, x: Ref, other: Ref, hint: str) -> Ref:
        """A product of the shape of `x`, element by element."""
        return self.call("mul", self.shape(x), self._dtype(x), hint, self=x, other=other)

    def padded(self, x: Ref, widths: Sequence[int], hint: str) -> Ref:
        """Zeros around the last axes, as many on either side."""
        if not any(widths):
            return x
        shape = list(self.shape(x))
        for axis, width in enumerate(reversed(widths), start=1):
            shape[-axis] += 2 * width
        pad = tuple(width for each in reversed(widths) for width in (each, each))
        dtype = self._dtype(x)
        return self.call("pad", shape, dtype, hint, self=x, pad=pad, mode="constant", value=None)

    def sliced(self, x: Ref, dim: int, start: int, length: int, step: int = 1) -> Ref:
        """Every `step`-th element of an axis, `length` of them."""
        shape = list(self.shape(x))
        shape[dim] = length
        end = start + (length - 1) * step + 1
        return self._of(x, "slice", shape, dim=dim, start=start, end=end, step=step)

    def row_sums(self, x: Ref, other: Ref, shape: Sequence[int], hint: str) -> Ref:
        """Products of two tensors of a common `shape`, summed along the last axis."""
        dtype = self._dtype(x)
        each = self.call("mul", shape, dtype, f"{hint}_terms", self=x, other=other)
        dim = (len(shape) - 1,)
        return self.call(
            "sum", shape[:-1], dtype, hint, self=each, dim=dim, keepdim=False, dtype=None
        )

    def product(self, left: Ref, right: Ref, hint: str) -> Ref:
        """A stack of matrices times another one; the axes in front are broadcast."""
        dtype = self._dtype(left)
        _require_float(dtype)
        (*one, rows, _), (*two, _, cols) = self.shape(left), self.shape(right)
        shape = (*broadcast([tuple(one), tuple(two)]), rows, cols)
        return self.call("product", shape, dtype, hint, left=left, right=right)

    def patch_product(self, node: Node, image: Ref, weight: Ref, **window: tuple[int, ...]) -> Ref:
        """The windows of images times filters, for a convolution."""
        spec = node.outputs[0]
        _require_float(spec.dtype)
        hint = f"{node.name}_product"
        operands: dict[str, Argument] = {"image": image, "weight": weight, **window}
        return self.call("patch_product", spec.shape, spec.dtype, hint, **operands)

    def _of(self, x: Ref, op: str, shape: Sequence[int], **args: Argument) -> Ref:
        return self.call(op, shape, self._dtype(x), f"{x.node}_{op}", self=x, **args)

    def _dtype(self, ref: Ref) -> str:
        return self.node(ref).outputs[ref.index].dtype

    def is_swapped(self, ref: Ref) -> bool:
        """Whether a matrix lies in memory column by column, as far as its own call tells."""
        node = self.node(ref)
        return node.op in ("transpose", "permute") and node.outputs[0].strides[-1:] != (1,)


def _require_float(dtype: str) -> None:
    if dtype not in ("float32", "float64"):
        raise Unsupported(f"products of {dtype} are not covered")


def tensor(node: Node, name: str) -> Ref:
    """An argument that is a tensor.

    Raises:
        Unsupported: it is none.
    """
    value = node.argument(name)
    if not isinstance(value, Ref):
        raise Unsupported(f"`{name}` = {value} is not covered")
    return value
