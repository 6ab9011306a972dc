"""Owns one simulated run: the real workflow on a recorded task, or a search without memory."""

import itertools
import random
from collections.abc import Sequence

from evokernel import __version__
from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.frozen import Frozen
from evokernel.graphs.direct import carry_out
from evokernel.graphs.state import Services
from evokernel.memory.store import Memory
from evokernel.proposers.templates.choices import Plan, read_plan
from evokernel.record import RunRecord, SystemClock
from evokernel.record.drawer import Drawer
from evokernel.record.entries import Header
from evokernel.study.draws import VERDICT
from evokernel.study.fixed import Configuration
from evokernel.study.recording import Recording, typical
from evokernel.study.replay import (
    DeclaredProposer,
    DeclaredTemplate,
    RecordedEvaluator,
    WeakTemplate,
)
from evokernel.study.searches import Search

ENOUGH = 0.95
"""Share of the best known speed that is the target."""


class Course(Frozen):
    """How one run went, by all recorded times rather than by what the run saw."""

    tried: tuple[float, ...]
    """Speed of each attempt as a share of the best known, 0..1; 0 where it failed."""
    kept: tuple[float, ...]
    """The same of what the run held for the fastest after each attempt."""

    def needed(self, target: float = ENOUGH) -> int | None:
        """Attempts until the first within the target; None where none was."""
        hits = (n for n, share in enumerate(self.tried, 1) if share >= target)
        return next(hits, None)

    @property
    def final(self) -> float:
        """Speed of what the run ended with, 0..1."""
        return self.kept[-1] if self.kept else 0.0

    def area(self, budget: int) -> float:
        """Mean over the budget of the speed of what was held, 0..1; an early end keeps its last."""
        held = [*self.kept, *[self.final] * (budget - len(self.kept))]
        return sum(held[:budget]) / budget


def _seed_of(seed: int, task: str) -> int:
    """A seed of its own for each run.

    Choices depend on the seed and the step's number: with one seed for a whole stream, the first
    step of every task would draw the same lot.
    """
    return random.Random(f"{seed}/{task}").randrange(1 << 31)


class Workshop:
    """What all simulated runs on some recordings share: parsed tasks, graphs and templates.

    Args:
        recordings: Of the tasks.
        is_weak: The proposer knows nothing of what techniques are worth.
    """

    def __init__(self, recordings: Sequence[Recording], is_weak: bool = False) -> None:
        self.recordings = {recording.subject.name: recording for recording in recordings}
        make = WeakTemplate if is_weak else DeclaredTemplate
        self._templates = {name: make(r) for name, r in self.recordings.items()}
        self._proposers: dict[str, DeclaredProposer] = {}

    def run(
        self,
        name: str,
        memory: Memory,
        config: MemoryConfig,
        seed: int,
        budget: int,
        label: str,
        first: Configuration | None = None,
    ) -> Course:
        """Carry out one run on a recorded task; memory learns from it as from any other.

        Args:
            name: The task.
            memory: What is known before, and learns.
            config: Policy and constants.
            seed: Of the stream; with the task it fixes the run's seed and the draws of times.
            budget: Attempts.
            label: Makes the run's id unique within the memory.
            first: Choices of the first draft; None leaves it to memory and templates.
        """
        recording, template = self.recordings[name], self._templates[name]
        run = RunConfig(
            task=name,
            backend=recording.subject.backend,
            budget=Budget(attempts=budget),
            search=SearchConfig(seed=_seed_of(seed, name)),
            memory=config,
        )
        header = Header(id=f"{label}-{name}", created="", harness=__version__, config=run)
        record = RunRecord(Drawer(header.id), header, SystemClock(), is_writer=True)
        carry_out(
            Services(
                record=record,
                task=template.task,
                graph=template.graph,
                evaluator=RecordedEvaluator(recording, f"{seed}/{name}/times"),
                proposer=self._proposer(first),
                memory=memory,
            )
        )
        attempts = record.attempts()
        sources = [attempt.proposal.candidate.source for attempt in attempts]
        return self._course(
            name, [read_plan(source) for source in sources], [a.median_ms for a in attempts]
        )

    def search(
        self, name: str, search: Search, first: Configuration, seed: int, budget: int
    ) -> Course:
        """Carry out a search without memory on a recorded task."""
        recording = self.recordings[name]
        rng = random.Random(f"{seed}/{name}/times")
        seen: dict[str, float | None] = {}

        def measure(plan: Plan) -> float | None:
            point = recording.by_plan[plan.line]
            times = rng.choices(point.times_ms, k=VERDICT) if point.is_feasible else None
            seen[plan.line] = typical(times) if times else None
            return seen[plan.line]

        dice = random.Random(f"{seed}/{name}/search")
        found = search(recording.subject.space, first, measure, dice)
        tried = list(itertools.islice(found, budget))
        return self._course(name, tried, [seen[plan.line] for plan in tried])

    def _proposer(self, first: Configuration | None) -> DeclaredProposer:
        key = repr(sorted(first.items())) if first is not None else ""
        if key not in self._proposers:
            self._proposers[key] = DeclaredProposer(tuple(self._templates.values()), first)
        return self._proposers[key]

    def _course(
        self, name: str, tried: Sequence[Plan | None], seen: Sequence[float | None]
    ) -> Course:
        recording = self.recordings[name]
        shares, kept, fastest, held = [], [], float("inf"), 0.0
        for plan, ms in zip(tried, seen, strict=True):
            point = recording.by_plan[plan.line] if plan else None
            real = point.typical_ms if point else None
            share = recording.best_ms / real if real else 0.0
            if ms is not None and ms < fastest:
                fastest, held = ms, share
            shares.append(share)
            kept.append(held)
        return Course(tried=tuple(shares), kept=tuple(kept))
