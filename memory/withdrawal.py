"""Owns `Withdrawal`: what goes when people take experiences back, and what stays."""

from collections.abc import Mapping, Sequence

from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience, ExperienceStatus
from evokernel.memory.lineage import Descendant, descendants
from evokernel.memory.shelf import Shelf


class Withdrawal(Frozen):
    """What `Memory.forget` withdraws, and what it leaves."""

    named: tuple[str, ...]
    """Ids that were asked for and are not withdrawn yet."""
    led_to: tuple[Descendant, ...]
    """What was made from them, or while they were shown, and is not withdrawn yet."""
    with_descendants: bool
    """Whether that goes as well."""
    pinned: tuple[str, ...]
    """Ids of pinned descendants: they stay, unless they are named themselves."""
    gone: tuple[str, ...]
    """Ids that were asked for and are withdrawn already."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Everything that goes."""
        if not self.with_descendants:
            return self.named
        spared = set(self.pinned)
        return (*self.named, *(child.id for child in self.led_to if child.id not in spared))


def plan_withdrawal(
    ids: Sequence[str],
    bodies: Mapping[str, Experience],
    shelf: Shelf,
    with_descendants: bool,
) -> Withdrawal:
    """Find what goes with some experiences."""
    is_gone = {id for id in bodies if shelf.statuses[id] is ExperienceStatus.TOMBSTONE}
    named = dict.fromkeys(ids)
    found: dict[str, Descendant] = {}
    for id in named:
        for child in descendants(id, bodies):
            if child.id not in named and child.id not in is_gone:
                found.setdefault(child.id, child)
    return Withdrawal(
        named=tuple(id for id in named if id not in is_gone),
        led_to=tuple(found.values()),
        with_descendants=with_descendants,
        pinned=tuple(id for id in found if id in shelf.pinned),
        gone=tuple(id for id in named if id in is_gone),
    )
