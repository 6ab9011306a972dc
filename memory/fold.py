"""Owns `Fold`: the values as they are now, without what a retraction has discredited."""

from collections.abc import Callable, Sequence
from typing import Any

from evokernel.memory import snapshot
from evokernel.memory.events import rewarded, yardstick
from evokernel.memory.journal import Journal
from evokernel.memory.retraction import Discount
from evokernel.memory.shelf import Shelf
from evokernel.memory.values import Learner


class Fold:
    """Carries the saved values on; the whole reward log is read only after a retraction.

    Args:
        journal: Where rewards come from.
        fresh: Makes what learns the values, with nothing learned yet.
    """

    def __init__(self, journal: Journal, fresh: Callable[[], Learner]) -> None:
        self._journal = journal
        self._fresh = fresh
        self._discount = Discount((), ())
        self._regrouped = 0
        self.values = fresh()
        self.is_loaded = False
        """Whether it has begun; until then it reads the rewards that it needs by itself."""

    def take_in(self, shelf: Shelf, rewards: Sequence[Any]) -> None:
        """Learn what any process has written.

        Args:
            shelf: What is known of the experiences, up to date.
            rewards: Rows of the rewards since the last time, oldest first.
        """
        if not self.is_loaded or shelf.regrouped != self._regrouped:
            self._regrouped = shelf.regrouped
            self.is_loaded = True
            self._load(self.values.uncounted, shelf.watermark)
        retracted = shelf.retracted
        self._leave_out(retracted, rewards if retracted else (), shelf.watermark)
        self.values.fold(rewarded(row) for row in rewards if row.seq > self.values.watermark)

    def begin_anew(self) -> None:
        """Weigh all evidence anew, where the rule of the values weighs it."""
        if self.is_loaded and self.values.is_weighing:
            self._load(self.values.uncounted, self.values.watermark)

    def refit(self) -> snapshot.Refit:
        """Compute every value from the first event, and say which ones come out differently."""
        self.values, report = snapshot.refit(self._journal, self.values, self._fresh)
        return report

    def _load(self, uncounted: frozenset[str], upto: int) -> None:
        """Fold what was given up to an event; others may have written more, not yet known here."""
        self.values = snapshot.load(self._journal, self._fresh(), uncounted, upto)

    def _leave_out(self, retracted: frozenset[str], rewards: Sequence[Any], upto: int) -> None:
        known = self._discount
        is_carried_on = retracted == known.retracted and known.take_in(map(yardstick, rewards))
        if not is_carried_on:
            everything = self._journal.yardsticks() if retracted else ()
            self._discount = Discount(retracted, everything)
        steps = self._discount.steps
        if steps == self.values.uncounted:
            return
        if is_carried_on and rewards and rewards[0].seq > self.values.watermark:
            self.values.uncounted = steps  # none of those that are new in it is folded yet
        else:
            self._load(steps, upto)
