"""Owns the comparison of two banks: what one has and the other has not."""

from collections import Counter
from collections.abc import Iterable

from evokernel.frozen import Frozen
from evokernel.memory.exchange import Bank, Held


class Moved(Frozen):
    """An experience that both have, with another status."""

    id: str
    first: str
    second: str


class Difference(Frozen):
    """What two banks do not share."""

    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    moved: tuple[Moved, ...]
    shared: int
    """Experiences that both have with the same status."""
    rewards_first: int
    """Rewarded steps that only the first has."""
    rewards_second: int
    rewards_shared: int
    kinds_first: dict[str, int]
    """What only the first has, by kind."""
    kinds_second: dict[str, int]

    @property
    def is_none(self) -> bool:
        """Whether both hold the same."""
        changed = (self.only_first, self.only_second, self.moved)
        return not any(changed) and not (self.rewards_first or self.rewards_second)


def difference(first: Bank, second: Bank) -> Difference:
    """Compare two banks by ids of experiences and by rewarded steps."""
    one, two = first.held, second.held
    shared = [id for id in one if id in two]
    moved = tuple(
        Moved(id=id, first=one[id].status.value, second=two[id].status.value)
        for id in shared
        if one[id].status is not two[id].status
    )
    rewarded = [{step for table, step in b.events if table == "rewards"} for b in (first, second)]
    only_first = tuple(id for id in one if id not in two)
    only_second = tuple(id for id in two if id not in one)
    return Difference(
        only_first=only_first,
        only_second=only_second,
        moved=moved,
        shared=len(shared) - len(moved),
        rewards_first=len(rewarded[0] - rewarded[1]),
        rewards_second=len(rewarded[1] - rewarded[0]),
        rewards_shared=len(rewarded[0] & rewarded[1]),
        kinds_first=_kinds(one[id] for id in only_first),
        kinds_second=_kinds(two[id] for id in only_second),
    )


def _kinds(held: Iterable[Held]) -> dict[str, int]:
    return dict(sorted(Counter(each.experience.kind for each in held).items()))
