"""Owns the judging of imported experiences: by this machine, in workers, as any candidate."""

from collections.abc import Iterator, Sequence

from evokernel.attempt import Candidate
from evokernel.bench import Claim, Evaluator
from evokernel.evaluation import Promotion
from evokernel.frozen import Frozen
from evokernel.memory.experience import Entry, ExperienceStatus
from evokernel.memory.retraction import CLAIMS
from evokernel.memory.store import Memory


class Admitted(Frozen):
    """What became of the imported experiences of one task."""

    task: str
    judged: int
    """Claims that were looked at."""
    active: tuple[str, ...]
    """Ids that are active because of it."""
    suspect: tuple[str, ...]
    """Ids whose claim did not hold here."""
    left: int
    """Those that cannot be judged: their source, or their parent's, is not at hand."""


def admit(memory: Memory, evaluator: Evaluator, name: str, fingerprint: str) -> Admitted:
    """Judge what is in quarantine for one task, and promote what holds.

    Args:
        memory: Whose.
        evaluator: Of that task.
        name: The task's name.
        fingerprint: Of its operator graph.
    """
    entries = [
        entry
        for entry in memory.list(status=ExperienceStatus.QUARANTINE)
        if entry.experience.fingerprint == fingerprint
    ]
    sources = {e.experience.origin.candidate: e.experience.payload.get("source") for e in entries}
    claimed = [(entry, claim) for entry in entries if (claim := _claim(entry, sources))]
    answers = evaluator.promote(tuple(claim for _, claim in claimed))
    active: list[str] = []
    for run, batch in _by_run(claimed, answers):
        active += memory.promote(run, batch, f"{run}/admitted")
    judged = [entry.experience.id for entry, _ in claimed]
    found = {id: memory.get(id).status for id in judged}
    return Admitted(
        task=name,
        judged=len(claimed),
        active=tuple(dict.fromkeys(active)),
        suspect=tuple(id for id in judged if found[id] is ExperienceStatus.SUSPECT),
        left=len(entries) - len(claimed),
    )


def _claim(entry: Entry, sources: dict[str, str | None]) -> Claim | None:
    """What an experience claims, as the evaluator can look at it."""
    experience = entry.experience
    source, backend = experience.payload.get("source"), experience.backend
    if experience.kind not in CLAIMS or not source or backend == "neutral":
        return None
    child = Candidate(source=source, backend=backend)
    if child.sha != experience.origin.candidate:
        return None  # the text is not what the claim was made of
    if experience.kind == "kernel":
        return Claim(candidate=child, parent=None, kind="kernel")
    parents = experience.origin.parents
    before = sources.get(parents[0]) if parents else None
    if not before:
        return None
    parent = Candidate(source=before, backend=backend)
    return Claim(candidate=child, parent=parent, kind=experience.kind)


def _by_run(
    claimed: Sequence[tuple[Entry, Claim]], answers: Sequence[Promotion]
) -> Iterator[tuple[str, list[Promotion]]]:
    """The answers by the run that made the claim."""
    runs: dict[str, list[Promotion]] = {}
    for entry, claim in claimed:
        parent = claim.parent.sha if claim.parent else None
        key = claim.kind, claim.candidate.sha, parent
        for answer in answers:
            if (answer.claim, answer.candidate, answer.parent) == key:
                runs.setdefault(entry.experience.origin.run, []).append(answer)
    yield from runs.items()
