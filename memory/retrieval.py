"""Owns `Query` and `Retrieval`: what one step asks of a memory, and what it is answered."""

import hashlib
import random

from evokernel.attempt import Backend, Stage
from evokernel.frozen import Frozen
from evokernel.memory.choice import USUAL, PoolItem
from evokernel.memory.environment import Environment
from evokernel.memory.experience import Experience
from evokernel.opgraph import OpGraph

GATE = 1 / 32
"""Least similarity in a pool (ours). Tasks of one family have above 0.3, such that have only dtype
and sizes in common about 0.1, those without anything in common the noise of hashing around 0."""


class Query(Frozen):
    """The situation of one step, for which memory is asked."""

    task: str
    """Name of the task."""
    graph: OpGraph | None
    """Its operator graph; None where the reference could not be captured."""
    stage: Stage
    """Whether the step drafts or refines."""
    backend: Backend
    """Language of its kernels."""
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
    environment: Environment = Environment()
    """Where the run takes place; what is known of it makes evidence from elsewhere count less."""
    spent: float | None = None
    """Share of the task's budget that is spent, 0..1; None where nobody knows."""


class Recalled(Frozen):
    """One experience that is shown, and why."""

    experience: Experience
    """What is shown."""
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


class Decision(Frozen):
    """What else was drawn for a step besides its slots."""

    arm: str = USUAL
    """`usual`, `probe` (it tried something) or `null` (it was shown nothing on purpose)."""
    arm_chance: float = 1.0
    """Chance of that arm."""
    shown_chance: float = 1.0
    """Chance of each choice to be shown and not held back."""
    withheld: dict[str, float] = {}
    """What was held back, with the chance that it had for its slot."""
    propensity: float | None = None
    """Chance of all of it together; None where older versions did not log it."""


class Retrieval(Frozen):
    """What was shown in one step, and out of what it was chosen."""

    step: str
    """The step that asked."""
    stage: Stage
    """Whether it drafts or refines."""
    policy: str
    """Name of the policy."""
    parameters: dict[str, float]
    """Its constants."""
    bank_version: int
    """Number of the last event that it took into account."""
    seed: int
    """Seed of the random numbers."""
    pool: tuple[PoolItem, ...]
    """The candidates, most similar first."""
    chosen: tuple[Recalled, ...]
    """What is shown, in the order of the slots."""
    decision: Decision = Decision()
    """By which arm it was chosen, and what was held back."""

    @property
    def experiences(self) -> tuple[Experience, ...]:
        """The shown experiences, best first: what `Request.shown` takes."""
        return tuple(recalled.experience for recalled in self.chosen)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the shown experiences."""
        return tuple(recalled.experience.id for recalled in self.chosen)


def dice(seed: int, step: str, purpose: str) -> random.Random:
    """Random numbers that depend on the seed, the step's number and the purpose only.

    Not on the run, which is the first part of the step's id: two runs with one seed that find the
    same memory choose the same.
    """
    number = step.partition("/")[2] or step
    digest = hashlib.sha256(f"{seed}\n{number}\n{purpose}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "little"))
