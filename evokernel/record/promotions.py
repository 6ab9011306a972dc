"""Owns `Promotions`: the second looks at claims of a run, and the best attempt under them."""

from collections.abc import Sequence

from evokernel.attempt import Attempt
from evokernel.evaluation import Promotion
from evokernel.record.entries import Batch
from evokernel.record.folder import Folder
from evokernel.record.ranking import Ranking


class Promotions:
    """Batches of answered claims, one file each.

    Args:
        folder: The run's.
        is_writer: Nobody else writes: what this object knows need not be read again.
    """

    def __init__(self, folder: Folder, is_writer: bool) -> None:
        self._folder = folder
        self._is_writer = is_writer
        self._batches: list[tuple[Promotion, ...]] | None = None
        self._ranking = Ranking(0, {})

    def save(self, answers: tuple[Promotion, ...]) -> None:
        """Store the answers to one batch of claims, all or none."""
        number = len(self.batches()) + 1
        text = Batch(answers=answers).model_dump_json(indent=1)
        self._folder.write(f"promotions/{number:03}.json", text)
        if self._batches is not None:
            self._batches.append(answers)

    def batches(self) -> tuple[tuple[Promotion, ...], ...]:
        """Every batch, in order."""
        if self._batches is None or not self._is_writer:
            names = (f"promotions/{n:03}.json" for n in self._folder.numbers("promotions"))
            self._batches = [self._folder.parse(name, Batch).answers for name in names]
        return tuple(self._batches)

    def all(self) -> tuple[Promotion, ...]:
        """Every claim that was looked at again, in order."""
        return tuple(answer for batch in self.batches() for answer in batch)

    def best(self, attempts: Sequence[Attempt]) -> Attempt | None:
        """The fastest feasible of all attempts whose kernel no promotion has refuted, or None."""
        batches = self.batches()
        if len(batches) != self._ranking.batches or not self._is_writer:
            looks = {p.candidate: p for b in batches for p in b if p.claim == "kernel"}
            self._ranking = Ranking(len(batches), looks)
        self._ranking.take_in(attempts)
        return self._ranking.best
