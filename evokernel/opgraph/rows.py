"""Owns the proof that a graph treats the rows of its inputs independently.

Row means: one index of dimension 0. The rules are conservative: an operator without a rule mixes
rows, and so does a size that is written out as a number where rows would be counted.
"""

from collections.abc import Callable, Mapping, Sequence

from evokernel.opgraph import Node, Ref, TensorSpec
from evokernel.opgraph.operators import kind_of


def row_inputs(nodes: Sequence[Node], results: Sequence[Ref]) -> tuple[int, ...] | None:
    """Positions of the inputs that may be cut along dimension 0 together.

    Returns:
        None if no choice of inputs is certain to give the same rows in every result.
    """
    inputs = [node for node in nodes if node.kind == "input" and node.outputs[0].shape]
    for first in inputs[:1]:
        rows = first.outputs[0].shape[0]
        alike = [node for node in inputs if node.outputs[0].shape[0] == rows]
        for chosen in (alike, [first], [n for n in alike if _rank(n) == _rank(first)]):
            if rows > 1 and _Rows(nodes, {node.name for node in chosen}, rows).reach(results):
                return tuple(int(node.op) for node in chosen)
    return None


def _rank(node: Node) -> int:
    return len(node.outputs[0].shape)


class _Rows:
    """Follows the rows through one graph."""

    def __init__(self, nodes: Sequence[Node], cut: set[str], rows: int) -> None:
        self.nodes = nodes
        self.rows = rows
        self.known = {node.name: node for node in nodes}
        self.cut = set(cut)
        """Nodes all of whose outputs carry the rows in dimension 0."""

    def reach(self, results: Sequence[Ref]) -> bool:
        """Whether every result has the rows, and no operator on the way mixes them."""
        for node in self.nodes:
            if node.kind == "call" and any(ref.node in self.cut for ref in node.refs()):
                if not self._keeps(node):
                    return False
                self.cut.add(node.name)
        return all(ref.node in self.cut for ref in results)

    def _keeps(self, node: Node) -> bool:
        if any(not spec.shape or spec.shape[0] != self.rows for spec in node.outputs):
            return False
        rule = _RULES.get(node.op) or _BY_KIND.get(kind_of(node.op))
        return rule is not None and rule(self, node)

    def carries(self, ref: object) -> bool:
        """Whether an argument carries the rows."""
        return isinstance(ref, Ref) and ref.node in self.cut

    def spec(self, ref: Ref) -> TensorSpec:
        """Shape of an argument."""
        return self.known[ref.node].outputs[ref.index]

    def aligned(self, node: Node) -> bool:
        """Rows meet rows: what carries them has full rank, nothing else has that dimension."""
        rank = len(node.outputs[0].shape)
        for ref in node.refs():
            shape = self.spec(ref).shape
            meets = len(shape) == rank and shape[0] != 1
            if meets != self.carries(ref):
                return False
        return True

    def only_first(self, node: Node) -> bool:
        """The first argument carries the rows, the others do not."""
        return [self.carries(ref) for ref in node.refs()] == [
            position == 0 for position, _ in enumerate(node.refs())
        ]


Rule = Callable[[_Rows, Node], bool]


def _along(rows: _Rows, node: Node) -> bool:
    """Works along `dim`, which must not be the rows."""
    dim = node.argument("dim")
    dims = dim if isinstance(dim, tuple) else (dim,)
    return None not in dims and 0 not in dims and rows.only_first(node)


def _joined(rows: _Rows, node: Node) -> bool:
    return node.argument("dim") != 0 and all(rows.carries(ref) for ref in node.refs())


def _swapped(rows: _Rows, node: Node) -> bool:
    return 0 not in (node.argument("dim0"), node.argument("dim1"))


def _permuted(rows: _Rows, node: Node) -> bool:
    dims = node.argument("dims")
    return isinstance(dims, tuple) and dims[:1] == (0,)


def _reshaped(rows: _Rows, node: Node) -> bool:
    """Both shapes begin with the rows (the result was checked), so each row keeps its elements."""
    return rows.spec(next(node.refs())).shape[:1] == (rows.rows,)


def _expanded(rows: _Rows, node: Node) -> bool:
    rank = len(rows.spec(next(node.refs())).shape)
    return rank == len(node.outputs[0].shape) and _reshaped(rows, node)


def _features(rows: _Rows, node: Node) -> bool:
    """Normalises the last dimensions, of which the rows must not be one."""
    shape = node.argument("normalized_shape")
    is_inside = isinstance(shape, tuple) and len(shape) < len(node.outputs[0].shape)
    return is_inside and rows.only_first(node)


def _batched(rows: _Rows, node: Node) -> bool:
    """The first dimension of the first argument is a batch: true from rank three on."""
    return rows.only_first(node) and len(rows.spec(next(node.refs())).shape) > 2


def _batch_norm(rows: _Rows, node: Node) -> bool:
    return node.argument("training") is False and rows.only_first(node)


def _linear(rows: _Rows, node: Node) -> bool:
    return rows.only_first(node) and len(node.outputs[0].shape) > 1


def _vector(rows: _Rows, node: Node) -> bool:
    """A matrix times a vector: the rows are the matrix's."""
    return rows.only_first(node)


def _matmul(rows: _Rows, node: Node) -> bool:
    left, right = list(node.refs())[:2]
    ranks = len(rows.spec(left).shape), len(rows.spec(right).shape)
    if rows.carries(left) and rows.carries(right):
        return ranks[0] == ranks[1] and ranks[0] > 2
    if not rows.carries(left):
        return False
    return ranks[0] > 1 and (ranks[1] <= 2 or ranks[1] < ranks[0] or rows.spec(right).shape[0] == 1)


def _attention(rows: _Rows, node: Node) -> bool:
    query, key, value, *mask = node.refs()
    if not all(rows.carries(ref) and len(rows.spec(ref).shape) > 2 for ref in (query, key, value)):
        return False
    rank = len(node.outputs[0].shape)
    shapes = [(rows.carries(ref), rows.spec(ref).shape) for ref in mask]
    return node.argument("dropout_p") == 0 and all(
        is_cut == (len(shape) == rank and shape[0] != 1) for is_cut, shape in shapes
    )


def _unreduced(rows: _Rows, node: Node) -> bool:
    """A loss per element; `reduction` 0 means none."""
    return node.argument("reduction") == 0 and rows.aligned(node)


def _looked_up(rows: _Rows, node: Node) -> bool:
    table, indices = node.refs()
    return rows.carries(indices) and not rows.carries(table)


def _gathered(rows: _Rows, node: Node) -> bool:
    return node.argument("dim") != 0 and all(rows.carries(ref) for ref in node.refs())


def _padded(rows: _Rows, node: Node) -> bool:
    pad = node.argument("pad")
    return isinstance(pad, tuple) and len(pad) < 2 * len(node.outputs[0].shape)


def _convolved(rows: _Rows, node: Node) -> bool:
    """The input has a batch dimension: as many dimensions as the weight."""
    source, weight = list(node.refs())[:2]
    same = len(rows.spec(source).shape) == len(rows.spec(weight).shape)
    return same and rows.only_first(node)


_RULES: Mapping[str, Rule] = {
    "argmax": _along,
    "argmin": _along,
    "batch_norm": _batch_norm,
    "bmm": _matmul,
    "cat": _joined,
    "chunk": _along,
    "contiguous": _reshaped,
    "embedding": _looked_up,
    "expand": _expanded,
    "flatten": _reshaped,
    "gather": _gathered,
    "group_norm": _linear,
    "instance_norm": _linear,
    "layer_norm": _features,
    "linear": _linear,
    "matmul": _matmul,
    "mm": _matmul,
    "mv": _vector,
    "pad": _padded,
    "permute": _permuted,
    "reshape": _reshaped,
    "rms_norm": _features,
    "scaled_dot_product_attention": _attention,
    "select": _along,
    "slice": _along,
    "split": _along,
    "split_with_sizes": _along,
    "squeeze": _reshaped,
    "stack": _joined,
    "transpose": _swapped,
    "tril": _batched,
    "triu": _batched,
    "unflatten": _along,
    "unsqueeze": _along,
    "view": _reshaped,
}
_BY_KIND: Mapping[str, Rule] = {
    "convolution": _convolved,
    "loss": _unreduced,
    "pointwise": _Rows.aligned,
    "pooling": _batched,
    "reduction": _along,
    "scan": _along,
    "softmax": _along,
}
