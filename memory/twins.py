"""Owns which experiences of a pool are the same thing twice: they take one slot together."""

from collections.abc import Sequence
from itertools import combinations

from evokernel.memory.card import Card
from evokernel.memory.journal import Journal
from evokernel.memory.likeness import ALIKE, Sketch, likeness
from evokernel.memory.shelf import Shelf

KEPT = 4096
"""Sketches that are kept at hand, 256 bytes each."""


class Twins:
    """Recognises duplicates by content, by the canonical form of the source, and by likeness.

    All of the same kind, backend and techniques: two kernels that differ in one number may differ
    in just the technique that matters. Likeness does not go on from pair to pair.
    """

    def __init__(self, journal: Journal, shelf: Shelf) -> None:
        self._journal = journal
        self._shelf = shelf
        self._sketches: dict[str, Sketch] = {}

    def keys(self, ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """Of each experience: by what it equals others, and how alike that is, in words."""
        cards = [self._shelf.cards[id] for id in ids]
        keys = {card.id: {f"content {card.content}": "the same content as"} for card in cards}
        groups: dict[tuple[object, ...], list[Card]] = {}
        for card in cards:
            if card.shape:
                group = self._group(card)
                keys[card.id][f"shape {group} {card.shape}"] = "the same code as"
                groups.setdefault(group, []).append(card)
        for cards in groups.values():
            if len({card.shape for card in cards}) > 1:
                self._add_near(cards, keys)
        return keys

    def _add_near(self, cards: Sequence[Card], keys: dict[str, dict[str, str]]) -> None:
        sketches = self._sketched([card.id for card in cards])
        for one, two in combinations(cards, 2):
            if likeness(sketches[one.id], sketches[two.id]) >= ALIKE:
                for card in (one, two):
                    keys[card.id][f"near {one.id} {two.id}"] = "almost the same code as"

    def _group(self, card: Card) -> tuple[object, ...]:
        return card.kind, card.backend, tuple(sorted(self._shelf.traits(card.id).techniques))

    def _sketched(self, ids: Sequence[str]) -> dict[str, Sketch]:
        missing = [id for id in ids if id not in self._sketches]
        if len(self._sketches) + len(missing) > KEPT:
            self._sketches.clear()
            missing = list(ids)
        if missing:
            self._sketches |= self._journal.sketches(missing)
        return self._sketches
