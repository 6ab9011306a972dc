"""Owns `Stock`: what was costly to make, kept as long as memory for it lasts."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Held = TypeVar("Held")


class Stock(Generic[Held]):
    """Keeps made things up to a number of bytes; what was used longest ago makes room.

    Args:
        budget_bytes: How much may be held; the thing asked for last stays, however large.
        size: Bytes of one thing.
        discard: Called with each thing that makes room.
    """

    def __init__(
        self,
        budget_bytes: int,
        size: Callable[[Held], int],
        discard: Callable[[Held], None] = lambda thing: None,
    ) -> None:
        self._budget = budget_bytes
        self._size = size
        self._discard = discard
        self._held: OrderedDict[str, Held] = OrderedDict()

    def get(self, name: str, make: Callable[[], Held]) -> Held:
        """The thing of that name, made now if it is not there."""
        if name not in self._held:
            self._held[name] = make()
            self._make_room()
        self._held.move_to_end(name)
        return self._held[name]

    def clear(self) -> None:
        """Discard everything."""
        while self._held:
            self._discard(self._held.popitem()[1])

    def _make_room(self) -> None:
        total = sum(self._size(thing) for thing in self._held.values())
        while total > self._budget and len(self._held) > 1:
            _, thing = self._held.popitem(last=False)
            total -= self._size(thing)
            self._discard(thing)
