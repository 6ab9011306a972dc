"""Owns what memory and the proposer are asked in one step."""

from collections.abc import Iterator, Mapping

from evokernel.attempt import Attempt, Backend, Candidate, Proposal, Stage, Usage
from evokernel.bench import HARNESS
from evokernel.evaluation import Evaluation, Status
from evokernel.graphs import claims, learning
from evokernel.graphs.aids import StepAids
from evokernel.graphs.selection import Plan
from evokernel.graphs.state import Services
from evokernel.memory.environment import Environment
from evokernel.memory.experience import Experience
from evokernel.memory.harvest import harvest
from evokernel.memory.retrieval import Query
from evokernel.opgraph import OpGraph
from evokernel.program.description import further_shapes
from evokernel.proposers import Exhausted, Request
from evokernel.proposers.aids import Aided
from evokernel.wording import milliseconds


def informed(services: Services, plan: Plan) -> Plan:
    """The plan with what memory brings back for it; the user's own kernel is in need of nothing."""
    if plan.start is not None:
        return plan
    retrieval = services.memory.recall(_query(services, plan))
    services.recalled.update(zip(retrieval.ids, retrieval.experiences, strict=True))
    return plan.model_copy(update={"shown": retrieval.ids})


def proposal(services: Services, plan: Plan) -> Proposal:
    """Get the step's candidate, from the user's own kernels or from the proposer.

    Raises:
        Exhausted: the proposer has nothing new for this plan.
    """
    return _given(services, plan) or _asked(services, plan)


def nothing_to_judge(services: Services, proposal: Proposal) -> Evaluation:
    """The verdict on a reply that holds no candidate."""
    return Evaluation(
        candidate=proposal.candidate.sha,
        task=services.task.sha,
        status=Status.INVALID_SOURCE,
        reason=proposal.fault.reason if proposal.fault else "",
        harness=HARNESS,
    )


def _query(services: Services, plan: Plan) -> Query:
    parent = _attempt_of(services, plan.parents[0]) if plan.parents else None
    profile = parent.evaluation.profile if parent else None
    scene = learning.scene(services)
    return Query(
        task=services.task.name,
        graph=services.graph,
        stage=plan.stage,
        backend=services.config.backend,
        family=scene.family,
        fingerprint=scene.fingerprint,
        bottleneck=profile.bound_by if profile else "unknown",
        techniques=parent.proposal.techniques if parent else (),
        run=services.record.id,
        step=plan.step,
        seed=services.config.search.seed,
        environment=Environment(
            device=services.record.header.environment.get("device", ""),
            tools=scene.tools,
            proposer=scene.proposer,
        ),
        spent=min(1.0, (plan.number - 1) / services.config.budget.attempts),
        # A start point is in the request already; nobody needs to be shown it twice.
        exclude=() if parent is None else tuple(e.id for e in harvest(parent, scene)),
    )


def _given(services: Services, plan: Plan) -> Proposal | None:
    """The user's own kernel, where that is the step."""
    if plan.start is None:
        return None
    source = services.record.start(plan.start)
    candidate = Candidate(source=source, backend=services.config.backend)
    return Proposal(candidate=candidate, stage=Stage.DRAFT, rationale=plan.why)


def _asked(services: Services, plan: Plan) -> Proposal:
    """Ask the proposer; two start points that cannot be combined leave the first to be edited."""
    record = services.record
    began = record.elapsed()
    parents = plan.parents
    try:
        proposal = _answer(services, plan, parents)
    except Exhausted:
        if len(parents) < 2:
            raise
        parents = parents[:1]
        proposal = _answer(services, plan, parents)
    usage = proposal.usage
    if not usage.seconds:
        usage = Usage(**{**usage.model_dump(), "seconds": round(record.elapsed() - began, 4)})
    # What the step was for is ours to say: a reply may claim anything.
    return proposal.model_copy(update={"stage": plan.stage, "parents": parents, "usage": usage})


def _answer(services: Services, plan: Plan, parents: tuple[str, ...]) -> Proposal:
    request, author = _request(services, plan, parents), services.proposer
    with services.stop.waiting():
        if isinstance(author, Aided):
            return author.propose_aided(request, StepAids(services, plan))
        return author.propose(request)


def _request(services: Services, plan: Plan, parents: tuple[str, ...]) -> Request:
    attempts = services.record.attempts()
    children = (a for a in attempts if a.proposal.parents[:1] == parents[:1])
    config = services.config
    return Request(
        task=services.task,
        graph=services.graph,
        backend=config.backend,
        stage=plan.stage,
        step=plan.step,
        seed=plan.seed,
        parents=tuple(_attempt_of(services, sha) for sha in parents),
        children=tuple(children),
        tried=tuple(claims.first_with(attempts)),
        history=attempts,
        workloads=further_shapes(services.task),
        shown=tuple(_experience(services, id) for id in plan.shown),
        values={id: services.memory.value(id, plan.stage) for id in plan.shown},
        machine=facts(services.record.header.environment, config.backend, services.graph),
        baselines=services.record.baselines() or {},
        contract=services.task.options.contract or config.bench.contract,
    )


def facts(
    environment: Mapping[str, str], backend: Backend, graph: OpGraph | None = None
) -> tuple[str, ...]:
    """What the environment of a run says of the device, in words, and what follows for the task.

    A GPU's kernels need nothing of the processor; a compiler is told without its place and hashes.
    """
    hidden = set[str]() if backend == "cpp" else {"vectors", "caches"}
    told = tuple(
        f"{words}: {_without_place(environment[name])}"
        for name, words in FACTS.items()
        if environment.get(name) and name not in hidden
    )
    return told if graph is None else (*told, *_floor(environment, graph))


def _floor(environment: Mapping[str, str], graph: OpGraph) -> Iterator[str]:
    """How long the bytes take that nobody avoids: what a prediction of speed starts from."""
    if rate := float(environment.get("memory_gbytes_per_s", 0)):
        least = milliseconds(graph.min_bytes / rate / 1e6)
        yield f"Least traffic of the task at the rate from memory: {least}"


def _without_place(fact: str) -> str:
    return next((part for part in fact.split(" | ") if not part.startswith("/")), fact)


FACTS = {
    "peaks": "Device and measured peaks",
    "vectors": "Vector instructions",
    "caches": "Caches of its first core",
    "compiler": "Compiler",
    "torch": "PyTorch",
}
"""Entries of the run's environment that whoever writes kernels has to know."""


def _experience(services: Services, id: str) -> Experience:
    return services.recalled.get(id) or services.memory.get(id).experience


def _attempt_of(services: Services, sha: str) -> Attempt:
    return claims.first_with(services.record.attempts())[sha]
