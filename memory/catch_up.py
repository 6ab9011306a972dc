"""Owns how the vector index follows the journal: by the number of the last event it reflects."""

from collections import Counter

from evokernel.frozen import Frozen
from evokernel.memory.events import Vector
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.index import Shift, VectorIndex
from evokernel.memory.shelf import Shelf


class Rebuilt(Frozen):
    """What was made anew."""

    embedded: int
    """Experiences that were embedded."""
    indexed: int
    """Active ones that are in the vector index now."""
    missing: str
    """Why Chroma cannot be used here; empty where it can."""


def pending(shelf: Shelf, watermark: int) -> list[str]:
    """Ids that the index must take in or take out after event `watermark`."""
    return [id for id in shelf.changed_after(watermark) if id in shelf.once_active]


def catch_up(shelf: Shelf, index: VectorIndex) -> None:
    """Bring an open index from its watermark up to the shelf.

    It is made anew where the numbers of items disagree afterwards: then something was lost in it.
    """
    index.write(_shifts(shelf, index.watermark), shelf.watermark)
    wanted = Counter(shelf.cards[id].collection for id in shelf.active())
    if {name: count for name, count in index.counts().items() if count} != wanted:
        index.remove()
        index.open()
        index.write(_shifts(shelf, 0), shelf.watermark)


def _shifts(shelf: Shelf, watermark: int) -> list[Shift]:
    return [
        Shift(id, shelf.cards[id].collection, _vector(shelf, id))
        for id in pending(shelf, watermark)
    ]


def _vector(shelf: Shelf, id: str) -> Vector | None:
    """Only active experiences are in the index."""
    is_active = shelf.statuses[id] is ExperienceStatus.ACTIVE
    return shelf.vector(id) if is_active else None
