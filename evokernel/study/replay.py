"""Owns the replay of a recording: an evaluator that draws, and a proposer that stays inside.

Everything else of a run is the real thing: the nodes and routes of the workflow, selection of start
points, memory with its journal, policies and rewards, and the templates' search with its advice.
Replaced are compiling, checking and timing (drawn from the recording), the second look (drawn anew,
and always confirmed: the recorded kernels are right), and the run folder, which lies in memory.
"""

import random
from collections.abc import Iterator
from typing import Self

from evokernel.attempt import Candidate, Proposal, Stage
from evokernel.bench import Baseline, Claim, Facts, Heard, nobody
from evokernel.errors import EvoKernelError
from evokernel.evaluation import Evaluation, Promotion
from evokernel.proposers import Request
from evokernel.proposers.templates.advice import Advice
from evokernel.proposers.templates.choices import Plan, Value, read_plan
from evokernel.proposers.templates.proposer import TemplateProposer, dice
from evokernel.proposers.templates.search import Search
from evokernel.proposers.templates.template import Template
from evokernel.study.draws import Drawn, answer
from evokernel.study.recording import Recording
from evokernel.tuning import Tuning


class RecordedEvaluator:
    """Implements `Evaluator` with verdicts drawn from a recording.

    Args:
        recording: A task's declared space, measured whole.
        seed: Fixes every draw.
    """

    def __init__(self, recording: Recording, seed: str) -> None:
        self._recording = recording
        self._rng = random.Random(seed)
        sha = recording.task().sha
        self._points = {
            line: Drawn(recording, point, sha) for line, point in recording.by_plan.items()
        }

    def baselines(self) -> tuple[Baseline, ...]:
        """The reference as it was recorded beside the kernels."""
        times = [ms for p in self._recording.points for ms in p.eager_ms]
        return (Baseline(name="eager", median_ms=sorted(times)[len(times) // 2], seconds=0.0),)

    def tune(self, candidate: Candidate, heard: Heard = nobody) -> Tuning | None:
        """Nothing is left open in a recorded plan."""
        return None

    def compile(self, candidate: Candidate) -> Evaluation | None:
        """The recorded failure, where it did not compile."""
        drawn = self.drawn(candidate)
        if drawn.point.status.value.startswith("compile"):
            return drawn.evaluation(candidate, self._rng)
        return None

    def verify(self, candidate: Candidate) -> Evaluation:
        """The recorded status, and a time drawn anew."""
        return self.drawn(candidate).evaluation(candidate, self._rng)

    def profile(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """With the recorded digest."""
        return evaluation.model_copy(update={"profile": self.drawn(candidate).profile()})

    def promote(self, claims: tuple[Claim, ...]) -> tuple[Promotion, ...]:
        """Look again at each claim, from fresh draws."""
        return tuple(self._again(claim) for claim in claims)

    def facts(self) -> Facts:
        """Where the recording was made."""
        made = self._recording
        return Facts(
            harness=made.harness,
            device=made.device,
            peaks=made.machine,
            system="recorded",
            python="recorded",
            torch=made.tools,
            compiler=made.tools,
            threads=made.subject.threads,
            protections={},
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """That nothing is measured."""
        return ("times are drawn from a recording",)

    def drawn(self, candidate: Candidate) -> Drawn:
        """The point of a candidate.

        Raises:
            EvoKernelError: its plan is not in the recording.
        """
        plan = read_plan(candidate.source)
        if plan is None or plan.line not in self._points:
            name = self._recording.subject.name
            raise EvoKernelError(
                f"the recording of `{name}` has no plan {plan.line if plan else 'like this'}: "
                "templates have changed since; record it anew (`evokernel memory record`)"
            )
        return self._points[plan.line]

    def _again(self, claim: Claim) -> Promotion:
        parent = self.drawn(claim.parent) if claim.parent else None
        parent_sha = claim.parent.sha if claim.parent else None
        child = self.drawn(claim.candidate)
        return answer(claim.kind, child, claim.candidate.sha, parent, parent_sha, self._rng)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to end."""


class DeclaredTemplate(Template):
    """The template of a recorded task, with the declared space in place of the whole one."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording.task(), recording.graph(), recording.subject.backend)
        self.space = recording.subject.space


class WeakTemplate(DeclaredTemplate):
    """The same for a proposer that knows nothing of what techniques are worth."""

    def promise(self, technique: str) -> float:
        """Nothing, whatever the technique."""
        return 0.0


class DeclaredProposer(TemplateProposer):
    """The templates' proposer inside the declared spaces of some tasks.

    Args:
        templates: Of every task that will be asked for.
        first: Choices that the first draft of every run has; without them, what memory or the
            templates put first.
    """

    def __init__(
        self, templates: tuple[DeclaredTemplate, ...], first: dict[str, Value] | None = None
    ) -> None:
        super().__init__()
        self._first = first
        for template in templates:
            key = (template.backend, template.task.sha, template.graph.fingerprint)
            self._templates[key] = template

    def propose(self, request: Request) -> Proposal:
        """Write one candidate, never one that was tried."""
        if self._first is not None and request.stage is Stage.DRAFT and not request.parents:
            template = self._template(request.task, request.graph, request.backend)
            for plan in _around(template, self._first, dice(request)):
                candidate = template.candidate(plan)
                if candidate.sha not in request.tried:
                    return _given(template, plan, candidate)
        return super().propose(request)


def _around(template: Template, first: dict[str, Value], lots: random.Random) -> Iterator[Plan]:
    """The given draft, then what the templates draft next where they know of a proven plan."""
    plan = template.space.settle(first)
    yield plan
    near = Search(template.space, template.promise, Advice(), lots)
    yield from (step.plan for step in near.moves(plan, "unknown", (), None))


def _given(template: Template, plan: Plan, candidate: Candidate) -> Proposal:
    return Proposal(
        candidate=candidate,
        stage=Stage.DRAFT,
        techniques=template.space.techniques(plan),
        rationale="The first draft of every task, or near it.",
    )
