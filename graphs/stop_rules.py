"""Owns the rules that end a run, each with its name: a spent budget, and what makes more useless.

All but the clock are read from what is stored, so a resumed run ends where it would have ended.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from evokernel.attempt import Attempt
from evokernel.bench.device import TOO_LOW
from evokernel.config import SearchConfig
from evokernel.frozen import Frozen
from evokernel.graphs.budget import spent
from evokernel.record import RunRecord
from evokernel.record.entries import lead
from evokernel.wording import counted

Rule = Literal["budget", "replies", "roofline", "patience", "exhausted"]
"""`budget`: one of its parts is spent. `replies`: the model does not answer as it was asked.
`roofline`: the best kernel is as fast as the machine allows. `patience`: nothing was gained for
long. `exhausted`: the proposer has nothing new."""


class End(Frozen):
    """Why a run ends."""

    rule: Rule
    reason: str
    """In words, with the figures."""


EXHAUSTED = End(rule="exhausted", reason="the proposer has nothing new to propose")


def ended(record: RunRecord) -> End | None:
    """The first rule that ends the run before its next step; None while it goes on."""
    if reason := spent(record):
        return End(rule="budget", reason=reason)
    for rule, find in _RULES.items():
        if reason := find(record):
            return End(rule=rule, reason=reason)
    return None


def is_at_roofline(record: RunRecord, attempt: Attempt) -> bool:
    """Whether a kernel reaches the share of the roofline at which it is good enough.

    A roofline whose peaks were measured on a busy machine is too low to end a run.
    """
    if TOO_LOW in record.header.environment.get("peaks", ""):
        return False
    limit, share = record.config.search.roofline, roofline_share(attempt)
    return bool(limit) and share is not None and share >= limit


def roofline_share(attempt: Attempt) -> float | None:
    """The measured share of the roofline, 0..1 and a little above; None where it is unknown."""
    profile, timing = attempt.evaluation.profile, attempt.evaluation.timing
    if profile and profile.roofline_share is not None:
        return profile.roofline_share
    return timing.roofline_share if timing else None


def _at_roofline(record: RunRecord) -> str:
    best = record.best()
    if best is None or not is_at_roofline(record, best):
        return ""
    limit = record.config.search.roofline
    return (
        f"the best kernel (attempt {best.number}) reaches {roofline_share(best):.0%} of the "
        f"roofline; from {limit:.0%} on a run ends (`--roofline`)"
    )


def _out_of_patience(record: RunRecord) -> str:
    """No gain in so many rounds; a run without any kernel is not judged by its speed."""
    search = record.config.search
    size = search.patience * search.width
    recent = _asked(record)[-size:]
    if not size or len(recent) < size:
        return ""
    attempts = record.attempts()
    before = _lead(record, [a for a in attempts if a.number < recent[0].number])
    now = _lead(record, attempts)
    if before is None or now is None or now >= before * (1 + search.least_gain):
        return ""
    return (
        f"no gain of {search.least_gain:.0%} in {counted(search.patience, 'round')} "
        f"({counted(len(recent), 'attempt')}; `--patience`)"
    )


def _unanswered(record: RunRecord) -> str:
    """Replies that hold no candidate, in a row or in the main."""
    search = record.config.search
    asked = _asked(record)
    for size, most in ((search.alarm, search.alarm), (2 * search.alarm, 1.5 * search.alarm)):
        recent = asked[-size:] if size else ()
        bad = [a for a in recent if a.proposal.fault]
        if recent and len(recent) == size and len(bad) >= most:
            return _complaint(search, size, bad)
    return ""


def _complaint(search: SearchConfig, size: int, bad: list[Attempt]) -> str:
    faults = [a.proposal.fault for a in bad if a.proposal.fault]
    kinds = Counter(fault.kind for fault in faults)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    advice = _ADVICE.get(kinds.most_common(1)[0][0], _LAST_ADVICE)
    return (
        f"{len(bad)} of the last {size} replies held no candidate ({told}), so no more are paid "
        f"for; the last one, attempt {bad[-1].number}: {faults[-1].reason}. {advice}"
    )


_ADVICE = {
    "empty": "The model may spend its reply on reasoning: allow longer replies, or less effort",
    "cut_off": "Allow longer replies, or choose a model that answers in fewer words",
    "filtered": "Rephrase the comments of the task, or choose another model",
}
_LAST_ADVICE = (
    "Prompts and replies lie beside each attempt; choose another model, or change what it is shown"
)


_RULES: dict[Rule, Callable[[RunRecord], str]] = {
    "replies": _unanswered,
    "roofline": _at_roofline,
    "patience": _out_of_patience,
}


def _asked(record: RunRecord) -> tuple[Attempt, ...]:
    """Attempts that the proposer was asked for; the user's own kernels are not among them."""
    return record.attempts()[len(record.config.search.start) :]


def _lead(record: RunRecord, attempts: Sequence[Attempt]) -> float | None:
    """How many times faster than eager the best of these is, by what is known now."""
    looks = {p.candidate: p for p in record.promotions() if p.claim == "kernel"}
    found = [lead(a, looks.get(a.proposal.candidate.sha)) for a in attempts]
    return max((ratio for ratio in found if ratio is not None), default=None)
