"""Owns `Withdrawal`: what goes when people take experiences back, and what stays."""

from collections.abc import Iterator, Mapping, Sequence

from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience, ExperienceStatus
from evokernel.memory.lineage import Descendant, descendants
from evokernel.memory.retraction import CLAIMS, may_fall, same_source
from evokernel.memory.shelf import Shelf


class Withdrawal(Frozen):
    """What `Memory.forget` withdraws, and what it leaves."""

    named: tuple[str, ...]
    """Ids that were asked for and are not withdrawn yet."""
    same_source: tuple[str, ...] = ()
    """Ids of what else claims something of a candidate that is named: it goes as well."""
    led_to: tuple[Descendant, ...]
    """What was made from them, or while they were shown, and is not withdrawn yet."""
    with_descendants: bool
    """Whether that goes as well."""
    pinned: tuple[str, ...]
    """Ids of pinned descendants: they stay, unless they are named themselves."""
    gone: tuple[str, ...]
    """Ids that were asked for and are withdrawn already."""
    suspects: tuple[str, ...] = ()
    """Ids of what was made from a candidate that goes, directly or not, in any run: it is hidden
    until it was looked at again."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Everything that goes."""
        going = (*self.named, *self.same_source)
        if not self.with_descendants:
            return going
        spared = set(self.pinned)
        return (*going, *(child.id for child in self.led_to if child.id not in spared))


def plan_withdrawal(
    ids: Sequence[str],
    bodies: Mapping[str, Experience],
    shelf: Shelf,
    with_descendants: bool,
) -> Withdrawal:
    """Find what goes with some experiences."""
    is_gone = {id for id in bodies if shelf.statuses[id] is ExperienceStatus.TOMBSTONE}
    named = [id for id in dict.fromkeys(ids) if id not in is_gone]
    twins = {id: None for root in named for id in same_source(bodies[root], bodies.values())}
    twins = {id: None for id in twins if id not in is_gone and id not in named}
    found: dict[str, Descendant] = {}
    for id in (*dict.fromkeys(ids), *twins):
        for child in descendants(id, bodies):
            if child.id not in {*named, *twins} and child.id not in is_gone:
                found.setdefault(child.id, child)
    plan = Withdrawal(
        named=tuple(named),
        same_source=tuple(twins),
        led_to=tuple(found.values()),
        with_descendants=with_descendants,
        pinned=tuple(id for id in found if id in shelf.pinned),
        gone=tuple(id for id in dict.fromkeys(ids) if id in is_gone),
    )
    return plan.model_copy(update={"suspects": tuple(_suspects(plan, bodies, shelf))})


def _suspects(plan: Withdrawal, bodies: Mapping[str, Experience], shelf: Shelf) -> Iterator[str]:
    """Ids of what rests on a candidate that goes, and could be shown so far."""
    spared = {*plan.ids, *plan.pinned}
    roots = (id for id in plan.ids if bodies[id].kind in CLAIMS)
    children = (c.id for id in roots for c in descendants(id, bodies, by_parent_only=True))
    for id in dict.fromkeys(children):
        if id not in spared and may_fall(shelf.statuses[id]):
            yield id
