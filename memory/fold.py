"""Owns `Fold`: the values as they are now, without what a retraction has discredited."""

from collections.abc import Sequence
from typing import Any

from evokernel.memory import snapshot
from evokernel.memory.events import rewarded, yardstick
from evokernel.memory.journal import Journal
from evokernel.memory.retraction import Discount


class Fold:
    """Carries the saved values on; the whole reward log is read only after a retraction.

    Args:
        journal: Where rewards come from.
        constants: Step size, smallest spread of the rewards, and how they are shared.
    """

    def __init__(self, journal: Journal, constants: snapshot.Constants) -> None:
        self._journal = journal
        self._constants = constants
        self._discount = Discount((), ())
        self.values = snapshot.load(journal, constants)

    def take_in(self, retracted: frozenset[str], rewards: Sequence[Any]) -> None:
        """Learn what any process has written.

        Args:
            retracted: Steps that made what is withdrawn by now.
            rewards: Rows of the rewards since the last time, oldest first.
        """
        self._leave_out(retracted, rewards if retracted else ())
        self.values.fold(rewarded(row) for row in rewards)

    def refit(self) -> snapshot.Refit:
        """Compute every value from the first event, and say which ones come out differently."""
        self.values, report = snapshot.refit(self._journal, self.values)
        return report

    def _leave_out(self, retracted: frozenset[str], rewards: Sequence[Any]) -> None:
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
            self.values = snapshot.load(self._journal, self._constants, steps)
