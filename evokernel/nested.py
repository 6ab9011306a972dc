"""Owns nested values: what `forward` takes and returns, as leaves with a path each."""

import copy
from collections.abc import Callable
from typing import Any


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """Flatten lists, tuples and dictionaries, depth first in their own order.

    Returns:
        Pairs of path, e.g. `1.hidden`, and leaf; anything that is not a container is a leaf.
    """
    items = _items(tree)
    if items is None:
        return [(path, tree)]
    dot = f"{path}." if path else ""
    return [leaf for key, value in items for leaf in leaves(value, f"{dot}{key}")]


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same nesting with every leaf changed, visited in the order of `leaves`."""
    if isinstance(tree, dict):
        changed = copy.copy(tree)  # keeps what a subclass knows besides, e.g. a default factory
        for key, value in tree.items():
            changed[key] = map_leaves(change, value)
        return changed
    if isinstance(tree, list | tuple):
        values = [map_leaves(change, value) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return change(tree)


def _items(tree: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(tree, dict):
        return list(tree.items())
    if isinstance(tree, list | tuple):
        return list(enumerate(tree))
    return None
