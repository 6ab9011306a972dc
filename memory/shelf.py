"""Owns `Shelf`: what this process knows of the journal's experiences, and exact search in it."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from evokernel.errors import StoreError
from evokernel.memory.experience import ExperienceStatus, Kind
from evokernel.memory.journal import Journal, News, Vector
from evokernel.memory.retrieval import Query


class Card(NamedTuple):
    """What is needed to decide whether an experience may be shown."""

    id: str
    seq: int
    """Number of the event that added it."""
    kind: Kind
    backend: str
    family: str
    fingerprint: str
    task: str
    run: str
    candidate: str
    content: str
    """Hash by which duplicates are recognised."""

    @property
    def collection(self) -> str:
        """Name of the collection of the vector index that holds it."""
        return f"{self.backend}-{self.kind}"


class Shelf:
    """Cards and statuses, kept up to the journal by event numbers; vectors come on demand."""

    def __init__(self, journal: Journal, dimension: int) -> None:
        self._journal = journal
        self.watermark = 0
        """Number of the last event taken in."""
        self.cards: dict[str, Card] = {}
        self.statuses: dict[str, ExperienceStatus] = {}
        self.reasons: dict[str, str] = {}
        self.measurements: dict[str, str] = {}
        """JSON of the measurement that came with a promotion."""
        self.changed: dict[str, int] = {}
        """Number of the last event that touched each experience."""
        self._rows: dict[str, int] = {}
        self._matrix = np.zeros((0, dimension), dtype=np.float32)

    def take_in(self, news: News) -> None:
        """Learn what any process has written; learning a thing twice does no harm."""
        for row in news.experiences:
            columns = row._mapping
            self.cards[row.id] = Card(*(columns[field] for field in Card._fields))
        for row in news.statuses:
            self.statuses[row.experience] = ExperienceStatus(row.status)
            self.reasons[row.experience] = row.reason
            self.changed[row.experience] = row.seq
            if row.measurement:
                self.measurements[row.experience] = row.measurement
        self.watermark = news.version

    def keep_vector(self, id: str, vector: Vector) -> None:
        """Remember the embedding of an experience that is being added."""
        if id not in self._rows:
            row = len(self._rows)
            self._grow(row + 1)
            self._matrix[row] = vector
            self._rows[id] = row

    def forget_vectors(self) -> None:
        """Fetch every vector again when it is next needed."""
        self._rows.clear()

    def eligible(self, query: Query, holdout: Collection[str]) -> list[str]:
        """Ids that may be shown to a step, after every hard filter."""
        hidden = set(query.exclude)
        return [
            card.id
            for card in self.cards.values()
            if card.kind != "api"  # looked up by exact name, outside the value loop
            and card.backend in {query.backend, "neutral"}
            and card.fingerprint not in holdout
            and card.id not in hidden
            and self._is_open(card, query.run)
        ]

    def active(self) -> list[str]:
        """Ids of all active experiences."""
        return [id for id, status in self.statuses.items() if status is ExperienceStatus.ACTIVE]

    def nearest(self, vector: Vector, ids: list[str], k: int) -> list[tuple[str, float]]:
        """The `k` of `ids` with the largest cosine similarity, best first; ties by id.

        Args:
            vector: Unit vector of the query, shape (dimension,), float32.
            ids: Where to look.
            k: How many at most.
        """
        if not ids or k <= 0:
            return []
        self._fetch(ids)
        rows = np.fromiter((self._rows[id] for id in ids), dtype=np.intp, count=len(ids))
        scores = self._matrix[rows] @ vector
        found = sorted(zip(ids, scores.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))
        return found[:k]

    def vector(self, id: str) -> Vector:
        """The embedding of one experience, shape (dimension,), float32."""
        self._fetch([id])
        row: Vector = self._matrix[self._rows[id]]
        return row

    def _is_open(self, card: Card, run: str) -> bool:
        status = self.statuses[card.id]
        if status is ExperienceStatus.QUARANTINE:
            return card.run == run
        return status is ExperienceStatus.ACTIVE

    def _fetch(self, ids: Iterable[str]) -> None:
        missing = [id for id in ids if id not in self._rows]
        if not missing:
            return
        found = self._journal.vectors(missing)
        if lost := [id for id in missing if id not in found]:
            raise StoreError(
                f"the memory `{self._journal.label}` has no embedding of `{lost[0]}`: "
                "`evokernel memory rebuild` makes all of them anew"
            )
        for id in missing:
            self.keep_vector(id, found[id])

    def _grow(self, rows: int) -> None:
        """Double the room, so that adding one by one stays cheap."""
        have, dimension = self._matrix.shape
        if rows > have:
            wider = np.zeros((max(rows, 2 * have), dimension), dtype=np.float32)
            wider[:have] = self._matrix
            self._matrix = wider
