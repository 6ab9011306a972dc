"""Owns the search behind a pool: exact for few, through the vector index for many."""

from collections.abc import Collection

from evokernel.attempt import Stage
from evokernel.memory.events import Vector
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.index import VectorIndex
from evokernel.memory.retrieval import Query
from evokernel.memory.shelf import Shelf

SPARE = 4
"""So many times K are fetched from the index: filters apply to what comes back (ours)."""


def neighbours(
    shelf: Shelf,
    index: VectorIndex | None,
    query: Query,
    vector: Vector,
    k: int,
    holdout: Collection[str],
) -> list[tuple[str, float]]:
    """The `k` most similar experiences that may be shown, with cosine similarity, best first.

    Pinned ones that may be shown are there as well, be they among the `k` or not.

    Args:
        shelf: Cards and statuses, up to date.
        index: An open vector index, or None to compare with every experience. What changed after
            its watermark is compared exactly.
        query: For which step.
        vector: Its unit vector, shape (dimension,), float32.
        k: How many at most.
        holdout: Fingerprints of tasks whose experiences are never shown.
    """
    own = shelf.allowed(shelf.quarantined(query.run), query, holdout)
    found = _indexed(shelf, index, query, vector, k, holdout) if index is not None else []
    if len(found) < k:
        # A filter took too many, or the graph of the index did not reach them: look at all.
        found = shelf.allowed(shelf.active(query.backend), query, holdout)
    if query.stage is Stage.DRAFT:
        found = shelf.leading(found)
    return _with_pinned(shelf, query, vector, [*found, *own], k, holdout)


def _with_pinned(
    shelf: Shelf, query: Query, vector: Vector, ids: list[str], k: int, holdout: Collection[str]
) -> list[tuple[str, float]]:
    near = shelf.nearest(vector, ids, k)
    if not shelf.pinned:
        return near
    inside = {id for id, _ in near}
    own = set(shelf.quarantined(query.run))
    active = ExperienceStatus.ACTIVE
    may = [id for id in shelf.pinned if shelf.statuses[id] is active or id in own]
    fitting = [id for id in shelf.allowed(may, query, holdout) if id not in inside]
    pairs = near + shelf.nearest(vector, fitting, len(fitting))
    return sorted(pairs, key=lambda pair: (-pair[1], shelf.cards[pair[0]].seq))


def _indexed(
    shelf: Shelf,
    index: VectorIndex,
    query: Query,
    vector: Vector,
    k: int,
    holdout: Collection[str],
) -> list[str]:
    names = [name for name in index.names if name.split("-")[0] in {query.backend, "neutral"}]
    near = [id for id, _ in index.search(vector, names, SPARE * k)]
    fresh = shelf.changed_after(index.watermark)
    active = ExperienceStatus.ACTIVE
    known = [id for id in dict.fromkeys([*near, *fresh]) if shelf.statuses.get(id) is active]
    return shelf.allowed(known, query, holdout)
