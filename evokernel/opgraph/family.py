"""Owns the family of a graph: which coarse kind of operator it is, however it is spelt."""

from collections.abc import Iterator, Sequence

from evokernel.opgraph import Node, Ref
from evokernel.opgraph.operators import kind_of

_BY_WEIGHT = (
    *("recurrent", "convolution", "attention", "contraction", "loss", "scan"),
    *("softmax", "normalization", "pooling", "reduction", "pointwise"),
)
"""Kinds in the order in which they decide how a graph is made fast."""

_EXPONENTIALS = frozenset({"exp", "exp2", "logsumexp"})


def family(nodes: Sequence[Node], results: Sequence[Ref]) -> str:
    """Name the kind of work that decides how to make the graph fast.

    A softmax or a normalisation that is written out in single operators is recognised by what it
    does: it reduces, and brings the reduced values back to the shape that was reduced.

    Returns:
        `recurrent`, `convolution`, `attention`, `contraction`, `loss`, `scan`, `softmax`,
        `normalization`, `pooling`, `reduction`, `elementwise` or `other`.
    """
    kinds = _Kinds(nodes, results).found()
    found = next((kind for kind in _BY_WEIGHT if kind in kinds), "other")
    return "elementwise" if found == "pointwise" else found


class _Kinds:
    """The kinds of a graph's operators, and those that several operators make together."""

    def __init__(self, nodes: Sequence[Node], results: Sequence[Ref]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.results = results

    def found(self) -> set[str]:
        calls = [node for node in self.nodes.values() if node.kind == "call"]
        kinds = [kind_of(node.op) for node in calls]
        for reduction in self._brought_back():
            is_softmax = reduction.op in _EXPONENTIALS or self._reduces_exponentials(reduction)
            kinds.append("softmax" if is_softmax else "normalization")
        if "softmax" in kinds and kinds.count("contraction") > 1:
            kinds.append("attention")
        if self._is_loss():
            kinds.append("loss")
        return set(kinds)

    def _is_loss(self) -> bool:
        """Everything is compared with something and comes down to single numbers."""
        inputs = sum(node.kind == "input" for node in self.nodes.values())
        return inputs > 1 and all(
            self.nodes[ref.node].outputs[ref.index].numel == 1 for ref in self.results
        )

    def _brought_back(self) -> Iterator[Node]:
        """Reductions whose result is broadcast again."""
        carried: dict[str, set[str]] = {}
        for node in self.nodes.values():
            kind = kind_of(node.op) if node.kind == "call" else ""
            if kind in {"reduction", "scan"}:
                carried[node.name] = {node.name} if kind == "reduction" else set()
                continue
            carried[node.name] = set()
            if kind not in {"pointwise", "view"}:
                continue
            for ref in node.refs():
                grows = node.outputs[0].numel > self.nodes[ref.node].outputs[ref.index].numel
                if grows:
                    yield from (self.nodes[name] for name in sorted(carried[ref.node]))
                else:
                    carried[node.name] |= carried[ref.node]

    def _reduces_exponentials(self, reduction: Node) -> bool:
        """Whether what is reduced comes out of an exponential, but for point-wise operators."""
        waiting = [ref.node for ref in reduction.refs()]
        seen: set[str] = set()
        while waiting:
            node = self.nodes[waiting.pop()]
            if node.op in _EXPONENTIALS:
                return True
            if node.name not in seen and kind_of(node.op) in {"pointwise", "view"}:
                waiting += [ref.node for ref in node.refs()]
            seen.add(node.name)
        return False
