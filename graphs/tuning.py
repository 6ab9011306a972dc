"""Owns how a step's candidate is tuned: searched once, and frozen into its proposal."""

from evokernel.attempt import Candidate
from evokernel.graphs.state import Services
from evokernel.tuning import Space, Try, Tuning

UNTUNED = "untuned"
"""`untuned.json`: the candidate as it was proposed, should the search be interrupted."""


def tuned(services: Services, number: int) -> Candidate:
    """The step's candidate, with the best of its declared values in place."""
    record = services.record
    proposal = record.proposal(number)
    if proposal.tuning is not None:
        return proposal.candidate
    candidate = proposal.candidate
    if record.has(number, UNTUNED):
        candidate = record.load(number, UNTUNED, Candidate)

    def heard(found: Try) -> None:
        said = found.model_dump(mode="json", include={"values", "status", "is_best", "is_cached"})
        ratio = round(found.ratio.value, 4) if found.ratio else None
        record.event("try", number=number, ratio=ratio, **said)

    with services.stop.waiting():
        tuning = services.evaluator.tune(candidate, heard)
    if space := Space.declared(candidate.source):
        for note in space.notes:
            record.event("note", text=f"attempt {number}: {note}")
    return candidate if tuning is None else _frozen(services, number, candidate, tuning)


def _frozen(services: Services, number: int, candidate: Candidate, tuning: Tuning) -> Candidate:
    """Put the chosen values in; from here on the candidate is a plain one."""
    record = services.record
    # First: a kill between the files of a proposal must not lose what was proposed.
    record.save(number, UNTUNED, candidate)
    frozen = Candidate(source=tuning.frozen, backend=candidate.backend)
    proposal = record.proposal(number)
    record.save_proposal(
        number, proposal.model_copy(update={"candidate": frozen, "tuning": tuning})
    )
    record.event(
        "tuned",
        number=number,
        candidate=frozen.sha,
        chosen=tuning.chosen,
        gain=round(tuning.gain, 4) if tuning.gain else None,
        stopped=tuning.stopped,
        seconds=tuning.seconds,
        text=tuning.in_words(),
    )
    return frozen
