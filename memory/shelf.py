"""Owns `Shelf`: what this process knows of the journal's experiences, and exact search in it."""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from evokernel.errors import StoreError
from evokernel.memory.card import Card, is_stale
from evokernel.memory.contest import MARGIN, Leaders
from evokernel.memory.environment import Environment
from evokernel.memory.events import News, Vector
from evokernel.memory.experience import (
    ExperienceStatus,
    Measurement,
    gain_of,
)
from evokernel.memory.joint import Traits
from evokernel.memory.journal import Journal
from evokernel.memory.retraction import CLAIMS
from evokernel.memory.retrieval import Query
from evokernel.memory.revision import Revision


class Shelf:
    """Cards and statuses, kept up to the journal by event numbers; vectors come on demand."""

    def __init__(self, journal: Journal, dimension: int, hides_stale: bool = False) -> None:
        self._journal = journal
        self._hides_stale = hides_stale
        self._environments: dict[str, Environment] = {}
        self.watermark = 0
        """Number of the last event taken in."""
        self.cards: dict[str, Card] = {}
        self.statuses: dict[str, ExperienceStatus] = {}
        self.reasons: dict[str, str] = {}
        self.measurements: dict[str, str] = {}
        """JSON of the measurement that came with a promotion."""
        self._made: dict[tuple[str, str], list[str]] = {}
        self._leaders = Leaders()
        # Dictionaries without values: sets that keep their order, so that choices repeat.
        self._active: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._quarantined: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.once_active: set[str] = set()
        """Ids of those that are or were active: nothing else can be in the vector index."""
        self.revisions: dict[str, Revision] = {}
        """What people have changed, all their changes together."""
        self.pinned: dict[str, None] = {}
        """Ids of what people want in every pool that it fits into, in the order of pinning."""
        self.regrouped = 0
        """How often people have put an experience under other techniques."""
        self.retracted: frozenset[str] = frozenset()
        """Steps that made a kernel, edit or fix that was withdrawn."""
        self._stale: set[str] = set()
        self._changes: list[tuple[int, str]] = []
        self._rows: dict[str, int] = {}
        self._matrix = np.zeros((0, dimension), dtype=np.float32)

    def take_in(self, news: News) -> None:
        """Learn what any process has written."""
        for row in news.experiences:
            fields = {field: getattr(row, field) for field in Card._fields}
            fields["techniques"] = tuple(json.loads(row.techniques))
            self.cards[row.id] = card = Card(**fields)
            self._made.setdefault((card.run, card.candidate), []).append(row.id)
            self._environments.setdefault(card.run, card.environment)
        gone = ExperienceStatus.TOMBSTONE
        is_moved = False
        for row in news.statuses:
            is_moved |= gone in {self.statuses.get(row.experience), ExperienceStatus(row.status)}
            self._move(row.experience, ExperienceStatus(row.status))
            self.reasons[row.experience] = row.reason
            if row.measurement:
                self.measurements[row.experience] = row.measurement
            self._lead(row.experience)
        if is_moved:
            self.retracted = frozenset(self._retracted())
        for row in news.revisions:
            self._revise(row.experience, Revision.model_validate_json(row.body))
        changed = (*news.statuses, *news.revisions)
        self._changes += sorted((row.seq, row.experience) for row in changed)
        self.watermark = news.version

    def made_with(self, run: str, candidate: str) -> list[str]:
        """Ids of what the steps of a run left behind that judged this candidate."""
        return self._made.get((run, candidate), [])

    def judged(self, run: str, candidate: str) -> Card | None:
        """The kernel or the lesson that a candidate left in a run."""
        cards = (self.cards[id] for id in self._made.get((run, candidate), ()))
        return next((card for card in cards if card.kind in {"kernel", "lesson"}), None)

    def environment(self, run: str) -> Environment:
        """Where a run took place, as its first experience has it; nothing where it left none."""
        return self._environments.get(run, Environment())

    def gain(self, id: str) -> float | None:
        """As measured last: ln(parent / child) of an edit, ln(eager / itself) of a kernel."""
        if again := self.measurements.get(id):
            return gain_of(Measurement.model_validate_json(again))
        return self.cards[id].gain

    def about(self, candidate: str) -> list[str]:
        """Ids of what claims something of a candidate, in any run."""
        cards = self.cards.values()
        return [c.id for c in cards if c.candidate == candidate and c.kind in CLAIMS]

    def traits(self, id: str) -> Traits:
        """By what an experience is grouped with others, as people have revised it."""
        card = self.cards.get(id)
        if card is None:  # rewards may name what was never brought along
            return Traits("unknown", "unknown", "unknown", ())
        revised = self.revisions.get(id)
        techniques = card.techniques
        if revised is not None and revised.techniques is not None:
            techniques = revised.techniques
        return Traits(card.kind, card.outcome, card.family, techniques)

    def keep_vector(self, id: str, vector: Vector) -> None:
        """Take a vector that is at hand; what was there before is replaced."""
        if id not in self._rows:
            self._grow(len(self._rows) + 1)
        self._matrix[self._rows.setdefault(id, len(self._rows))] = vector

    def forget_vectors(self) -> None:
        """Fetch every vector again when it is next needed."""
        self._rows.clear()

    def active(self, backend: str | None = None) -> Iterator[str]:
        """Ids of the active experiences, of one backend and the neutral ones if it is given."""
        for name, ids in self._active.items():
            if backend is None or name in {backend, "neutral"}:
                yield from ids

    def active_count(self, backend: str) -> int:
        """How many that are."""
        return len(self._active[backend]) + len(self._active["neutral"])

    def quarantined(self, run: str) -> Iterator[str]:
        """Ids of the experiences in quarantine that came from one run."""
        yield from self._quarantined[run]

    def changed_after(self, seq: int) -> list[str]:
        """Ids of the experiences whose status changed after event `seq`, each once."""
        first = bisect_right(self._changes, seq, key=lambda change: change[0])
        return list(dict.fromkeys(id for _, id in self._changes[first:]))

    def allowed(self, ids: Iterable[str], query: Query, holdout: Collection[str]) -> list[str]:
        """Those of `ids` that no hard filter hides from the query; status is not looked at."""
        hidden = set(query.exclude)
        return [
            id
            for id in ids
            if (card := self.cards[id]).fingerprint not in holdout
            and id not in hidden
            and card.kind != "api"  # looked up by exact name, outside the value loop
            and card.backend in {query.backend, "neutral"}
            and not (self._hides_stale and is_stale(card, query.environment))
        ]

    def leading(self, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that a draft may well start from.

        Left out are kernels, edits and fixes whose candidate another active kernel of the same
        task, language and device beats by more than `MARGIN`, and edits that made a kernel slower;
        what is pinned stays.
        """
        return [id for id in ids if id in self.pinned or not self.is_beaten(id)]

    def is_beaten(self, id: str) -> bool:
        """Whether nobody would start from it who knows what else there is."""
        card = self.cards[id]
        is_setback = card.kind == "edit" and card.outcome == "failure"
        return is_setback or self.lead(id) > MARGIN

    def lead(self, id: str) -> float:
        """By how much the fastest active kernel of its task beats it, ln of a ratio; 0: by none."""
        card = self.cards[id]
        if card.kind not in CLAIMS:
            return 0.0
        kernel = self.judged(card.run, card.candidate)
        return self._leaders.lead(card.contest, self.gain(kernel.id) if kernel else None)

    def nearest(self, vector: Vector, ids: list[str], k: int) -> list[tuple[str, float]]:
        """The `k` of `ids` with the largest cosine similarity, best first, the older of equals.

        Not by id, which depends on the run: runs with the same seed shall choose the same.

        Args:
            vector: Unit vector of the query, shape (dimension,), float32.
            ids: Where to look.
            k: How many at most.
        """
        if not ids or k <= 0:
            return []
        self._fetch(ids)
        rows = np.fromiter(map(self._rows.__getitem__, ids), dtype=np.intp, count=len(ids))
        # Not `@`: BLAS would wake its threads, which costs 20 ms beside a measurement; this 0.1
        scores = np.einsum("ij,j->i", self._matrix[rows], vector)
        least = np.partition(scores, -k)[-k] if k < len(ids) else -np.inf
        found = [(ids[place], float(scores[place])) for place in np.flatnonzero(scores >= least)]
        return sorted(found, key=lambda pair: (-pair[1], self.cards[pair[0]].seq))[:k]

    def vector(self, id: str) -> Vector:
        """The embedding of one experience, shape (dimension,), float32."""
        self._fetch([id])
        row: Vector = self._matrix[self._rows[id]]
        return row

    def _retracted(self) -> Iterator[str]:
        for id, status in self.statuses.items():
            if status is ExperienceStatus.TOMBSTONE and self.cards[id].kind in CLAIMS:
                yield self.cards[id].step

    def _revise(self, id: str, change: Revision) -> None:
        self.revisions[id] = whole = change.over(self.revisions.get(id, Revision()))
        self.pinned.pop(id, None)
        if whole.is_pinned:
            self.pinned[id] = None
        if change.techniques is not None:
            self._stale.add(id)
            self.regrouped += 1

    def _move(self, id: str, status: ExperienceStatus) -> None:
        card = self.cards[id]
        self.statuses[id] = status
        self._active[card.backend].pop(id, None)
        self._quarantined[card.run].pop(id, None)
        if status is ExperienceStatus.ACTIVE:
            self._active[card.backend][id] = None
            self.once_active.add(id)
        elif status is ExperienceStatus.QUARANTINE:
            self._quarantined[card.run][id] = None

    def _lead(self, id: str) -> None:
        """Keep up with what a kernel has gained while it is active."""
        if (card := self.cards[id]).kind == "kernel":
            is_active = self.statuses[id] is ExperienceStatus.ACTIVE
            self._leaders.put(card.contest, id, self.gain(id) if is_active else None)

    def _fetch(self, ids: Iterable[str]) -> None:
        missing = [id for id in ids if id not in self._rows or id in self._stale]
        if not missing:
            return
        found = self._journal.vectors(missing)
        if lost := [id for id in missing if id not in found]:
            raise StoreError(
                f"the memory `{self._journal.label}` has no embedding of `{lost[0]}`: "
                "`evokernel memory rebuild` makes all of them anew"
            )
        self._grow(len(self._rows) + len(missing))
        for id in missing:
            self.keep_vector(id, found[id])
        self._stale.difference_update(missing)

    def _grow(self, rows: int) -> None:
        """Double the room, so that adding one by one stays cheap."""
        have, dimension = self._matrix.shape
        if rows > have:
            wider = np.zeros((max(rows, 2 * have), dimension), dtype=np.float32)
            wider[:have] = self._matrix
            self._matrix = wider
