"""Owns the search behind a pool: exact for few, through the vector index for many."""

from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.index import VectorIndex
from evokernel.memory.journal import Vector
from evokernel.memory.shelf import Shelf

SPARE = 4
"""So many times K are fetched from the index: filters apply to what comes back (ours)."""


def nearest(
    shelf: Shelf, index: VectorIndex | None, vector: Vector, ids: list[str], k: int
) -> list[tuple[str, float]]:
    """The `k` of `ids` most similar to `vector`, with their cosine similarity, best first.

    Args:
        shelf: Cards and statuses, up to date.
        index: An open vector index that is up to date, or None to compare with every one.
        vector: Unit vector of the query, shape (dimension,), float32.
        ids: What may be shown, after every hard filter.
        k: How many at most.
    """
    if index is None or k <= 0:
        return shelf.nearest(vector, ids, k)
    indexed = {id for id in ids if shelf.statuses[id] is ExperienceStatus.ACTIVE}
    collections = sorted({shelf.cards[id].collection for id in indexed})
    found = [
        (id, similarity)
        for id, similarity in index.search(vector, collections, SPARE * k)
        if id in indexed
    ]
    if len(found) < min(k, len(indexed)):
        # A filter took too many, or the graph of the index did not reach them: look at all.
        return shelf.nearest(vector, ids, k)
    own = shelf.nearest(vector, [id for id in ids if id not in indexed], k)
    return sorted([*found, *own], key=lambda pair: (-pair[1], pair[0]))[:k]
