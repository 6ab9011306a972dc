"""Owns how verdicts, experiences and runs become answers: what is shown of them, and finite."""

import math

from evokernel.answers import answers
from evokernel.attempt import Attempt
from evokernel.evaluation import Evaluation, Promotion
from evokernel.external import Judged
from evokernel.memory.experience import Entry, Experience
from evokernel.record import RunRecord
from evokernel.serve import told

SHOWN = 10
"""Diagnostics and mismatches that an answer carries (ours)."""
LOG_TAIL = 4000
"""Characters of a candidate's output that an answer carries (ours)."""


def found(record: RunRecord) -> told.Found:
    """The best kernel of a run."""
    best = record.best()
    looks = record.promotions()
    refuted = sum(not look.holds for look in looks)
    if best is None:
        return told.Found(
            run=record.id,
            attempt=None,
            source="",
            file="",
            median_ms=None,
            speedups={},
            confirmed=None,
            confirmed_speedup=None,
            answers=(),
            techniques=(),
            refuted=refuted,
        )
    sha = best.proposal.candidate.sha
    look = next((p for p in reversed(looks) if (p.claim, p.candidate) == ("kernel", sha)), None)
    return told.Found(
        run=record.id,
        attempt=best.number,
        source=best.proposal.candidate.source,
        file=str((record.path / "best" / "kernel.py").resolve()),
        median_ms=best.median_ms,
        speedups=ratios(best.evaluation),
        confirmed=look.holds if look else None,
        confirmed_speedup=second_look(look),
        answers=answers(best.evaluation),
        techniques=best.proposal.techniques,
        refuted=refuted,
    )


def ratios(evaluation: Evaluation) -> dict[str, told.Ratio]:
    """Speedups by opponent."""
    speedups = evaluation.timing.speedups if evaluation.timing else ()
    found = {s.against: told.Ratio.of(s.ratio, s.opponent_ms, s.is_faster) for s in speedups}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def digest(evaluation: Evaluation) -> told.Digest | None:
    """What bounds it, where that was looked at."""
    profile = evaluation.profile
    if profile is None:
        return None
    return told.Digest(
        bound_by=profile.bound_by,
        roofline_share=_finite(profile.roofline_share),
        limits=profile.limits,
        gbytes_per_s=_finite(profile.gbytes_per_s),
        gflops=_finite(profile.gflops),
        notes=profile.notes,
    )


def messages(evaluation: Evaluation) -> tuple[told.Message, ...]:
    """The first diagnostics."""
    return tuple(
        told.Message(
            severity=each.severity,
            message=each.message,
            file=each.file,
            line=each.line,
            excerpt=each.excerpt,
        )
        for each in evaluation.diagnostics[:SHOWN]
    )


def mismatches(evaluation: Evaluation) -> tuple[str, ...]:
    """Where results differ, a sentence each."""
    found = evaluation.correctness.mismatches if evaluation.correctness else ()
    return tuple(
        f"{m.family} inputs, workload {m.workload}, output {m.output}: {m.detail}"
        for m in found[:SHOWN]
    )


def standing(attempt: Attempt) -> told.Standing:
    """One attempt in a list."""
    eager = ratios(attempt.evaluation).get("eager")
    return told.Standing(
        attempt=attempt.number,
        status=attempt.evaluation.status,
        stage=attempt.proposal.stage,
        techniques=attempt.proposal.techniques,
        median_ms=attempt.median_ms,
        speedup=eager.value if eager else None,
    )


def kept(entry: Entry) -> told.Kept:
    """One experience, by its status."""
    found = entry.experience
    return told.Kept(id=found.id, kind=found.kind, status=entry.status, reason=entry.reason)


def shown(experience: Experience) -> told.Shown:
    """One experience, as an author is shown it."""
    ratio = experience.measurement.speedup
    return told.Shown(
        id=experience.id,
        kind=experience.kind,
        task=experience.origin.task,
        family=experience.family,
        techniques=experience.techniques,
        outcome=experience.outcome,
        summary=experience.summary,
        speedup=_finite(ratio.value) if ratio else None,
        texts=experience.payload,
    )


def second_look(promotion: Promotion | None) -> told.Ratio | None:
    """What fresh processes measured over eager."""
    if promotion is None or promotion.ratio is None:
        return None
    return told.Ratio.of(promotion.ratio, None, promotion.holds and promotion.ratio.low > 1)


def log_of(judged: Judged) -> str:
    """The tail of what a candidate printed that did not pass."""
    evaluation = judged.attempt.evaluation
    return "" if evaluation.status.is_feasible else evaluation.log[-LOG_TAIL:]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
