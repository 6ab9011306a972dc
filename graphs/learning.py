"""Owns what a closed step leaves behind: its reward, its experiences, its place among start points.

Every write to memory carries the step's id and counts once; the step is closed last, so that a run
killed in between does all of it again without effect.
"""

import math
from collections.abc import Mapping

from evokernel.attempt import Attempt, Proposal, Stage
from evokernel.evaluation import Evaluation
from evokernel.graphs import claims, niches
from evokernel.graphs.selection import Plan
from evokernel.graphs.state import Services
from evokernel.memory import credit
from evokernel.memory.harvest import Scene, harvest
from evokernel.memory.rewards import Reward, draft_reward, refine_reward
from evokernel.prompts import guide
from evokernel.record import RunRecord


def scene(services: Services, proposer: str | None = None) -> Scene:
    """What all experiences of the run have in common."""
    graph, header = services.graph, services.record.header
    environment = header.environment
    tools = [f"{name} {environment[name]}" for name in TOOLS if name in environment]
    return Scene(
        run=header.id,
        task=services.task.name,
        family=graph.family if graph else "unknown",
        fingerprint=graph.fingerprint if graph else services.task.sha,
        proposer=proposer or services.proposer.name,
        tools=", ".join(tools),
        label=header.label,
    )


TOOLS = ("harness", "torch", "compiler")
"""Entries of the run's environment that change how fast a kernel is."""


def learn(services: Services, number: int) -> Attempt:
    """Write down one step, and close it."""
    record = services.record
    plan = record.load(number, "plan", Plan)
    proposal, evaluation = record.proposal(number), record.evaluation(number)
    earlier = tuple(a for a in record.attempts() if a.number < number)
    known = claims.first_with(earlier)
    twin = known.get(proposal.candidate.sha)
    parent = known.get(proposal.parents[0]) if proposal.parents else None
    # Nothing is earned by repeating a candidate, nor by the user's own kernels: nobody chose them.
    earns = twin is None and plan.start is None
    reward = _reward(proposal, evaluation, earlier, parent) if earns else None
    attempt = Attempt(
        number=number,
        step=plan.step,
        trajectory=plan.trajectory,
        proposal=proposal,
        evaluation=evaluation,
        shown=plan.shown,
        reward=reward.value if reward else None,
    )
    if reward and plan.shown:
        reward = reward.model_copy(update={"weights": _weights(services, attempt, known)})
    with services.memory.together():
        if twin is None and proposal.fault is None:  # a reply without a candidate teaches nothing
            author = None if plan.start is None else "user"
            experiences = harvest(attempt, scene(services, author), parent)
            services.memory.add(experiences, plan.step, services.graph)
            _enter_start_point(services, attempt, reward)
        if reward:
            _give(services, attempt, reward)
    record.close_attempt(attempt, twin.number if twin else None)
    return attempt


def best_before(record: RunRecord, number: int) -> Attempt | None:
    """The fastest feasible attempt before this one."""
    return _fastest(tuple(a for a in record.attempts() if a.number < number))


def _reward(
    proposal: Proposal,
    evaluation: Evaluation,
    earlier: tuple[Attempt, ...],
    parent: Attempt | None,
) -> Reward | None:
    fastest = _fastest(earlier)
    if proposal.stage is Stage.DRAFT or fastest is None or fastest.median_ms is None:
        return draft_reward(evaluation)
    return refine_reward(evaluation, fastest.median_ms, parent.median_ms if parent else None)


def _fastest(attempts: tuple[Attempt, ...]) -> Attempt | None:
    fastest, best_ms = None, math.inf
    for attempt in attempts:
        if (ms := attempt.median_ms) is not None and ms < best_ms:
            fastest, best_ms = attempt, ms
    return fastest


def _enter_start_point(services: Services, attempt: Attempt, reward: Reward | None) -> None:
    if attempt.median_ms is not None:
        services.memory.record_start(
            services.record.id,
            attempt.step,
            attempt.proposal.candidate.sha,
            attempt.median_ms,
            niches.niche(attempt),
            reward.gain or 0.0 if reward else 0.0,
        )


def _weights(
    services: Services, attempt: Attempt, known: Mapping[str, Attempt]
) -> dict[str, float]:
    """Who of those shown contributed; code that the author had anyway proves nothing."""
    shown = [
        services.recalled.get(id) or services.memory.get(id).experience for id in attempt.shown
    ]
    parents = [
        known[sha].proposal.candidate.source for sha in attempt.proposal.parents if sha in known
    ]
    had = (*parents, services.task.source, guide(attempt.proposal.candidate.backend))
    return credit.weights(shown, attempt.proposal, had)


def _give(services: Services, attempt: Attempt, reward: Reward) -> None:
    """Reward what was shown, and the start points that were edited.

    A reply without a candidate says nothing about the start point that it was asked to edit.
    """
    services.memory.reinforce(attempt.step, attempt.proposal.stage, reward)
    if attempt.proposal.stage is Stage.REFINE and attempt.proposal.fault is None:
        for sha in attempt.proposal.parents:
            services.memory.reward_start(services.record.id, attempt.step, sha, reward)
