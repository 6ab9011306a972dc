"""Owns the search for in-place operators that cannot be read as if they were functional."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAY_ALIAS = frozenset(
    {"contiguous", "dropout", "flatten", "reshape", "reshape_as", "to", "type_as"}
)
"""Operators that may return their argument's memory although their schema does not say so."""

HARMLESS = frozenset({"detach_", "requires_grad_"})
"""Operators that end in an underscore and write nothing."""


def written_roots(graph: "torch.fx.Graph") -> tuple[set[Any], bool]:
    """Look at every operator that writes into memory it did not make.

    Returns:
        The placeholders whose memory is written; and whether some memory is written under one name
        and read later under another, so that reading the calls in order would give wrong wiring.
    """
    order = {node: position for position, node in enumerate(graph.nodes)}
    roots: dict[Any, Any] = {}
    names: dict[Any, list[Any]] = defaultdict(list)
    written: set[Any] = set()
    is_hidden = False
    for node in graph.nodes:
        roots[node] = _root(node, roots)
        names[roots[node]].append(node)
        target = _target(node)
        if target is None:
            continue
        written.add(roots[target])
        others = [name for name in names[roots[target]] if name not in (target, node)]
        later = any(order[user] > order[node] for name in others for user in name.users)
        is_hidden = is_hidden or later or not _name(node).endswith("_")
    return {node for node in written if node.op == "placeholder"}, is_hidden


def _name(node: Any) -> str:
    schema = getattr(node.target, "_schema", None)
    return str(schema.name).partition("::")[2] if schema else ""


def _root(node: Any, roots: dict[Any, Any]) -> Any:
    """The node that made the memory which this one returns."""
    source = node.args[0] if node.args and hasattr(node.args[0], "users") else None
    if source is None or node.op != "call_function":
        return node
    is_item = getattr(node.target, "__name__", "") == "getitem"
    return roots[source] if is_item or _name(node) in MAY_ALIAS or _shares(node) else node


def _shares(node: Any) -> bool:
    """Whether the schema says that a result shares memory with an argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info for result in schema.returns)


def _target(node: Any) -> Any:
    """The argument that the operator writes into, if any."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable or _name(node) in HARMLESS:
        return None
    for position, arg in enumerate(schema.arguments):
        if arg.alias_info and arg.alias_info.is_write:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(arg.name)
            return given if hasattr(given, "users") else None
    return None
