"""Owns `Query` and `Retrieval`: from a situation to the few experiences worth showing."""

from evokernel.attempt import Backend, Stage
from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience, Kind
from evokernel.opgraph import OpGraph


class Query(Frozen):
    """The situation of one step, for which memory is asked."""

    task: str
    """Name of the task."""
    graph: OpGraph | None
    """Its operator graph; None where the reference could not be captured."""
    stage: Stage
    backend: Backend
    family: str
    """Family of the task, `unknown` without a graph."""
    fingerprint: str
    """Fingerprint of the task's graph, or the task's content hash without one."""
    bottleneck: str = "unknown"
    """What bounds the start point: as `Profile.bound_by`."""
    techniques: tuple[str, ...] = ()
    """Techniques of the start point."""
    run: str
    """Id of the run: its own quarantined experiences may be shown to it."""
    step: str
    """Unique id of the step, `<run>/<number>`."""
    seed: int
    """Seed of the run; with the step it fixes every random choice."""
    exclude: tuple[str, ...] = ()
    """Ids of experiences that must not be shown, e.g. those of the start point itself."""


class PoolItem(Frozen):
    """One experience that could have been shown, with what was known of it then."""

    id: str
    kind: Kind
    similarity: float
    """Cosine similarity of its situation to the query's, -1..1."""
    q: float
    """Value for the query's stage at that time."""
    n: int
    """Visits behind that value."""
    score: float
    """What the policy ranked by."""


class Recalled(Frozen):
    """One experience that is shown, and why."""

    experience: Experience
    similarity: float
    """Cosine similarity of its situation to the query's, -1..1."""
    q: float
    """Value for the query's stage at that time."""
    n: int
    """Visits behind that value."""
    propensity: float
    """Chance with which the policy put it into its slot, given the slots before; 0..1."""
    reason: str
    """One phrase in words."""


class Retrieval(Frozen):
    """What was shown in one step, and out of what it was chosen."""

    step: str
    stage: Stage
    policy: str
    """Name of the policy."""
    parameters: dict[str, float]
    """Its constants."""
    bank_version: int
    """Number of the last event that it took into account."""
    seed: int
    pool: tuple[PoolItem, ...]
    """The candidates, most similar first."""
    chosen: tuple[Recalled, ...]
    """What is shown, in the order of the slots."""

    @property
    def experiences(self) -> tuple[Experience, ...]:
        """The shown experiences, best first: what `Request.shown` takes."""
        return tuple(recalled.experience for recalled in self.chosen)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the shown experiences."""
        return tuple(recalled.experience.id for recalled in self.chosen)
