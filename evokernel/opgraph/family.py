"""Owns the family of a graph: which coarse kind of operator it is, however it is spelt."""

from collections.abc import Sequence

from evokernel.opgraph import Node, Ref
from evokernel.opgraph.operators import kind_of

_BY_WEIGHT = (
    "convolution",
    "attention",
    "contraction",
    "loss",
    "scan",
    "softmax",
    "normalization",
    "pooling",
    "reduction",
    "pointwise",
)
"""Kinds in the order in which they decide how a graph is made fast."""


def family(nodes: Sequence[Node], results: Sequence[Ref]) -> str:
    """Name the kind of work that decides how to make the graph fast.

    Returns:
        `convolution`, `attention`, `contraction`, `loss`, `scan`, `softmax`, `normalization`,
        `pooling`, `reduction`, `elementwise` or `other`.
    """
    kinds = {kind_of(node.op) for node in nodes if node.kind == "call"}
    found = next((kind for kind in _BY_WEIGHT if kind in kinds), "other")
    return "elementwise" if found == "pointwise" else found
