"""Owns `Query` and `Retrieval`: from a pool to the few experiences worth showing."""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from evokernel.attempt import Backend, Stage
from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience
from evokernel.memory.policies import Policy, PoolItem
from evokernel.opgraph import OpGraph

GATE = 1 / 32
"""Least similarity in a pool (ours). Tasks of one family have above 0.3, such that have only dtype
and sizes in common about 0.1, those without anything in common the noise of hashing around 0."""

CHOSEN = "chosen"
"""`PoolItem.fate` of what is shown."""


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


class Choice(Frozen):
    """One item of the pool put into a slot."""

    item: PoolItem
    propensity: float
    """Chance of this item for this slot, given the slots before; 0..1."""
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


def dice(seed: int, step: str, purpose: str) -> random.Random:
    """Random numbers that depend on the seed, the step's number and the purpose only.

    Not on the run, which is the first part of the step's id: two runs with one seed that find the
    same memory choose the same.
    """
    number = step.partition("/")[2] or step
    digest = hashlib.sha256(f"{seed}\n{number}\n{purpose}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "little"))


def choose(
    pool: Sequence[PoolItem],
    contents: Sequence[str],
    policy: Policy,
    slots: int,
    rng: random.Random,
) -> tuple[Choice, ...]:
    """Fill the slots one after the other; each draw is among the items that are allowed then.

    Not allowed are items shown already, duplicates of their content, and kinds that have filled
    half of the slots, unless nothing else is left.

    Args:
        pool: Items with the policy's scores.
        contents: Hash of each item's content.
        policy: The rule.
        slots: N, how many to show at most.
        rng: From `dice`, so that the same step chooses the same.
    """
    return fill(pool, contents, policy, slots, rng)[0]


def fill(
    pool: Sequence[PoolItem],
    contents: Sequence[str],
    policy: Policy,
    slots: int,
    rng: random.Random,
) -> tuple[tuple[Choice, ...], tuple[PoolItem, ...]]:
    """As `choose`; also says of every item of the pool what became of it."""
    choices: list[Choice] = []
    taken: dict[str, str] = {}
    kinds: Counter[str] = Counter()
    best_chances: dict[str, float] = {}
    last = {item.id for item in pool}
    quota = math.ceil(slots / 2)
    while len(choices) < slots:
        allowed = _allowed(pool, contents, taken, kinds, quota)
        chances = policy.chances([item for item, _ in allowed]) if allowed else ()
        if not sum(chances):
            break
        last = {item.id for item, _ in allowed}
        for (item, _), chance in zip(allowed, chances, strict=True):
            best_chances[item.id] = max(chance, best_chances.get(item.id, 0.0))
        (place,) = rng.choices(range(len(allowed)), weights=chances)
        item, content = allowed[place]
        taken |= {item.id: item.id, content: item.id}
        kinds[item.kind] += 1
        best = chances[place] == max(chances)
        choices.append(
            Choice(item=item, propensity=chances[place], reason=_reason(policy, item, best))
        )
    fates = (
        {
            "chance": best_chances.get(item.id, 0.0),
            "fate": _fate(item, content, taken, item.id in last),
        }
        for item, content in zip(pool, contents, strict=True)
    )
    fated = (item.model_copy(update=fate) for item, fate in zip(pool, fates, strict=True))
    return tuple(choices), tuple(fated)


def _fate(item: PoolItem, content: str, taken: Mapping[str, str], is_allowed: bool) -> str:
    if item.id in taken:
        return CHOSEN
    if content in taken:
        return f"the same content as `{taken[content]}`"
    return "not drawn" if is_allowed else f"enough of kind `{item.kind}` were chosen"


def _allowed(
    pool: Sequence[PoolItem],
    contents: Sequence[str],
    taken: Collection[str],
    kinds: Counter[str],
    quota: int,
) -> list[tuple[PoolItem, str]]:
    fresh = [
        (item, content)
        for item, content in zip(pool, contents, strict=True)
        if item.id not in taken and content not in taken
    ]
    return [(i, c) for i, c in fresh if kinds[i.kind] < quota] or fresh


def _reason(policy: Policy, item: PoolItem, best: bool) -> str:
    how = f"best left by `{policy.name}`" if best else f"drawn by `{policy.name}`"
    return f"{how}: similarity {item.similarity:.2f}, value {item.q:+.2f} after {item.n} visits"
