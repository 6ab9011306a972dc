"""Owns what a prompt says of attempts: the one at hand, what was tried, what is best so far."""

from collections.abc import Iterable

from evokernel.attempt import Attempt
from evokernel.evaluation import Evaluation, Status
from evokernel.prompts import sources
from evokernel.prompts.exemplars import Variant, of_attempt
from evokernel.prompts.section import Item, Section, line
from evokernel.prompts.situation import Situation
from evokernel.prompts.verdict import figures
from evokernel.wording import milliseconds, times, with_interval

BEST = 4
"""Attempts of the history that are named (KernelGYM shows four; a whole history helped less)."""
_SAID = 250
"""Letters of an idea, or of a reason."""


def candidate(situation: Situation) -> Section:
    """What is to be edited or repaired."""
    attempt = situation.parents[0]
    proposal = attempt.proposal
    if proposal.fault is None:
        remark = f"About the reply it came with: {proposal.remark}" if proposal.remark else ""
        return _source("candidate", "The candidate", attempt, 14_000, 2_000, told=remark)
    intro = "The reply to the last step held no candidate. "
    empty = () if proposal.reply.strip() else (Item(text="It was empty."),)
    item = Item(text="It was:", code=proposal.reply.strip(), what="the reply")
    return Section(
        name="candidate",
        title="The last reply",
        intro=intro.strip(),
        items=empty or (item,),
        budget=2000,
        least=500,
    )


def second(situation: Situation) -> Section:
    """The other start point of a recombination, with its figures."""
    first, attempt = situation.parents[:2]
    told = "\n".join(figures(attempt.evaluation))
    sides = of_attempt(first), of_attempt(attempt)
    if sides[0] and sides[1] and not sides[0].is_apart(sides[1]):
        told += "\nThe intervals of the two overlap: which one is faster is not certain."
    base = first.proposal.candidate.source
    return _source("second", "The second candidate", attempt, 9_000, 1_500, base, told)


def drafts(situation: Situation) -> Section:
    """Earlier drafts of the run."""
    intro = "Other drafts of this run exist already; write one that goes another way:"
    return _lines("drafts", "Drafts so far", situation.children, intro)


def children(situation: Situation) -> Section:
    """What was tried from the same start point."""
    title = "What was tried from this candidate, newest first"
    parents = situation.parents[:1]
    tried = [a for a in situation.children if a.proposal.fault is None]
    return _lines("children", title, tried, "", parents[0] if parents else None)


def best(situation: Situation, named: Iterable[Attempt]) -> Section:
    """The best of the history that are not named elsewhere in the prompt."""
    seen = {a.proposal.candidate.sha for a in (*situation.parents, *situation.children, *named)}
    found: dict[str, Attempt] = {}
    for attempt in sorted(situation.history, key=lambda a: a.median_ms or 0.0):
        sha = attempt.proposal.candidate.sha
        if attempt.median_ms is not None and sha not in seen:
            found.setdefault(sha, attempt)
    best = list(found.values())[:BEST]
    return Section(
        name="best",
        title="The best of the other attempts",
        items=tuple(Item(text=_attempt(a, None)) for a in best),
        budget=500,
        what="attempts",
    )


def exemplars(situation: Situation, variants: tuple[Variant, ...]) -> Section:
    """Verified kernels of other speeds, and the demand to say why they differ."""
    pair = len(variants) > 1
    task, start = situation.task.name, situation.parents[:1]
    base = (start[0].proposal.candidate.source, "the candidate") if start else ("", "")
    items = tuple(_exemplar(v, task, base) for v in variants[:1])
    if pair:
        items += (_exemplar(variants[1], task, (variants[0].source, variants[0].name)),)
    intro = (
        "Two verified kernels from different levels of speed. Say in your analysis why one is "
        "faster than the other, and go beyond the faster one."
        if pair
        else "It is verified, too. Say in your analysis why it is faster or slower than the "
        "candidate, and take over what is better in it."
    )
    return Section(
        name="exemplars",
        title="Compare" if pair else "Compare with another kernel",
        intro=intro,
        items=items,
        budget=8000,
        least=1500,
        what="kernels",
        gap="\n\n",
    )


def _exemplar(variant: Variant, task: str, base: tuple[str, str]) -> Item:
    source = sources.shown(variant.source, *base)
    name = variant.name if variant.attempt else f"`{variant.name}`"
    told = f"### {name}: {times(variant.speedup)} as fast as PyTorch eager"
    if attempt := variant.attempt:
        ms = "" if attempt.median_ms is None else f", {milliseconds(attempt.median_ms)} a call"
        told += f"{ms}; techniques: {', '.join(attempt.proposal.techniques) or 'none named'}"
    elif experience := variant.experience:
        told += "" if experience.origin.task == task else f", task `{experience.origin.task}`"
        told += f"; techniques: {', '.join(experience.techniques) or 'none named'}"
    told += f"\n\n{source.remark.strip()}" if source.remark else ""
    what = f"the source of {variant.name}"
    return Item(text=told, code=source.code, language=source.language, what=what)


def _source(
    name: str, title: str, attempt: Attempt, budget: int, least: int, base: str = "", told: str = ""
) -> Section:
    source = sources.shown(attempt.proposal.candidate.source, base, "the candidate")
    known = ", ".join(attempt.proposal.techniques) or "none named"
    return Section(
        name=name,
        title=title,
        intro=f"Attempt {attempt.number}; techniques: {known}.{source.remark}",
        items=(Item(text="", code=source.code, language=source.language, what=title.lower()),),
        outro=told,
        budget=budget,
        least=least,
    )


def _lines(
    name: str, title: str, attempts: Iterable[Attempt], intro: str, before: Attempt | None = None
) -> Section:
    """One line each, newest first."""
    items = tuple(Item(text=_attempt(a, before)) for a in reversed(tuple(attempts)))
    return Section(
        name=name, title=title, intro=intro, items=items, budget=1000, least=300, what="attempts"
    )


def _attempt(attempt: Attempt, before: Attempt | None) -> str:
    """One line: what it is, or what it changed of `before`, and what came of it."""
    proposal, evaluation = attempt.proposal, attempt.evaluation
    said = line(proposal.rationale, _SAID).rstrip(".")
    told = f"- attempt {attempt.number} ({_change(attempt, before)})"
    told += f": {said}" if said else ""
    told += f", expected to be {times(proposal.predicted)} as fast" if proposal.predicted else ""
    if attempt.median_ms is None:
        return f"{told} -> {evaluation.status}: {line(_cause(evaluation), _SAID)}"
    told += f" -> right, {milliseconds(attempt.median_ms)} a call"
    if before is not None and before.median_ms is not None:
        ratio = before.median_ms / attempt.median_ms
        return f"{told}, {times(ratio)} as fast as the candidate"
    eager = evaluation.timing.against("eager") if evaluation.timing else None
    return f"{told}, {with_interval(eager.ratio)} as fast as PyTorch eager" if eager else told


def _change(attempt: Attempt, before: Attempt | None) -> str:
    """Its techniques, or which of them are new and which are gone."""
    proposal = attempt.proposal
    if before is None:
        return ", ".join(proposal.techniques) or "no named technique"
    had, has = before.proposal.techniques, proposal.techniques
    new, gone = [t for t in has if t not in had], [t for t in had if t not in has]
    if not new and not gone:
        return f"changed {', '.join(proposal.changed)}" if proposal.changed else "same techniques"
    told = [f"with {', '.join(new)}"] if new else []
    told += [f"without {', '.join(gone)}"] if gone else []
    return ", ".join(told)


def _cause(evaluation: Evaluation) -> str:
    """Why it failed, in one line: of a compiler its first error, which says more."""
    errors = [d.message for d in evaluation.diagnostics if d.severity == "error"]
    is_compiler = evaluation.status is Status.COMPILE_ERROR and errors
    return sources.reason(errors[0] if is_compiler else evaluation.reason)
