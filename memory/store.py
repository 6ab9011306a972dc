"""Owns `Memory`: the only way to read or change what was learned."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import numpy as np

from evokernel.attempt import Stage
from evokernel.config import MemoryConfig
from evokernel.errors import StoreError
from evokernel.evaluation import Promotion
from evokernel.memory import snapshot
from evokernel.memory.admission import content_hash, first_status, situation_of
from evokernel.memory.catch_up import catch_up
from evokernel.memory.embedding import Embedder, Situation, StructuralEmbedder, label
from evokernel.memory.events import Addition, Verdict
from evokernel.memory.exchange_into import Exchange
from evokernel.memory.experience import Experience, ExperienceStatus
from evokernel.memory.index import VectorIndex
from evokernel.memory.journal import Journal
from evokernel.memory.policies import check
from evokernel.memory.pool import neighbours
from evokernel.memory.recaller import Recaller, chosen_ids, read_back
from evokernel.memory.retrieval import Query, Retrieval
from evokernel.memory.rewards import Reward
from evokernel.memory.start_points import StartPoint
from evokernel.opgraph import OpGraph

EXACT_LIMIT = 2000
"""Active experiences of a backend up to which all are compared: as fast as Chroma, and complete.
Both took the same time at 3500 on a loaded machine of two cores."""


class Memory(Exchange):
    """A journal of events, the values folded from it, and a vector index derived from it.

    A context manager. May be used from several threads; several processes may open the same path.
    Every write carries the id of a step and counts once, however often a resumed run repeats it.
    """

    def __init__(
        self,
        config: MemoryConfig,
        journal: Journal,
        index: VectorIndex | None,
        embedder: Embedder,
        exact_limit: int = EXACT_LIMIT,
    ) -> None:
        super().__init__(config, journal, index, embedder)
        self._recaller = Recaller(config, journal, self._shelf, self._promises)
        self._exact_limit = exact_limit
        self._has_written = False
        self._touched: set[str] = set()
        self._is_closed = False

    @classmethod
    def open(
        cls,
        config: MemoryConfig,
        *,
        create: bool = True,
        embedder: Embedder | None = None,
        exact_limit: int = EXACT_LIMIT,
        to_repair: bool = False,
    ) -> Self:
        """Open the memory at `config.path`; None makes one that lives and dies with this object.

        Args:
            config: Which memory, policy and constants.
            create: Whether to make one where there is none.
            embedder: Turns situations into vectors; the structural one by default.
            exact_limit: Above so many active experiences the vector index is asked.
            to_repair: Skip the checks of what `rebuild` repairs: embedder and index.

        Raises:
            StoreError: the journal or the index is damaged, locked, cannot be written, was made
                with another embedder, or is missing while `create` is false. A memory is never
                started afresh in place of one that cannot be read.
            ConfigError: no such policy or reward.
        """
        check(config)
        embedder = embedder or StructuralEmbedder()
        journal = Journal.open(config.path, create=create)
        index = None
        try:
            if config.path is not None:
                index = VectorIndex(config.path, label(embedder), embedder.dimension)
            if not to_repair:
                _check_embedder(journal, label(embedder))
                if index is not None:
                    index.inspect()
            return cls(config, journal, index, embedder, exact_limit)
        except BaseException:
            journal.close()
            raise

    # Steps of a run

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write what one step leaves behind in one transaction: all of it, or nothing.

        For `add`, `reinforce`, `record_start` and `reward_start`; what is read inside is what was
        there before.
        """
        with self._lock, self._journal.together():
            yield

    def recall(self, query: Query) -> Retrieval:
        """Choose what to show for one step, and log it; the same step gets the recorded choice."""
        with self._lock:
            self._settle(query.environment)
            self._sync()
            recorded = self._journal.retrieval(query.step)
            if recorded is None:
                recorded = self._recaller.choose(query, self._neighbours(query), self._fold.values)
            decided = self._journal.decided(query.step)
            return read_back(recorded, self._entries(chosen_ids(recorded)), decided)

    def reinforce(self, step: str, stage: Stage, reward: Reward) -> bool:
        """Give the step's reward to every experience that was shown in it.

        Returns:
            False where the step had its reward already: nothing was counted twice.
        """
        with self._lock:
            self._has_written = True
            return self._journal.add_reward(step, stage, reward)

    def add(
        self, experiences: Sequence[Experience], step: str, graph: OpGraph | None = None
    ) -> tuple[str, ...]:
        """Keep experiences: a lesson of a failure is active at once, all else in quarantine.

        Args:
            experiences: What the step left behind, e.g. from `harvest`.
            step: Id of the step; repeating it changes nothing: its first lesson, second lesson,
                first edit ... are each kept once.
            graph: Operator graph of the task, from which the situation is embedded.

        Returns:
            Their ids, in order.
        """
        with self._lock:
            self._has_written = True
            self._touched |= {experience.fingerprint for experience in experiences}
            additions = [self._addition(e, graph, *first_status(e)) for e in experiences]
            ids = self._journal.add_experiences(additions, step, graph)
            self._keep_at_hand(additions, ids)
            return ids

    def seed(self, notes: Sequence[Experience]) -> tuple[str, ...]:
        """Keep notes of kind `technique` or `api`, active at once: they claim no measured speed.

        Idempotent by content: seeding the same catalogue in every run adds nothing.

        Returns:
            Their ids, in order.

        Raises:
            ValueError: another kind, which has to be promoted first.
        """
        if wrong := [note.kind for note in notes if note.kind not in {"technique", "api"}]:
            raise ValueError(f"a `{wrong[0]}` becomes active by promotion only")
        with self._lock:
            self._has_written = True
            ids: list[str] = []
            for note in notes:
                addition = self._addition(note, None, ExperienceStatus.ACTIVE, "a seeded note")
                step = f"seed/{addition.content}"
                ids += self._journal.add_experiences([addition], step)
            return tuple(ids)

    def promote(self, run: str, promotions: Sequence[Promotion], step: str) -> tuple[str, ...]:
        """Let the second look decide on the run's claims.

        Confirmed ones become active with the new ratio as their measurement, the others suspect;
        one that `--quick` could not tell from no change stays as it is.
        A promotion means the experiences of this run whose kind is its `claim` and whose
        `origin.candidate` is its `candidate`. What was withdrawn for good stays withdrawn.

        Returns:
            Ids of the experiences that are active because of it.
        """
        with self._lock:
            self._has_written = True
            self._sync()
            verdicts = [v for promotion in promotions for v in self._verdicts(run, promotion)]
            self._journal.add_statuses(verdicts, step)
            self._sync()
            active = ExperienceStatus.ACTIVE
            judged = (verdict.experience for verdict in verdicts)
            return tuple(id for id in judged if self._shelf.statuses[id] is active)

    # Start points of a run

    def record_start(
        self,
        run: str,
        step: str,
        candidate: str,
        median_ms: float,
        niche: str = "",
        gain: float = 0.0,
    ) -> None:
        """Enter a feasible candidate as a start point of this run; idempotent by candidate.

        Args:
            run: Id of the run.
            step: Id of the step that made it.
            candidate: Its hash.
            median_ms: Median of one call, milliseconds.
            niche: Its algorithm family, e.g. `online-softmax`; the best of each niche is archived.
            gain: ln(parent / itself) of the step that made it, 0 for a draft: its first value.
        """
        point = StartPoint(candidate=candidate, median_ms=median_ms, niche=niche, gain=gain)
        with self._lock:
            self._population.enter(run, step, point)

    def choose_start(
        self, run: str, step: str, seed: int, k: int = 1, exclude: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Choose up to `k` distinct start points, epsilon-greedy by value; logged and idempotent.

        Args:
            run: Id of the run.
            step: Id of the step that will refine; with the same `exclude` it gets the same answer.
            seed: Seed of the run.
            k: 1 to mutate, 2 to recombine; the second comes from another niche where there is one.
            exclude: Hashes that must not be chosen, e.g. exhausted ones.

        Returns:
            Hashes, fewer than `k` (or none) where there are no more.
        """
        with self._lock:
            return self._population.choose(run, step, seed, k, exclude)

    def reward_start(self, run: str, step: str, parent: str, reward: Reward) -> None:
        """Tell a start point how its child did; idempotent by step and parent."""
        with self._lock:
            self._population.tell(run, step, parent, reward)

    def close(self) -> None:
        """Flush if enough has changed, and let go of every file; a second call does nothing."""
        self._close(is_flushed=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        # With an error under way there is no time for the index: it catches up at the next close.
        self._close(is_flushed=kind is None)

    def _close(self, is_flushed: bool) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._journal.reset()  # a second Ctrl-C may have torn a transaction
            try:
                if self._has_written:
                    if is_flushed:
                        self.trim(self._touched)
                    self._sync()
                    snapshot.save(self._journal, self._fold.values)
                    if is_flushed:
                        self._flush_if_worth_it()
            finally:
                if self._index is not None:
                    self._index.close()
                self._journal.close()

    def _neighbours(self, query: Query) -> list[tuple[str, float]]:
        situation = Situation(
            graph=query.graph,
            family=query.family,
            bottleneck=query.bottleneck,
            techniques=query.techniques,
        )
        size = self._recaller.pool_size(query.stage, self._fold.values)
        index = self._searched_index(query.backend)
        vector = self._embed(situation)
        return neighbours(self._shelf, index, query, vector, size, self._config.holdout)

    def _searched_index(self, backend: str) -> VectorIndex | None:
        """The index where there are too many for the exact search; caught up when first opened."""
        few = self._shelf.active_count(backend) <= self._exact_limit
        if self._index is None or few:
            return None
        if not self._index.is_open and self._index.open():
            catch_up(self._shelf, self._index)
        return self._index if self._index.is_open else None

    def _addition(
        self,
        experience: Experience,
        graph: OpGraph | None,
        status: ExperienceStatus,
        reason: str,
    ) -> Addition:
        vector = self._embed(situation_of(experience, graph))
        return Addition(experience, content_hash(experience), vector.tolist(), status, reason)

    def _keep_at_hand(self, additions: Sequence[Addition], ids: Sequence[str]) -> None:
        """Spare reading back what was just written; another process may have been first."""
        for addition, id in zip(additions, ids, strict=True):
            if addition.experience.id == id:
                self._keep_body(id, addition.experience.model_copy(update={"features": ()}))
                self._shelf.keep_vector(id, np.asarray(addition.vector, dtype=np.float32))

    def _verdicts(self, run: str, promotion: Promotion) -> Iterable[Verdict]:
        """What a promotion says about each experience that it means."""
        ids = [
            id
            for id in self._shelf.made_with(run, promotion.candidate)
            if self._shelf.cards[id].kind == promotion.claim
            and self._shelf.statuses[id] is not ExperienceStatus.TOMBSTONE
        ]
        looked = f"looked at again in {promotion.processes} fresh processes"
        for entry in self._entries(ids):
            measurement = entry.experience.measurement
            if promotion.ratio is not None:
                measurement = measurement.model_copy(update={"speedup": promotion.ratio})
            status, reason = ExperienceStatus.SUSPECT, promotion.reason or looked
            if promotion.holds:
                status = ExperienceStatus.ACTIVE
            if promotion.holds and promotion.is_undecided:
                status, reason = entry.status, f"{looked}, too roughly to tell a gain from a loss"
            if entry.is_pinned and not promotion.holds:
                status, reason = entry.status, f"pinned, so kept as it is, although {reason}"
            yield Verdict(entry.experience.id, status, reason, measurement)


def _check_embedder(journal: Journal, mine: str) -> None:
    """Refuse vectors that another embedder made; a fresh memory takes the name of this one."""
    found = journal.note("embedder")
    if found is None:
        journal.set_note("embedder", mine)
    elif found != mine:
        raise StoreError(
            f"the memory `{journal.label}` was made with the embedder `{found}`, this EvoKernel "
            f"uses `{mine}`: `evokernel memory rebuild` embeds everything anew, or choose another "
            "memory with `--memory PATH`"
        )
