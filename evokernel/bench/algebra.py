"""Owns the algebra of a task: products whose results are summed at once.

The sum over the columns of `x @ W` is `x @ W.sum(columns)`: most of the work need not be done, and
a candidate that found that out is not a faster product.
"""

from __future__ import annotations

from evokernel.bench.rehearsal import Finding, Rehearsal
from evokernel.opgraph import Node, OpGraph, Ref
from evokernel.opgraph.operators import CONTRACTION, CONVOLUTION

SUMS = frozenset({"sum", "mean"})
LINEAR = frozenset({"add", "sub", "neg", "to"})
"""Between product and sum; a product with or a quotient by a plain number is linear as well."""
SCALED = frozenset({"mul", "div"})
MATRICES = CONTRACTION - {"einsum", "tensordot", "bilinear", "kron", "outer", "dot", "vdot", "mv"}


def shortcuts(rehearsal: Rehearsal) -> Finding:
    """Whether the operator graph holds a product that is summed over its own rows or columns."""
    graph = rehearsal.graph
    if graph is None:
        return Finding(True, "not asked: the operators are not known")
    found = [
        f"`{summed.op}` over `{product.op}`"
        for summed in graph.calls
        if summed.op in SUMS
        for product in _products(graph, summed)
        if _own_dims(product) & _reduced(summed, len(_shape(graph, summed)))
    ]
    if found:
        return Finding(
            False,
            f"{', '.join(dict.fromkeys(found))}: an operand can be summed first, so that most of "
            "the multiplications need not be done; put something between the two that is not "
            "linear, or return the product",
        )
    return Finding(True, "no product is summed over its own rows or columns")


def _products(graph: OpGraph, summed: Node) -> list[Node]:
    """Products that reach a sum by linear operators only, in the same shape."""
    found, waiting = [], [_first(summed)]
    while waiting:
        ref = waiting.pop()
        if ref is None or graph.spec(ref).shape != _shape(graph, summed):
            continue
        node = graph.node(ref.node)
        if node.op in MATRICES or node.op in CONVOLUTION:
            found.append(node)
        elif node.op in LINEAR or (node.op in SCALED and len(list(node.refs())) == 1):
            waiting += list(node.refs())
    return found


def _own_dims(product: Node) -> set[int]:
    """Dimensions over which one operand of a product could be summed beforehand."""
    rank = len(product.outputs[0].shape)
    if product.op in CONVOLUTION:  # its channels
        return {1}
    return set(range(rank)) if product.op == "linear" else {rank - 1, rank - 2}


def _reduced(summed: Node, rank: int) -> set[int]:
    dims = summed.argument("dim")
    if dims is None or dims == ():
        return set(range(rank))
    listed = dims if isinstance(dims, tuple) else (dims,)
    return {dim % rank for dim in listed if isinstance(dim, int) and rank}


def _first(node: Node) -> Ref | None:
    return next(node.refs(), None)


def _shape(graph: OpGraph, summed: Node) -> tuple[int, ...]:
    first = _first(summed)
    return graph.spec(first).shape if first else ()
