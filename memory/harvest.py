"""Owns which experiences one attempt leaves behind: failures are kept as well as successes."""

import difflib

from evokernel.answers import answers
from evokernel.attempt import Attempt, Stage
from evokernel.evaluation import Evaluation, Interval
from evokernel.frozen import Frozen
from evokernel.memory.experience import (
    Experience,
    Kind,
    Measurement,
    Origin,
    Outcome,
    edit_outcome,
)

MESSAGES = 5
"""Diagnostics kept of a failure: the first ones carry the cause (ours)."""


class Scene(Frozen):
    """What all attempts of one run on one task have in common."""

    run: str
    """Id of the run."""
    task: str
    """Name of the task."""
    family: str
    """Family of its operator graph, `unknown` without one."""
    fingerprint: str
    """Fingerprint of its graph, or the task's content hash without one."""
    proposer: str = "templates"
    """Who writes the candidates."""
    tools: str = ""
    """Fingerprint of compiler, torch and harness."""
    label: str = ""
    """What every result of the run has to carry, such as that the task failed its check."""


def harvest(
    attempt: Attempt, scene: Scene, parent: Attempt | None = None
) -> tuple[Experience, ...]:
    """Write down what one attempt teaches.

    A passed attempt leaves a `kernel`, and with its parent an `edit` (feasible parent) or a `fix`
    (failed parent, now repaired). A failed one leaves a `lesson`.

    Args:
        attempt: The attempt, evaluated (and profiled, where it passed).
        scene: Run and task.
        parent: The attempt it was made from; the first one of a recombination.

    Returns:
        Nothing for an attempt that was not charged: the machine's faults teach nothing.
    """
    evaluation = attempt.evaluation
    if not evaluation.status.is_charged:
        return ()
    if not evaluation.status.is_feasible:
        return (_lesson(attempt, scene),)
    kernel = _kernel(attempt, scene)
    if parent is None or not parent.evaluation.status.is_charged:
        return (kernel,)
    if parent.evaluation.status.is_feasible:
        return (kernel, _edit(attempt, scene, parent))
    return (kernel, _fix(attempt, scene, parent))


def _lesson(attempt: Attempt, scene: Scene) -> Experience:
    evaluation = attempt.evaluation
    techniques = attempt.proposal.changed or attempt.proposal.techniques
    payload = {"source": attempt.proposal.candidate.source, "error": failure_text(evaluation)}
    return _experience(
        "lesson",
        attempt,
        scene,
        techniques=attempt.proposal.techniques,
        outcome="failure",
        summary=f"{_named(techniques)} ended as {evaluation.status}: {_first(evaluation)}",
        payload=payload,
    )


def _kernel(attempt: Attempt, scene: Scene) -> Experience:
    proposal, speedup = attempt.proposal, _against(attempt.evaluation, "eager")
    return _experience(
        "kernel",
        attempt,
        scene,
        techniques=proposal.techniques,
        summary=f"{scene.family} by {_named(proposal.techniques)}",
        payload={"source": proposal.candidate.source, "feedback": _feedback(attempt.evaluation)},
        speedup=speedup,
    )


def _edit(attempt: Attempt, scene: Scene, parent: Attempt) -> Experience:
    proposal = attempt.proposal
    speedup = _against(attempt.evaluation, "parent") or _ratio(parent, attempt)
    techniques = proposal.changed or proposal.techniques
    return _experience(
        "edit",
        attempt,
        scene,
        techniques=techniques,
        outcome=edit_outcome(speedup),
        summary=f"changed {_named(techniques)}",
        payload={"source": proposal.candidate.source, "diff": _diff(parent, attempt)},
        speedup=speedup,
    )


def _fix(attempt: Attempt, scene: Scene, parent: Attempt) -> Experience:
    proposal, before = attempt.proposal, parent.evaluation
    techniques = proposal.changed or proposal.techniques
    return _experience(
        "fix",
        attempt,
        scene,
        techniques=techniques,
        summary=f"{before.status} ({_first(before)}) repaired by {_named(techniques)}",
        payload={
            "source": proposal.candidate.source,
            "diff": _diff(parent, attempt),
            "error": failure_text(before),
        },
    )


def _experience(
    kind: Kind,
    attempt: Attempt,
    scene: Scene,
    *,
    techniques: tuple[str, ...],
    summary: str,
    payload: dict[str, str],
    outcome: Outcome = "success",
    speedup: Interval | None = None,
) -> Experience:
    proposal, evaluation = attempt.proposal, attempt.evaluation
    measured = None if kind in {"lesson", "fix"} else attempt.median_ms
    return Experience(
        answers=answers(evaluation),
        kind=kind,
        stage=Stage(proposal.stage),
        backend=proposal.candidate.backend,
        family=scene.family,
        fingerprint=scene.fingerprint,
        bottleneck=evaluation.profile.bound_by if evaluation.profile else "unknown",
        techniques=techniques,
        outcome=outcome,
        summary=f"{summary} ({scene.label})" if scene.label else summary,
        payload={name: text for name, text in payload.items() if text},
        origin=Origin(
            run=scene.run,
            step=attempt.step,
            task=scene.task,
            candidate=proposal.candidate.sha,
            parents=proposal.parents,
            context=attempt.shown,
            proposer=scene.proposer,
        ),
        measurement=Measurement(
            median_ms=measured, speedup=speedup, device=evaluation.device, tools=scene.tools
        ),
    )


def failure_text(evaluation: Evaluation) -> str:
    """The failure in words: reason, first diagnostics, first mismatch."""
    lines = [f"{evaluation.status}: {evaluation.reason}".rstrip(": ")]
    for diagnostic in evaluation.diagnostics[:MESSAGES]:
        place = f"{diagnostic.file or ''}:{diagnostic.line or ''}".strip(":")
        lines.append(f"{place} {diagnostic.severity}: {diagnostic.message}".strip())
    if evaluation.correctness:
        lines += [m.detail for m in evaluation.correctness.mismatches[:MESSAGES]]
    return "\n".join(lines)


def _first(evaluation: Evaluation) -> str:
    """The cause in one line."""
    if evaluation.diagnostics:
        return evaluation.diagnostics[0].message
    return evaluation.reason or "no reason given"


def _feedback(evaluation: Evaluation) -> str:
    profile = evaluation.profile
    if profile is None:
        return ""
    share = (
        ""
        if profile.roofline_share is None
        else f" at {profile.roofline_share:.0%} of the roofline"
    )
    return "; ".join([f"bound by {profile.bound_by}{share}", *profile.notes])


def _against(evaluation: Evaluation, opponent: str) -> Interval | None:
    speedup = evaluation.timing.against(opponent) if evaluation.timing else None
    return speedup.ratio if speedup else None


def _ratio(parent: Attempt, child: Attempt) -> Interval | None:
    """Two medians from different sessions: a point without width, until promotion measures it."""
    if parent.median_ms is None or child.median_ms is None:
        return None
    value = parent.median_ms / child.median_ms
    return Interval(value=value, low=value, high=value)


def _diff(parent: Attempt, child: Attempt) -> str:
    before, after = parent.proposal.candidate, child.proposal.candidate
    lines = difflib.unified_diff(
        before.source.splitlines(), after.source.splitlines(), before.sha, after.sha, lineterm=""
    )
    return "\n".join(lines)


def _named(techniques: tuple[str, ...]) -> str:
    return ", ".join(techniques) or "no named technique"
