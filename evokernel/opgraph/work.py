"""Owns the counting of work: floating-point operations, and bytes that nobody avoids."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import prod

from evokernel.opgraph import Node, OpGraph, Ref, TensorSpec
from evokernel.opgraph.operators import PARTIAL, kind_of

PER_ELEMENT = {
    "softmax": 5,  # maximum, subtract, exponential, sum, divide
    "log_softmax": 5,
    "logsumexp": 4,
    "layer_norm": 8,  # mean (1), variance (3), normalise (2), scale and shift (2)
    "group_norm": 8,
    "instance_norm": 8,
    "batch_norm": 8,
    "rms_norm": 4,  # square, sum, normalise, scale
    "var": 4,
    "std": 4,
    "var_mean": 4,
    "std_mean": 4,
    "linalg_vector_norm": 2,
    "cosine_similarity": 6,  # three products of the two operands, three sums
    "cross_entropy_loss": 5,
    "mse_loss": 3,
    "l1_loss": 3,
    "smooth_l1_loss": 4,
    "huber_loss": 4,
    "kl_div": 4,
    "triplet_margin_loss": 6,  # two distances: subtract, square, sum
    "binary_cross_entropy": 5,
    "binary_cross_entropy_with_logits": 6,
}
"""Operations per input element of composite operators, as their textbook formula needs them."""

Specs = dict[str, tuple[TensorSpec, ...]]


def flops(nodes: Sequence[Node]) -> int:
    """Floating-point operations of one call.

    A point-wise operator counts one per element of its result, transcendental or not; a reduction
    one per element of its input; a contraction two per multiply-add; data movement nothing.
    """
    specs = {node.name: node.outputs for node in nodes}
    return sum(_node_flops(node, specs) for node in nodes if node.kind == "call")


def _node_flops(node: Node, specs: Specs) -> int:
    read = [specs[ref.node][ref.index] for ref in node.refs()]
    kind = kind_of(node.op)
    written = node.outputs[0].numel if node.outputs else 0
    first = read[0].numel if read else 0
    if kind in {"view", "factory", "movement"} or node.op == "to":
        return 0
    if kind in {"contraction", "convolution", "attention", "recurrent"}:
        return _contraction_flops(node, kind, read, written)
    if kind == "pooling":
        return _pooling_flops(node, first, written)
    if kind in {"reduction", "softmax", "normalization", "loss", "scan"}:
        return PER_ELEMENT.get(node.op, 1) * first
    return written


def _pooling_flops(node: Node, read: int, written: int) -> int:
    """One per element of every window; adaptive windows are taken to share out the input."""
    window = node.argument("kernel_size")
    if not isinstance(window, tuple):
        return read
    rank = next(int(letter) for letter in node.op if letter.isdigit())
    sizes = window if len(window) == rank else window * rank
    return written * prod(size for size in sizes if isinstance(size, int))


def _contraction_flops(node: Node, kind: str, read: list[TensorSpec], written: int) -> int:
    if kind == "attention":
        query, key = read[0].shape, read[1].shape
        scores = prod(query[:-1]) * key[-2]
        return 2 * scores * query[-1] + 5 * scores + 2 * scores * read[2].shape[-1]
    if kind == "convolution":
        transposed = "transpose" in node.op
        weight = read[1].shape
        bias = written if len(read) > 2 else 0
        return 2 * prod(weight[1:]) * (read[0].numel if transposed else written) + bias
    if kind == "recurrent":
        steps = read[0].numel // read[0].shape[-1]
        return 2 * steps * sum(spec.numel for spec in read[1:] if len(spec.shape) == 2)
    if node.op == "einsum":
        return 2 * _einsum_space(str(node.args[0]), read)
    if node.op in {"addmm", "baddbmm", "addbmm", "addmv"}:
        return 2 * written * read[1].shape[-1] + written
    if node.op == "outer":
        return written
    bias = written if node.op == "linear" and len(read) > 2 else 0
    return 2 * written * read[0].shape[-1] + bias


def _einsum_space(equation: str, read: list[TensorSpec]) -> int:
    """Product of the sizes of all indices, without those of an ellipsis."""
    sizes: dict[str, int] = {}
    for term, spec in zip(equation.partition("->")[0].split(","), read, strict=True):
        head, _, tail = term.replace(" ", "").partition("...")
        sizes |= dict(zip(head, spec.shape, strict=False))
        sizes |= dict(zip(reversed(tail), reversed(spec.shape), strict=False))
    return prod(sizes.values())


def min_bytes(nodes: Sequence[Node], results: Sequence[Ref]) -> int:
    """Bytes that any implementation moves.

    Every input, parameter and constant is read once, as far as the operators on it need it (of an
    embedding table only the rows looked up); every result is written once, unless it is a view of
    something that came in.
    """
    by_name = {node.name: node for node in nodes}
    wanted: dict[str, int] = defaultdict(int)
    for node in reversed(nodes):
        is_view = kind_of(node.op) == "view"
        some = wanted[node.name] if is_view else sum(spec.nbytes for spec in node.outputs)
        for position, ref in enumerate(node.refs()):
            whole = by_name[ref.node].outputs[ref.index].nbytes
            is_partial = is_view or (position == 0 and node.op in PARTIAL)
            wanted[ref.node] += min(some, whole) if is_partial else whole
    outside = [node for node in nodes if node.kind != "call"]
    read = sum(min(wanted[node.name], node.outputs[0].nbytes) for node in outside)
    made = {ref for ref in results if not _is_view_of_outside(ref, by_name)}
    return read + sum(by_name[ref.node].outputs[ref.index].nbytes for ref in made)


def peak_bytes(graph: OpGraph, size: Callable[[TensorSpec], int]) -> int:
    """Most bytes that intermediate results take at once when the operators run one by one.

    Args:
        graph: The operators, in order.
        size: Bytes of one tensor, e.g. at another precision.
    """
    owner: dict[str, str] = {}
    last: dict[str, int] = {}
    for place, node in enumerate(graph.nodes):
        source = next(node.refs(), None) if kind_of(node.op) == "view" else None
        owner[node.name] = node.name if source is None else owner[source.node]
        last |= {owner[ref.node]: place for ref in node.refs()}
    kept = {owner[ref.node] for ref in graph.results}
    alive: dict[str, int] = {}
    peak = 0
    for place, node in enumerate(graph.nodes):
        if node.kind == "call" and owner[node.name] == node.name and node.name not in kept:
            alive[node.name] = sum(size(spec) for spec in node.outputs)
        peak = max(peak, sum(alive.values()))
        alive = {name: held for name, held in alive.items() if last.get(name, place) > place}
    return peak


def _is_view_of_outside(ref: Ref, by_name: dict[str, Node]) -> bool:
    node = by_name[ref.node]
    if node.kind != "call":
        return True
    source = next(node.refs(), None)
    return (
        kind_of(node.op) == "view" and source is not None and _is_view_of_outside(source, by_name)
    )
