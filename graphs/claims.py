"""Owns which results still need a second look before memory and the user may believe them."""

from collections.abc import Iterator
from itertools import groupby

from evokernel.attempt import Attempt, Candidate
from evokernel.bench import TOGETHER, Claim
from evokernel.record import RunRecord


def pending(record: RunRecord, only: Attempt | None = None) -> tuple[Claim, ...]:
    """Claims of the run's attempts (or of `only`) that have not been answered, in order.

    A feasible attempt claims its kernel and, with its first parent, an edit (the parent was
    feasible) or a fix (it was not). Gains and losses alike: a memory of gains alone would overrate
    every edit. A kernel's claims follow each other, so that the same fresh processes can answer
    for all of them.
    """
    answered = {(p.claim, p.candidate, p.parent) for p in record.promotions()}
    by_sha = first_with(record.attempts())
    attempts = by_sha.values() if only is None else (only,)
    claims = (claim for attempt in attempts for claim in _claims(attempt, by_sha))
    return tuple(claim for claim in claims if _key(claim) not in answered)


def batches(claims: tuple[Claim, ...]) -> Iterator[tuple[Claim, ...]]:
    """The claims of a few kernels at a time: they are measured side by side, and a kill costs one.

    All claims of a kernel stay together.
    """
    kernels = [tuple(group) for _, group in groupby(claims, key=lambda claim: claim.candidate.sha)]
    for first in range(0, len(kernels), TOGETHER):
        yield tuple(claim for group in kernels[first : first + TOGETHER] for claim in group)


def first_with(attempts: tuple[Attempt, ...]) -> dict[str, Attempt]:
    """Hash to the first attempt that had this candidate; later ones only repeat it."""
    found: dict[str, Attempt] = {}
    for attempt in attempts:
        found.setdefault(attempt.proposal.candidate.sha, attempt)
    return found


def _claims(attempt: Attempt, by_sha: dict[str, Attempt]) -> list[Claim]:
    if not attempt.evaluation.status.is_feasible:
        return []
    child = attempt.proposal.candidate
    claims = [Claim(candidate=child, parent=None, kind="kernel")]
    parents = attempt.proposal.parents
    if parents and (parent := by_sha.get(parents[0])):
        kind = "edit" if parent.evaluation.status.is_feasible else "fix"
        claims.append(Claim(candidate=child, parent=_candidate(parent), kind=kind))
    return claims


def _candidate(attempt: Attempt) -> Candidate:
    return attempt.proposal.candidate


def _key(claim: Claim) -> tuple[str, str, str | None]:
    return claim.kind, claim.candidate.sha, claim.parent.sha if claim.parent else None
