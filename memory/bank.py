"""Owns the bounded bank: what of everything that was ever learned may be retrieved.

The journal keeps everything. One new experience for each step means that an experience is shown
about as often as a step has slots, however long one runs, so that most are never judged; a bank
that is bounded per task and as a whole leaves each more evidence.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from evokernel.attempt import Stage
from evokernel.memory.card import Card
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.shelf import Shelf
from evokernel.memory.values import Learner, Value

CONFIDENCE = 1.64
"""Standard deviations up to the bound: one-sided 95 % (ours)."""
JUDGED = 8
"""Rewards by weight from which a bound below 0 is believed (ours)."""
NOTES = frozenset({"technique", "api"})
"""Kinds that people seed: they are never retired."""


class Retirement(NamedTuple):
    """One experience that leaves the bank."""

    experience: str
    reason: str


def upper_bound(value: Value) -> float:
    """The most that a value may be: Q + 1.64 s, with s = 1 / sqrt(n) where the rule has none."""
    spread = value.spread
    if spread is None:
        spread = max(value.visits, 1) ** -0.5
    return value.q + CONFIDENCE * spread


class Bank:
    """Finds what should leave, by the upper bounds of the values (UCB): doubt speaks for a stay.

    Args:
        shelf: Cards and statuses, up to date.
        values: What each is worth.
        task_slots: Most of one task, backend and kind; 0 is no limit.
        size: Most of all; 0 is no limit.
    """

    def __init__(self, shelf: Shelf, values: Learner, task_slots: int, size: int) -> None:
        self._shelf = shelf
        self._values = values
        self._task_slots = task_slots
        self._size = size
        self._left = Counter(map(_niche, self._cards()))

    def surplus(self, tasks: Collection[str] | None = None) -> tuple[Retirement, ...]:
        """What should leave: what harms, duplicates of one task, what is over a limit.

        At least one of each family and kind stays, whatever it is worth, and what is pinned.

        Args:
            tasks: Fingerprints of the tasks whose slots are looked at; None is all.
        """
        gone: dict[str, str] = {}
        for id, reason in self._wanted(tasks, gone):
            card = self._shelf.cards[id]
            if id not in gone and self._left[_niche(card)] > 1:
                self._left[_niche(card)] -= 1
                gone[id] = reason
        return tuple(Retirement(id, reason) for id, reason in gone.items())

    def _wanted(
        self, tasks: Collection[str] | None, gone: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        if self._task_slots or self._size:
            yield from self._harmful()
        if self._task_slots:
            for cards in self._by_task(tasks, gone):
                yield from self._doubles(cards)
                yield from self._over([card for card in cards if card.id not in gone])
        if self._size:
            yield from self._beyond(gone)

    def _harmful(self) -> Iterator[tuple[str, str]]:
        """What is worth less than nothing even by its bound, in every stage that has judged it."""
        for id in self._values.judged(JUDGED):
            if id not in self._shelf.cards or not self._may_leave(self._shelf.cards[id]):
                continue
            bounds = [upper_bound(value) for value in self._judged_values(id)]
            if bounds and max(bounds) < 0:
                yield id, f"harmful: worth at most {max(bounds):+.2f} after many showings"

    def _doubles(self, cards: Sequence[Card]) -> Iterator[tuple[str, str]]:
        """All but the best of what has the same code, kind and techniques."""
        same: defaultdict[tuple[str, tuple[str, ...]], list[Card]] = defaultdict(list)
        for card in cards:
            if card.shape:
                same[card.shape, card.techniques].append(card)
        for group in same.values():
            best, *others = sorted(group, key=self._rank, reverse=True)
            for card in others:
                yield card.id, f"the same code as `{best.id}`"

    def _over(self, cards: Sequence[Card]) -> Iterator[tuple[str, str]]:
        """The least promising of one task and kind; those with a part of their own stay."""
        kept = {card.id for card in _parts(cards)}
        rest = sorted((card for card in cards if card.id not in kept), key=self._rank)
        for card in rest[: max(0, len(cards) - self._task_slots)]:
            yield card.id, f"over the {self._task_slots} of its task and kind: the least promising"

    def _beyond(self, gone: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        cards = [card for card in self._cards() if card.id not in gone]
        surplus = len(cards) - self._size
        if surplus > 0:
            for card in sorted(cards, key=self._rank):
                if card.id not in gone and surplus > 0 and self._left[_niche(card)] > 1:
                    surplus -= 1
                    yield card.id, f"over the {self._size} of the bank: the least promising"

    def _by_task(
        self, tasks: Collection[str] | None, gone: Mapping[str, str]
    ) -> Iterable[list[Card]]:
        groups: defaultdict[tuple[str, str, str], list[Card]] = defaultdict(list)
        for card in self._cards():
            if (tasks is None or card.fingerprint in tasks) and card.id not in gone:
                groups[card.fingerprint, card.backend, card.kind].append(card)
        return list(groups.values())

    def _rank(self, card: Card) -> tuple[float, int]:
        """By the bound in the better of the stages that have judged it, then the newer."""
        values = [self._values.of(card.id, stage) for stage in Stage]
        known = [value for value in values if value.visits] or values
        return max(map(upper_bound, known)), card.seq

    def _judged_values(self, id: str) -> Iterator[Value]:
        for stage in Stage:
            value = self._values.of(id, stage)
            weight = value.visits if value.evidence is None else value.evidence
            if weight >= JUDGED:
                yield value

    def _cards(self) -> Iterator[Card]:
        for id in self._shelf.active():
            card = self._shelf.cards[id]
            if self._may_leave(card):
                yield card

    def _may_leave(self, card: Card) -> bool:
        is_active = self._shelf.statuses[card.id] is ExperienceStatus.ACTIVE
        return is_active and card.kind not in NOTES and card.id not in self._shelf.pinned


def _niche(card: Card) -> tuple[str, str, str]:
    return card.backend, card.family, card.kind


def _parts(cards: Sequence[Card]) -> Iterator[Card]:
    """What stays whatever it is worth: the first, the newest, and the fastest of a task and kind.

    After RoMeRL (arXiv 2608.02508), whose four slots of a task are its most efficient success, the
    first success after a failure, the failure of most use, and the latest failure; the failure of
    most use stays by its rank.
    """
    if cards:
        yield min(cards, key=lambda card: card.seq)
        yield max(cards, key=lambda card: card.seq)
        yield max(cards, key=lambda card: card.gain or 0.0)
