"""Owns the lineage of experiences: what was made from what."""

from collections.abc import Mapping

from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience


class Descendant(Frozen):
    """An experience that another one led to."""

    id: str
    depth: int
    """Steps between them."""
    via: str
    """`parent`: made from its candidate. `context`: it was shown when this one was made."""


def descendants(
    root: str, known: Mapping[str, Experience], by_parent_only: bool = False
) -> tuple[Descendant, ...]:
    """Everything made from the experience `root`, directly or not, nearest first.

    Args:
        root: Its id.
        known: Every experience by id.
        by_parent_only: Leave out what was made only while it was shown.
    """
    found: dict[str, Descendant] = {}
    front = [root]
    depth = 0
    while front:
        depth += 1
        fresh = [
            child
            for parent in front
            for child in _children(known[parent], known, depth)
            if child.id != root and child.id not in found
            if child.via == "parent" or not by_parent_only
        ]
        found |= {child.id: child for child in fresh}
        front = list(dict.fromkeys(child.id for child in fresh))
    return tuple(found.values())


def _children(parent: Experience, known: Mapping[str, Experience], depth: int) -> list[Descendant]:
    candidate = parent.origin.candidate
    children = []
    for id, experience in known.items():
        origin = experience.origin
        if candidate and candidate in origin.parents:
            children.append(Descendant(id=id, depth=depth, via="parent"))
        elif parent.id in origin.context:
            children.append(Descendant(id=id, depth=depth, via="context"))
    return children
