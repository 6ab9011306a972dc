"""Owns `View`: everything that can be read of a memory without changing it."""

import difflib
from collections import OrderedDict
from collections.abc import Sequence
from threading import RLock

import numpy as np

from evokernel.attempt import Backend, Stage
from evokernel.config import MemoryConfig
from evokernel.errors import StoreError
from evokernel.memory.card import Card
from evokernel.memory.embedding import Embedder, Situation, label
from evokernel.memory.environment import Environment, discount
from evokernel.memory.events import Vector
from evokernel.memory.experience import (
    BELIEVED,
    Entry,
    Experience,
    ExperienceStatus,
    Kind,
    Measurement,
    edit_outcome,
)
from evokernel.memory.explanation import Explanation, explain
from evokernel.memory.fold import Fold
from evokernel.memory.index import VectorIndex
from evokernel.memory.journal import Journal
from evokernel.memory.lineage import Descendant, descendants
from evokernel.memory.policies import Surroundings, learner_of
from evokernel.memory.population import Population
from evokernel.memory.promises import Promises
from evokernel.memory.search import Hit, search
from evokernel.memory.shelf import Shelf
from evokernel.memory.start_points import StartPoint
from evokernel.memory.stats import Stats, stats_of
from evokernel.memory.values import Learner, Rewarded, Value
from evokernel.memory.withdrawal import Withdrawal, plan_withdrawal

SITUATIONS = 1024
"""Embedded situations that are kept at hand: a run asks for the same few again and again."""

BODIES = 256
"""Experiences that are kept at hand, some 20 kB each."""


class View:
    """Reads journal, values and index of one memory, always as they are now."""

    def __init__(
        self,
        config: MemoryConfig,
        journal: Journal,
        index: VectorIndex | None,
        embedder: Embedder,
    ) -> None:
        self._config = config
        self._journal = journal
        self._index = index
        self._embedder = embedder
        self._environment = Environment()
        self._shelf = Shelf(journal, embedder.dimension, config.stale == "hide")
        self._fold = Fold(journal, self._fresh)
        self._promises = Promises(self._shelf.judged, config.holdout)
        self._population = Population(journal, config.epsilon, config.starts)
        self._bodies: OrderedDict[str, Experience] = OrderedDict()
        self._embedded: dict[tuple[Situation, str | None], Vector] = {}
        self._lock = RLock()

    def get(self, id: str) -> Entry:
        """One experience with its status and latest measurement.

        Raises:
            StoreError: no such experience; names the nearest id.
        """
        with self._lock:
            card = self._card(id)
            (entry,) = self._entries([card.id])
            vector = tuple(float(x) for x in self._shelf.vector(id))
            full = entry.experience.model_copy(update={"features": vector})
            return entry.model_copy(update={"experience": full})

    def lookup(self, names: Sequence[str], backend: Backend) -> tuple[Experience, ...]:
        """Active notes of kind `api` whose payload's `name` is one of `names`, in their order."""
        entries = self.list(kind="api", status=ExperienceStatus.ACTIVE, backend=backend)
        found = {entry.experience.payload.get("name"): entry.experience for entry in entries}
        return tuple(found[name] for name in names if name in found)

    def list(
        self,
        kind: Kind | None = None,
        family: str | None = None,
        status: ExperienceStatus | None = None,
        backend: str | None = None,
        run: str | None = None,
        limit: int | None = None,
    ) -> tuple[Entry, ...]:
        """Experiences that fit all given filters, newest first, without their features."""
        wanted = {"kind": kind, "family": family, "backend": backend, "run": run}
        with self._lock:
            self._sync()
            ids = [
                card.id
                for card in reversed(self._shelf.cards.values())
                if all(value in {None, getattr(card, name)} for name, value in wanted.items())
                and status in {None, self._shelf.statuses[card.id]}
            ]
            return self._entries(ids[:limit])

    def search(
        self, words: str = "", situation: Situation | None = None, limit: int = 10
    ) -> tuple[Hit, ...]:
        """Find experiences that are not withdrawn: by words, or by likeness to a situation."""
        with self._lock:
            self._sync()
            gone = ExperienceStatus.TOMBSTONE
            ids = [id for id, status in self._shelf.statuses.items() if status is not gone]
            if situation is None:
                return search(self._entries(ids), words, limit)
            near = self._shelf.nearest(self._embed(situation), ids, limit)
            entries = self._entries([id for id, _ in near])
            pairs = zip(entries, near, strict=True)
            return tuple(Hit(entry=entry, score=similar) for entry, (_, similar) in pairs)

    def value(self, id: str, stage: Stage) -> Value:
        """What an experience is worth for a stage."""
        with self._lock:
            self._sync()
            return self._fold.values.of(id, stage)

    def descendants(self, id: str) -> tuple[Descendant, ...]:
        """Every experience made from this one, or while it was shown, directly or not.

        Raises:
            StoreError: no such experience; names the nearest id.
        """
        with self._lock:
            self._card(id)
            return descendants(id, self._journal.bodies(tuple(self._shelf.cards)))

    def explain(self, step: str) -> Explanation:
        """Why a step was shown what it was shown, as it was logged.

        Raises:
            StoreError: no such step; names the nearest.
        """
        with self._lock:
            self._sync()
            return explain(self._journal, self._shelf.cards, step, self._shelf.is_beaten)

    def withdrawal(
        self, ids: Sequence[str] = (), run: str | None = None, with_descendants: bool = False
    ) -> Withdrawal:
        """What `forget` would withdraw: experiences, all of a run, what they led to.

        Raises:
            StoreError: no such experience or run; names the nearest.
        """
        with self._lock:
            named = [self._card(id).id for id in dict.fromkeys(ids)]
            if run is not None:
                named += self._of_run(run)
            bodies = self._journal.bodies(tuple(self._shelf.cards))
            return plan_withdrawal(named, bodies, self._shelf, with_descendants)

    def about(self, candidate: str) -> tuple[str, ...]:
        """Ids of what claims something of a candidate, in any run."""
        with self._lock:
            self._sync()
            return tuple(self._shelf.about(candidate))

    def standing(self, candidate: str) -> tuple[Entry, ...]:
        """What claims something of a candidate and is withdrawn or suspect, whatever the run."""
        with self._lock:
            self._sync()
            fallen = {ExperienceStatus.TOMBSTONE, ExperienceStatus.SUSPECT}
            ids = self._shelf.about(candidate)
            return self._entries([id for id in ids if self._shelf.statuses[id] in fallen])

    def stats(self) -> Stats:
        """The state of the memory in numbers."""
        with self._lock:
            self._sync()
            made_with = label(self._embedder)
            return stats_of(self._journal, self._shelf, self._fold.values, self._index, made_with)

    def start_points(self, run: str) -> tuple[StartPoint, ...]:
        """The start points of this run with how their children did, oldest first."""
        with self._lock:
            return self._population.table(run).points

    def archive(self, run: str) -> dict[str, str]:
        """The fastest start point of each niche of this run: niche to hash."""
        with self._lock:
            return self._population.table(run).archive()

    def _fresh(self) -> Learner:
        """What learns the values, with nothing learned yet."""
        return learner_of(self._config, Surroundings(self._shelf.traits, self._weight))

    def _weight(self, event: Rewarded) -> float:
        """How far a reward counts where this memory is used."""
        known = event.environment.parts()
        there = event.environment if known else self._shelf.environment(event.run)
        return discount(there, self._environment)

    def _settle(self, environment: Environment) -> None:
        """Be used in an environment: evidence from elsewhere counts less, and is counted anew."""
        if environment.parts() and environment != self._environment:
            self._environment = environment
            self._fold.begin_anew()  # from the start where evidence is weighed
            for id in self._shelf.cards:
                self._count(id)

    def _sync(self) -> None:
        """Take in what this or any other process wrote since the last look."""
        news = self._journal.news(self._shelf.watermark, self._fold.is_loaded)
        self._shelf.take_in(news)
        for row in (*news.statuses, *news.revisions):
            self._count(row.experience)
        self._fold.take_in(self._shelf, news.rewards)

    def _count(self, id: str) -> None:
        """Let an experience say what its techniques are worth, unless it is not believed."""
        if self._shelf.statuses[id] in BELIEVED:
            card = self._shelf.cards[id]
            card = card._replace(techniques=self._shelf.traits(id).techniques)
            weight = discount(card.environment, self._environment)
            self._promises.count(card, self._shelf.gain(id), weight)
        else:
            self._promises.drop(id)

    def _card(self, id: str) -> Card:
        self._sync()
        if id not in self._shelf.cards:
            near = difflib.get_close_matches(id, self._shelf.cards, n=1)
            hint = f"the nearest is `{near[0]}`" if near else "see `evokernel memory list`"
            raise StoreError(f"no experience `{id}` in the memory `{self._journal.label}`: {hint}")
        return self._shelf.cards[id]

    def _of_run(self, run: str) -> Sequence[str]:
        self._sync()
        cards = self._shelf.cards.values()
        if found := [card.id for card in cards if card.run == run]:
            return found
        near = difflib.get_close_matches(run, {card.run for card in cards}, n=1)
        hint = f"the nearest is `{near[0]}`" if near else "see `evokernel memory list`"
        raise StoreError(f"no run `{run}` in the memory `{self._journal.label}`: {hint}")

    def _entries(self, ids: Sequence[str]) -> tuple[Entry, ...]:
        missing = [id for id in ids if id not in self._bodies]
        bodies = self._journal.bodies(missing) if missing else {}
        entries = tuple(self._entry(id, self._bodies.get(id) or bodies[id]) for id in ids)
        for id, body in bodies.items():
            self._keep_body(id, body)
        return entries

    def _keep_body(self, id: str, body: Experience) -> None:
        """Have an experience at hand for a while: it never changes, and reading one takes long."""
        self._bodies[id] = body
        if len(self._bodies) > BODIES:
            self._bodies.popitem(last=False)

    def _entry(self, id: str, body: Experience) -> Entry:
        shelf = self._shelf
        if revision := shelf.revisions.get(id):
            body = body.model_copy(update=revision.changed() | {"key": id})
        if again := shelf.measurements.get(id):
            body = _measured_again(body, Measurement.model_validate_json(again))
        return Entry(
            experience=body,
            status=shelf.statuses[id],
            reason=shelf.reasons[id],
            version=shelf.cards[id].seq,
            is_pinned=id in shelf.pinned,
        )

    def _embed(self, situation: Situation) -> Vector:
        """The situation's vector, shape (dimension,), float32."""
        graph = situation.graph
        key = situation.model_copy(update={"graph": None}), graph.fingerprint if graph else None
        if key not in self._embedded:
            if len(self._embedded) >= SITUATIONS:
                self._embedded.clear()
            vector = self._embedder.embed(situation)
            self._embedded[key] = np.asarray(vector, dtype=np.float32)
        return self._embedded[key]


def _measured_again(experience: Experience, measurement: Measurement) -> Experience:
    known = {"measurement": measurement, "outcome": experience.outcome}
    if experience.kind == "edit":
        known["outcome"] = edit_outcome(measurement.speedup)
    return experience.model_copy(update=known)
