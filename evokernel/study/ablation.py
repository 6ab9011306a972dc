"""Owns the ablation: the same tasks, seeds and budgets under each arm, from recordings.

For each seed the tasks are shuffled into a stream. A policy's memory begins empty, goes through the
first half of the stream, and what it has learned by then is frozen: every task of the second half
is run once from a copy of it (*transfer*: none of these tasks is in the bank, and nothing that
those runs learn is kept). Then the stream goes on through the second half (*adaptation*: all
tasks, each with what the earlier ones left behind).
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from evokernel.attempt import Backend
from evokernel.config import MemoryConfig
from evokernel.frozen import Frozen
from evokernel.memory.embedding import StructuralEmbedder
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.journal import Journal
from evokernel.memory.policies import POLICIES
from evokernel.memory.store import Memory
from evokernel.proposers.templates.choices import read_plan
from evokernel.study.fixed import Configuration, best_fixed, share
from evokernel.study.recording import Recording
from evokernel.study.searches import SEARCHES
from evokernel.study.simulation import ENOUGH, Course, Workshop

Setting = Literal["adaptation", "transfer"]
BUDGET = 24
"""Attempts of a run unless another number is asked for."""
CONTROL = "none"
"""No memory, but the best fixed configuration for a first draft."""
PLAIN = "none-plain"
"""No memory, and the first draft that the templates make without any."""
ORACLE = "oracle"
"""No learning: the plan of the bank that is fastest on this task, chosen with its times in view."""
WITHOUT = (CONTROL, PLAIN, *SEARCHES)
HEADROOM = 1.3
"""Tasks whose plain plan is less than so many times slower than the best one do not count."""

Heard = Callable[[str], None]


class Outcome(Frozen):
    """What one simulated run came to."""

    arm: str
    setting: Setting
    seed: int
    task: str
    place: int
    """Number of the task within its stream, from 1."""
    needed: int | None
    """Attempts until the first within 95 % of the best known speed; None where none was."""
    first: float
    """Speed of the first attempt as a share of the best known, 0..1."""
    final: float
    """Speed of what the run ended with, 0..1."""
    area: float
    """Mean over the budget of the speed of what was held, 0..1."""
    held: tuple[float, ...]
    """Speed of what was held after each attempt, three digits."""


class Design(Frozen):
    """What an ablation does; its results follow from this and the recordings."""

    tasks: tuple[str, ...]
    """Tasks with enough headroom."""
    left_out: dict[str, float]
    """The others, with their headroom."""
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    budget: int
    target: float = ENOUGH
    backend: Backend
    fixed: Configuration
    """The first draft of the arms without memory."""
    memory: MemoryConfig
    """Constants of every arm with a memory; its policy is the arm's name."""
    is_weak: bool = False
    """Runs on held-out tasks, and all without a memory, have a proposer that knows nothing of what
    techniques are worth; banks are made by the usual one."""


def design(
    recordings: Sequence[Recording],
    arms: Sequence[str] = (),
    seeds: Sequence[int] = tuple(range(20)),
    budget: int = BUDGET,
    memory: MemoryConfig | None = None,
    is_weak: bool = False,
) -> Design:
    """Settle what will be compared, without running anything."""
    counted = [r for r in recordings if r.headroom >= HEADROOM]
    return Design(
        tasks=tuple(r.subject.name for r in counted),
        left_out={r.subject.name: r.headroom for r in recordings if r not in counted},
        arms=tuple(arms) or arms_known(),
        seeds=tuple(seeds),
        budget=budget,
        backend=recordings[0].subject.backend,
        fixed=best_fixed(counted) if counted else {},
        memory=memory or MemoryConfig(),
        is_weak=is_weak,
    )


def arms_known() -> tuple[str, ...]:
    """Every arm: without memory, each policy of a memory, and the oracle."""
    return (*WITHOUT, *(name for name in POLICIES if name != CONTROL), ORACLE)


class Shops(NamedTuple):
    """Where the runs of a design are carried out; the same for parts of it."""

    strong: Workshop
    """With the usual proposer."""
    weak: Workshop
    """With the one that held-out tasks get."""


def shops(plan: Design, recordings: Sequence[Recording]) -> Shops:
    """Get a design's tasks ready; `recordings` are of its tasks, at least."""
    counted = [r for r in recordings if r.subject.name in plan.tasks]
    strong = Workshop(counted)
    return Shops(strong, Workshop(counted, is_weak=True) if plan.is_weak else strong)


def ablate(plan: Design, where: Shops, heard: Heard = lambda text: None) -> tuple[Outcome, ...]:
    """Carry a design out.

    Args:
        plan: From `design`.
        where: From `shops`.
        heard: Told after each arm and seed.
    """
    outcomes: list[Outcome] = []
    for arm in plan.arms:
        for seed in plan.seeds:
            outcomes += _Stream(plan, where, arm, seed).outcomes()
            heard(f"{arm}, seed {seed}")
    return tuple(outcomes)


class _Stream:
    """One arm with one seed, through all tasks."""

    def __init__(self, plan: Design, where: Shops, arm: str, seed: int) -> None:
        self._plan = plan
        self._strong, self._weak = where
        self._arm = arm
        self._seed = seed
        tasks = list(plan.tasks)
        random.Random(f"stream {seed}").shuffle(tasks)
        self._tasks = tuple(tasks)
        self._half = len(tasks) // 2

    def outcomes(self) -> Iterator[Outcome]:
        if self._arm in WITHOUT:
            # Nothing is carried from task to task, so that both settings are the same runs.
            for place, task in enumerate(self._tasks, 1):
                course = self._alone(task)
                yield self._outcome(task, place, "adaptation", course)
                if place > self._half:
                    yield self._outcome(task, place, "transfer", course)
        else:
            with tempfile.TemporaryDirectory(dir=scratch()) as folder:
                yield from self._learning(Path(folder))

    def _learning(self, folder: Path) -> Iterator[Outcome]:
        is_oracle = self._arm == ORACLE
        config = self._plan.memory.model_copy(
            update={"policy": "evokernel" if is_oracle else self._arm}
        )
        bank = folder / "bank"
        for place, task in enumerate(self._tasks[: self._half], 1):
            # Closed after each run, as in life: then a memory puts its bank in order.
            with memory_at(bank, config) as memory:
                course = self._run(self._strong, task, memory, config)
            if not is_oracle:
                yield self._outcome(task, place, "adaptation", course)
        for place, task in enumerate(self._tasks[self._half :], self._half + 1):
            frozen = folder / f"frozen-{place}"
            shutil.copytree(bank, frozen)
            with memory_at(frozen, config) as memory:
                if is_oracle:
                    course = self._informed(task, memory)
                else:
                    course = self._run(self._weak, task, memory, config)
            yield self._outcome(task, place, "transfer", course)
            shutil.rmtree(frozen)
        if is_oracle:
            return
        for place, task in enumerate(self._tasks[self._half :], self._half + 1):
            with memory_at(bank, config) as memory:
                course = self._run(self._strong, task, memory, config)
            yield self._outcome(task, place, "adaptation", course)

    def _run(self, shop: Workshop, task: str, memory: Memory, config: MemoryConfig) -> Course:
        label = f"{self._arm}-{self._seed}"
        return shop.run(task, memory, config, self._seed, self._plan.budget, label)

    def _alone(self, task: str) -> Course:
        plan = self._plan
        if self._arm in SEARCHES:
            search = SEARCHES[self._arm]
            return self._weak.search(task, search, plan.fixed, self._seed, plan.budget)
        first = plan.fixed if self._arm == CONTROL else None
        return self._unaided(task, first)

    def _unaided(self, task: str, first: Configuration | None) -> Course:
        """A run without memory, as the workflow has it."""
        config = self._plan.memory.model_copy(update={"policy": "none"})
        with memory_at(None, config) as memory:
            return self._weak.run(
                task, memory, config, self._seed, self._plan.budget, "alone", first
            )

    def _informed(self, task: str, memory: Memory) -> Course:
        """A run without memory whose first draft is the bank's best plan for this task."""
        recording = self._weak.recordings[task]
        kernels = memory.list(kind="kernel", status=ExperienceStatus.ACTIVE)
        plans = (read_plan(e.experience.payload.get("source", "")) for e in kernels)
        found = [plan.choices for plan in plans if plan is not None]
        best = max(found, key=lambda choices: share(choices, recording), default=None)
        return self._unaided(task, best)

    def _outcome(self, task: str, place: int, setting: Setting, course: Course) -> Outcome:
        return Outcome(
            arm=self._arm,
            setting=setting,
            seed=self._seed,
            task=task,
            place=place,
            needed=course.needed(self._plan.target),
            first=course.tried[0] if course.tried else 0.0,
            final=course.final,
            area=course.area(self._plan.budget),
            held=tuple(round(share, 3) for share in course.kept),
        )


def memory_at(path: Path | None, config: MemoryConfig) -> Memory:
    """A memory without a vector index: all experiences of a study are compared exactly."""
    journal = Journal.open(path)
    config = config.model_copy(update={"path": path})
    return Memory(config, journal, None, StructuralEmbedder())


def scratch() -> str | None:
    """A folder in main memory where there is one: banks are copied thousands of times."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() else None
