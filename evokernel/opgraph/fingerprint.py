"""Owns the fingerprint of a graph: equal for the same task under another name."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence

from evokernel.opgraph import Argument, Node, Ref


def fingerprint(nodes: Sequence[Node], results: Sequence[Ref]) -> str:
    """Hash the graph without names and without the order of independent statements.

    Every node gets a label from what it computes (its operator, attributes, shapes and the labels
    of its arguments), then a second one from where its values go; both directions together tell
    a parameter that is used twice from two parameters of one shape.

    Returns:
        16 hex digits.
    """
    below: dict[str, str] = {}
    for node in nodes:
        below[node.name] = _digest(_meaning(node, below))
    uses: dict[str, list[str]] = defaultdict(list)
    for position, ref in enumerate(results):
        uses[ref.node].append(f"result {position} {ref.index}")
    above: list[str] = []
    for node in reversed(nodes):
        label = _digest([below[node.name], *sorted(uses[node.name])])
        above.append(label)
        for place, ref in enumerate(node.refs()):
            place = 0 if node.op in COMMUTATIVE else place
            uses[ref.node].append(f"{label} {place} {ref.index}")
    return _digest(sorted(above))[:16]


COMMUTATIVE = frozenset(
    {"add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or"}
)
"""Operators whose first two arguments may be swapped."""


def _meaning(node: Node, below: dict[str, str]) -> list[str]:
    outputs = [f"{spec.shape}{spec.dtype}" for spec in node.outputs]
    if node.kind != "call":
        where = node.op if node.kind == "input" else repr(node.value)
        return ["input" if node.kind == "input" else "state", where, *outputs]
    args = [_argument_label(arg, below) for arg in node.args]
    if node.op in COMMUTATIVE and node.argument("alpha", 1) == 1:
        args[:2] = sorted(args[:2])
    return [node.op, *args, *outputs]


def _argument_label(arg: Argument, below: dict[str, str]) -> str:
    if isinstance(arg, Ref):
        return f"{below[arg.node]}:{arg.index}"
    if isinstance(arg, tuple):
        return "(" + ",".join(_argument_label(item, below) for item in arg) + ")"
    # 1 and 1.0 mean the same to an operator; True does not.
    if isinstance(arg, int | float) and not isinstance(arg, bool):
        return repr(float(arg))
    return repr(arg)


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
