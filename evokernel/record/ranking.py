"""Owns `Ranking`: which attempt of a run is the best so far, without looking at all again."""

from collections.abc import Mapping, Sequence

from evokernel.attempt import Attempt
from evokernel.evaluation import Promotion
from evokernel.record.entries import lead


class Ranking:
    """The best attempt under the answers of so many batches of promotions."""

    def __init__(self, batches: int, second_look: Mapping[str, Promotion]) -> None:
        self.batches = batches
        """How many batches were answered; another number needs another ranking."""
        self.best: Attempt | None = None
        """The fastest feasible attempt whose kernel no promotion has refuted, or None."""
        self._second_look = second_look
        self._lead = 0.0
        self._seen = 0

    def take_in(self, attempts: Sequence[Attempt]) -> None:
        """Compare what has been added since the last time; `attempts` is all of them, in order."""
        for attempt in attempts[self._seen :]:
            ratio = lead(attempt, self._second_look.get(attempt.proposal.candidate.sha))
            # The first of equals: an attempt that repeats another one's source changes nothing.
            if ratio and ratio > self._lead:
                self.best, self._lead = attempt, ratio
        self._seen = len(attempts)
