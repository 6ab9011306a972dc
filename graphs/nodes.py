"""Owns the steps of the workflow: one plain function each, safe to run again at any time.

A node first looks into the run folder whether its result lies there already. So a proposal is paid
for once, a kernel measured once and a reward given once, however often a resumed run comes by.
"""

import json
from collections.abc import Callable
from typing import TypeVar

from langgraph.runtime import Runtime

from evokernel.bench import Claim
from evokernel.errors import WorkerError
from evokernel.evaluation import Evaluation, Promotion, Status
from evokernel.frozen import Frozen
from evokernel.graphs import claims, learning, niches, requests, selection, stop_rules, tuning
from evokernel.graphs.selection import Plan
from evokernel.graphs.state import Services, State
from evokernel.graphs.stop_rules import EXHAUSTED, End
from evokernel.proposers import BudgetSpent, Exhausted

Verdict = TypeVar("Verdict", Evaluation, Evaluation | None)

SKIPPED = "skipped"
"""`State.status` of a step for which the proposer had nothing new."""


class Compiled(Frozen):
    """`compiled.json`: every kernel of the candidate was built."""

    candidate: str


def prepare(state: State, runtime: Runtime[Services]) -> State:
    """Time the baselines."""
    services = runtime.context
    if services.record.baselines() is None:
        with services.stop.waiting():
            measured = services.evaluator.baselines()
            facts = services.evaluator.facts()
        environment = facts.model_dump(mode="json", exclude={"protections"}, exclude_none=True)
        protections = json.dumps(facts.protections)
        services.record.add_environment(
            {name: str(fact) for name, fact in environment.items()} | {"protections": protections}
        )
        for note in services.evaluator.notes:
            services.record.event("note", text=note)
        times = {baseline.name: baseline.median_ms for baseline in measured}
        services.record.save_baselines(times)
        seconds = round(sum(baseline.seconds for baseline in measured), 3)
        walls = {each.name: each.wall_ms for each in measured if each.wall_ms is not None}
        services.record.event("baselines", median_ms=times, wall_ms=walls, seconds=seconds)
    return {}


def retrieve(state: State, runtime: Runtime[Services]) -> State:
    """Decide on the next step, and ask memory what helped before."""
    services = runtime.context
    record = services.record
    if reason := state.get("reason"):
        return _ending(services, End(rule="budget", reason=reason))
    if end := stop_rules.ended(record):
        return _ending(services, end)
    number = record.next_number()
    if record.has(number, "plan"):
        plan = record.load(number, "plan", Plan)
    elif (found := selection.plan(record, services.memory)) is None:
        return _ending(services, EXHAUSTED)
    else:
        plan = requests.informed(services, found)
        record.save(number, "plan", plan)
        record.event("step", **plan.model_dump(mode="json", exclude={"seed", "step", "option"}))
    return {"number": number, "stage": plan.stage.value, "status": "", "is_best": False}


def _ending(services: Services, end: End) -> State:
    """Note once which rule ends the run; what is still open is settled afterwards."""
    record = services.record
    if not any(event["kind"] == "stopping" for event in record.events()):
        best = {name: attempt.number for name, attempt in niches.archive(record).items()}
        record.event("stopping", rule=end.rule, reason=end.reason, niches=best)
    return {"reason": end.reason}


def draft(state: State, runtime: Runtime[Services]) -> State:
    """Get a kernel written from nothing, or a failed draft repaired."""
    return _propose(state, runtime.context)


def refine(state: State, runtime: Runtime[Services]) -> State:
    """Get a start point edited, or two recombined."""
    return _propose(state, runtime.context)


def _propose(state: State, services: Services) -> State:
    record, number = services.record, state["number"]
    if record.has(number, "proposal"):
        return {}
    plan = record.load(number, "plan", Plan)
    try:
        proposal = requests.proposal(services, plan)
    except Exhausted:
        record.close_in_vain(number, plan.option)
        record.event("skipped", number=number, why=plan.why)
        return {"status": SKIPPED}
    except BudgetSpent as end:
        return {"status": SKIPPED, "reason": str(end)}
    record.save_proposal(number, proposal)
    record.event(
        "proposed",
        number=number,
        candidate=proposal.candidate.sha,
        techniques=list(proposal.techniques),
        changed=list(proposal.changed),
        rationale=proposal.rationale,
        usage=proposal.usage.model_dump(mode="json"),
    )
    return {}


def compile(state: State, runtime: Runtime[Services]) -> State:
    """Build every kernel of the candidate; one that was judged before is not judged again."""
    services, number = runtime.context, state["number"]
    record = services.record
    if record.has(number, "evaluation"):
        return {"status": _failure(record.evaluation(number))}
    if record.has(number, "compiled"):
        return {}
    proposal = record.proposal(number)
    if proposal.fault:
        return _judged(services, number, requests.nothing_to_judge(services, proposal))
    candidate = tuning.tuned(services, number)
    if twin := claims.first_with(record.attempts()).get(candidate.sha):
        record.event("repeats", number=number, of=twin.number)
        return _judged(services, number, twin.evaluation)
    failed = _undisturbed(services, number, lambda: services.evaluator.compile(candidate))
    if failed:
        return _judged(services, number, failed)
    record.save(number, "compiled", Compiled(candidate=candidate.sha))
    record.event("compiled", number=number)
    return {}


def verify(state: State, runtime: Runtime[Services]) -> State:
    """Judge the candidate: right, by its own means, and how fast."""
    services, number = runtime.context, state["number"]
    record = services.record
    if record.has(number, "evaluation"):
        return {"status": _failure(record.evaluation(number))}
    candidate = record.proposal(number).candidate
    evaluation = _undisturbed(services, number, lambda: services.evaluator.verify(candidate))
    return _judged(services, number, evaluation)


def _undisturbed(services: Services, number: int, judge: Callable[[], Verdict]) -> Verdict:
    """Repeat what the machine has spoiled; that is neither charged nor rewarded.

    Raises:
        WorkerError: when the machine spoils one evaluation too often. The step stays open.
    """
    retries = services.config.budget.retries
    for attempt in range(1 + retries):
        with services.stop.waiting():
            evaluation = judge()
        if evaluation is None or evaluation.status.is_charged:
            return evaluation
        reason = evaluation.reason
        services.record.event("disturbed", number=number, attempt=attempt + 1, reason=reason)
    raise WorkerError(
        f"attempt {number} could not be judged: the machine spoiled it {1 + retries} times, the "
        f"last time because {reason or 'it was disturbed'}. Stop other programs that keep it busy "
        f"(of a virtual machine, others on its host may be), then resume `{services.record.id}`; a "
        "run with `--quick` takes disturbed measurements, too, and says so"
    )


def _judged(services: Services, number: int, evaluation: Evaluation) -> State:
    record = services.record
    record.save_evaluation(number, evaluation)
    began_on = record.header.environment.get("device")
    if evaluation.device and began_on and evaluation.device != began_on:
        text = f"measured on {evaluation.device}; the run began on {began_on}: times differ"
        record.event("note", text=text)
    timing = evaluation.timing
    speedups = {s.against: round(s.ratio.value, 4) for s in timing.speedups} if timing else {}
    record.event(
        "evaluated",
        number=number,
        status=evaluation.status.value,
        reason=evaluation.reason,
        median_ms=timing.median_ms if timing else None,
        wall_ms=timing.wall_ms if timing else None,
        speedups=speedups,
    )
    return {"status": _failure(evaluation)}


def _failure(evaluation: Evaluation) -> str:
    return "" if evaluation.status is Status.PASSED else evaluation.status.value


def profile(state: State, runtime: Runtime[Services]) -> State:
    """Say what bounds the kernel."""
    services, number = runtime.context, state["number"]
    record = services.record
    evaluation = record.evaluation(number)
    if evaluation.profile is None:
        candidate = record.proposal(number).candidate
        with services.stop.waiting():
            digest = services.evaluator.profile(candidate, evaluation).profile
        if digest:
            record.save_profile(number, digest)
            record.event(
                "profiled", number=number, bound_by=digest.bound_by, limits=list(digest.limits)
            )
    return {}


def learn(state: State, runtime: Runtime[Services]) -> State:
    """Reward what was shown, keep what the step teaches, and close it."""
    services, number = runtime.context, state["number"]
    record = services.record
    dethroned = learning.best_before(record, number)
    attempt = learning.learn(services, number)
    best = record.best()
    is_best = best is not None and best.number == number
    if is_best:
        record.save_best(attempt)
    record.event(
        "attempt",
        number=number,
        reward=attempt.reward,
        is_best=is_best,
        trajectory=attempt.trajectory,
        niche=niches.niche_in(record, number),
    )
    # The very first kernel overthrows nothing, so its second look can wait for the others'; but
    # nothing may end on the strength of a kernel that was looked at once.
    is_enough = is_best and stop_rules.is_at_roofline(record, attempt)
    return {"is_best": is_best and (dethroned is not None or is_enough)}


def promote(state: State, runtime: Runtime[Services]) -> State:
    """Look again, in fresh processes, at a new best kernel; at the end at everything still open."""
    services = runtime.context
    record = services.record
    only = None if state.get("reason") else record.attempt(state["number"])
    if open_claims := claims.pending(record, only):
        record.event("promoting", claims=len(open_claims))
        answers = _answers(services, open_claims)
        held = sum(answer.holds for answer in answers)
        record.event("promoted", claims=len(open_claims), answered=len(answers), hold=held)
    for index, batch in enumerate(record.batches(), start=1):
        # Also those of earlier processes, which may have died before memory was told; it counts
        # each of them once.
        if index not in services.told:
            services.memory.promote(record.id, batch, f"{record.id}/promotion-{index}")
            services.told.add(index)
    if best := record.best():
        record.save_best(best)
    return {"is_best": False}


def _answers(services: Services, open_claims: tuple[Claim, ...]) -> list[Promotion]:
    """Store the answers batch by batch, so that a kill costs one; a spoiled claim stays open."""
    answers: list[Promotion] = []
    for group in claims.batches(open_claims):
        with services.stop.waiting():
            batch = services.evaluator.promote(group)
        if batch:
            services.record.save_promotions(batch)
            answers += batch
    return answers
