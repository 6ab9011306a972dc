"""Owns what a reader has to know before believing a report."""

import json
from collections.abc import Iterator

from evokernel.evaluation import Status
from evokernel.report.story import Story
from evokernel.wording import counted

NOISY = 0.1
"""Spread of the best kernel's times from which it is mentioned (ours)."""


def weaknesses(story: Story) -> list[str]:
    """Everything that limits the numbers, in words; at least one sentence."""
    found = [*_of_the_run(story), *_of_the_best(story), *_of_the_lead(story)]
    found += [*_of_the_looks(story), *_of_tools(story)]
    return list(dict.fromkeys(found)) or ["Nothing was noted while it was measured."]


def _of_the_run(story: Story) -> Iterator[str]:
    if label := story.record.header.label:
        yield f"**The {label}**: it may not tell a right answer from one that took no work."
    if said := story.standing:
        yield (
            f"**The best kernel is {said}.**"
            if story.is_fallen
            else f"{said[:1].upper()}{said[1:]}."
        )
    if not story.ending:
        yield "The run has not come to its end: what comes may change the best."
    if story.record.config.bench.measurement == "quick":
        yield "Measured roughly (`--quick`): intervals are wide, and disturbed repetitions count."
    if not story.baselines:
        yield "The baselines were not measured yet."
    elif "compile" not in story.baselines:
        yield "torch.compile was not measured."
    spoiled = [row.number for row in story.rows if row.status is Status.INFRASTRUCTURE]
    if spoiled:
        numbers = ", ".join(map(str, spoiled))
        yield f"The machine was too busy to measure {counted(len(spoiled), 'attempt')}: {numbers}."


def _of_the_best(story: Story) -> Iterator[str]:
    best = story.outcome.best
    if best is None:
        return
    if story.outcome.second_look("eager") is None:
        yield (
            f"The best kernel (attempt {best.number}) was measured in one process only: no second "
            "look in fresh processes has confirmed it, and a first measurement that picked the "
            "winner flatters it."
        )
    if story.outcome.ratio("compile") is not None:
        yield "Second looks take eager alone: the ratio over torch.compile is of one process."
    evaluation = best.evaluation
    if evaluation.timing is not None and evaluation.timing.spread > NOISY:
        yield f"Its times spread by {evaluation.timing.spread:.0%} around the median."
    for part in (evaluation.correctness, evaluation.timing, evaluation.profile):
        for note in part.notes if part else ():
            yield f"{note[:1].upper()}{note[1:].rstrip('.')}."


def _of_the_looks(story: Story) -> Iterator[str]:
    refuted = [row for row in story.rows if row.is_refuted]
    for row in refuted:
        yield f"Attempt {row.number} did not hold in fresh processes and is out of the running."
    once = [row.number for row in story.rows if row.processes == 1 and not row.is_refuted]
    if once and len(once) < len(story.rows):
        numbers = ", ".join(map(str, once))
        yield f"Not looked at again: attempts {numbers} (marked `¹` above)."


def _of_the_lead(story: Story) -> Iterator[str]:
    best = story.best
    if best is None or best.ratio is None:
        return
    low = best.ratio.low
    near = [r.number for r in story.rows if r.ratio and r.ratio.high >= low and r is not best]
    rivals = [n for n in near if not story.row(n).is_refuted and story.row(n).repeats is None]
    if rivals:
        numbers = ", ".join(map(str, rivals))
        yield (
            f"{counted(len(rivals), 'other attempt')} may be as fast as the best, as far as the "
            f"intervals tell: {numbers}."
        )


def _of_tools(story: Story) -> Iterator[str]:
    protections = story.record.header.environment.get("protections", "")
    try:
        notes = json.loads(protections).get("notes", []) if protections else []
    except ValueError:
        notes = []
    for note in notes:
        yield f"Isolation of candidates: {str(note).rstrip('.')}."
    costs = [attempt.proposal.usage for attempt in story.outcome.attempts]
    if any(cost.usd is None for cost in costs):
        yield "The price of the model is unknown, so that costs are not complete."
