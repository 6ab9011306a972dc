"""Owns `Memory`: the only way to read or change what was learned."""

from collections.abc import Sequence
from typing import Self

from evokernel.attempt import Backend, Stage
from evokernel.config import MemoryConfig
from evokernel.evaluation import Promotion
from evokernel.memory.experience import Entry, Experience, ExperienceStatus, Kind
from evokernel.memory.retrieval import Query, Retrieval
from evokernel.memory.rewards import Reward
from evokernel.opgraph import OpGraph


class Memory:
    """A journal of events, the values folded from it, and a vector index derived from it.

    A context manager. May be used from several threads; several processes may open the same path.
    Every write carries the id of a step and counts once, however often a resumed run repeats it.
    """

    @classmethod
    def open(cls, config: MemoryConfig, *, create: bool = True) -> Self:
        """Open the memory at `config.path`; None makes one that lives and dies with this object.

        Raises:
            StoreError: the journal or the index is damaged, locked, cannot be written, was made
                with another embedder, or is missing while `create` is false. A memory is never
                started afresh in place of one that cannot be read.
        """
        raise NotImplementedError

    def recall(self, query: Query) -> Retrieval:
        """Choose what to show for one step, and log it; the same step gets the recorded choice."""
        raise NotImplementedError

    def reinforce(self, step: str, stage: Stage, reward: Reward) -> bool:
        """Give the step's reward to every experience that was shown in it.

        Returns:
            False where the step had its reward already: nothing was counted twice.
        """
        raise NotImplementedError

    def add(
        self, experiences: Sequence[Experience], step: str, graph: OpGraph | None = None
    ) -> tuple[str, ...]:
        """Keep experiences: a lesson of a failure is active at once, all else in quarantine.

        Args:
            experiences: What the step left behind, e.g. from `harvest`.
            step: Id of the step; repeating it changes nothing.
            graph: Operator graph of the task, from which the situation is embedded.

        Returns:
            Their ids, in order.
        """
        raise NotImplementedError

    def seed(self, notes: Sequence[Experience]) -> tuple[str, ...]:
        """Keep notes of kind `technique` or `api`, active at once: they claim no measured speed.

        Idempotent by content: seeding the same catalogue in every run adds nothing.

        Raises:
            ValueError: another kind, which has to be promoted first.
        """
        raise NotImplementedError

    def promote(self, run: str, promotions: Sequence[Promotion], step: str) -> tuple[str, ...]:
        """Let the second look decide on the run's quarantined claims.

        Confirmed ones become active with the new ratio as their measurement, the others suspect.
        A promotion means the experiences of this run whose kind is its `claim` and whose
        `origin.candidate` is its `candidate`.

        Returns:
            Ids of the experiences that are active now because of it.
        """
        raise NotImplementedError

    def set_status(
        self, id: str, status: ExperienceStatus, reason: str, step: str | None = None
    ) -> None:
        """Change one status by hand, e.g. to a tombstone; without a step it counts as a new event.

        Raises:
            StoreError: no such experience.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def choose_start(
        self, run: str, step: str, seed: int, k: int = 1, exclude: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Choose up to `k` distinct start points, epsilon-greedy by value; logged and idempotent.

        Args:
            run: Id of the run.
            step: Id of the step that will refine.
            seed: Seed of the run.
            k: 1 to mutate, 2 to recombine; the second comes from another niche where there is one.
            exclude: Hashes that must not be chosen, e.g. exhausted ones.

        Returns:
            Hashes, fewer than `k` (or none) where there are no more.
        """
        raise NotImplementedError

    def reward_start(self, run: str, step: str, parent: str, reward: Reward) -> None:
        """Tell a start point how its child did; idempotent by step and parent."""
        raise NotImplementedError

    def archive(self, run: str) -> dict[str, str]:
        """The fastest start point of each niche of this run: niche to hash."""
        raise NotImplementedError

    def get(self, id: str) -> Entry:
        """One experience with its status and latest measurement.

        Raises:
            StoreError: no such experience; names the nearest id.
        """
        raise NotImplementedError

    def list(
        self,
        kind: Kind | None = None,
        family: str | None = None,
        status: ExperienceStatus | None = None,
        backend: Backend | None = None,
        run: str | None = None,
        limit: int | None = None,
    ) -> tuple[Entry, ...]:
        """Experiences that fit all given filters, newest first."""
        raise NotImplementedError

    def flush(self) -> None:
        """Bring the vector index up to the journal, if no other process owns it. Takes seconds."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush what this memory changed and let go of every file; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
