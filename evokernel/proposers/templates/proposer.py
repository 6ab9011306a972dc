"""Owns `TemplateProposer`: candidates without a model, from the operator graph and from memory."""

import hashlib
import random
from collections.abc import Iterator

from evokernel.attempt import Attempt, Backend, Candidate, Proposal, Stage
from evokernel.errors import NoTemplate
from evokernel.evaluation import Evaluation
from evokernel.opgraph import OpGraph
from evokernel.proposers import Exhausted, Request
from evokernel.proposers.templates.advice import Advice
from evokernel.proposers.templates.choices import Plan, read_plan, tuned
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.languages import LANGUAGES
from evokernel.proposers.templates.search import Search, Step
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

_COVERED = (
    "The templates write point-wise chains, reductions, normalisations, softmax and scans along "
    "any dimensions, losses, pooling, and products of matrices and convolutions with point-wise "
    f"work around them, in {', '.join(f'`{backend}`' for backend in LANGUAGES)}"
)
_INSTEAD = (
    "Let a model write the candidates: `--model NAME`, e.g. `--model openai/gpt-5`, or a local "
    "server with `--base-url`; any task is served (docs/models.md)."
)


class TemplateProposer:
    """Writes candidates by matching the operator graph; implements `Proposer`.

    A draft is what a competent engineer writes first, unless memory shows a proven plan. A
    refinement changes one or two choices of its parent, or recombines two parents.
    """

    name = "templates"

    def __init__(self) -> None:
        self._templates: dict[tuple[str, str, str], Template] = {}

    def check(self, task: Task, graph: OpGraph | None, backend: Backend) -> None:
        """Refuse a task that no template covers.

        Raises:
            NoTemplate: names the operator that is missing and what to do instead.
        """
        self._template(task, graph, backend)

    def propose(self, request: Request) -> Proposal:
        """Write one candidate, never one that was tried.

        Raises:
            Exhausted: every plan near the parent was tried.
            NoTemplate: no template covers the task.
        """
        template = self._template(request.task, request.graph, request.backend)
        for step in self._steps(template, request):
            candidate = template.candidate(step.plan)
            if candidate.sha not in request.tried:
                return _proposal(template, request, step, candidate)
        raise Exhausted(f"every plan near `{request.step}` was tried")

    def _template(self, task: Task, graph: OpGraph | None, backend: Backend) -> Template:
        if backend not in LANGUAGES:
            raise NoTemplate(
                f"The templates cannot write `{backend}`. {_COVERED}: use `--backend cpp`. "
                f"{_INSTEAD}"
            )
        if graph is None:
            raise NoTemplate(
                f"There is no template for `{task.name}`: its reference could not be captured as "
                f"an operator graph, so nothing can be matched. {_INSTEAD}"
            )
        key = (backend, task.sha, graph.fingerprint)
        if key not in self._templates:
            try:
                template = Template(task, graph, backend)
                template.source(template.space.plain())
            except Unsupported as why:
                raise NoTemplate(
                    f"There is no template for `{task.name}`: {why}. {_COVERED}. {_INSTEAD}"
                ) from why
            self._templates[key] = template
        return self._templates[key]

    def _steps(self, template: Template, request: Request) -> Iterator[Step]:
        search = Search(
            template.space,
            template.promise,
            Advice.of(request.shown, template.space),
            dice(request),
        )
        if request.stage is Stage.DRAFT:
            return _drafts(search, request)
        return _refinements(search, template, request)


def _drafts(search: Search, request: Request) -> Iterator[Step]:
    failed = request.parents[0] if request.parents else None
    plan = read_plan(failed.proposal.candidate.source) if failed else None
    if failed is None or plan is None:
        return search.drafts()
    return search.repairs(plan, f"the last attempt ended as {failed.evaluation.status}")


def _refinements(search: Search, template: Template, request: Request) -> Iterator[Step]:
    known = [(p, plan) for p in request.parents if (plan := _plan_of(p, template))]
    if not known:
        yield from search.drafts()
        return
    if len(known) > 1:
        yield from search.recombinations(known[0][1], known[1][1])
    parent, plan = known[0]
    bound_by = _bound_by(parent.evaluation)
    yield from search.moves(plan, bound_by, request.children, parent.median_ms)


def _plan_of(attempt: Attempt, template: Template) -> Plan | None:
    plan = read_plan(attempt.proposal.candidate.source)
    if plan is None or plan.family != template.space.family:
        return None
    return template.space.settle(tuned(plan, attempt.proposal.candidate.source).choices)


def _bound_by(evaluation: Evaluation) -> str:
    return evaluation.profile.bound_by if evaluation.profile else "unknown"


def dice(request: Request) -> random.Random:
    """Random numbers of a step: the same for the same seed and step."""
    digest = hashlib.sha256(f"{request.seed}\n{request.step}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "little"))


def _proposal(template: Template, request: Request, step: Step, candidate: Candidate) -> Proposal:
    techniques = template.space.techniques(step.plan)
    return Proposal(
        candidate=candidate,
        stage=request.stage,
        parents=tuple(p.proposal.candidate.sha for p in request.parents[: step.parents]),
        techniques=techniques,
        changed=step.changed,
        used=step.used,
        rationale=step.reason[0].upper() + step.reason[1:] + ".",
    )
