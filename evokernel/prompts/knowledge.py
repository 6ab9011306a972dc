"""Owns what a prompt says of what is known already: experiences, and techniques by name."""

from collections.abc import Iterable, Mapping

from evokernel.attempt import Attempt
from evokernel.memory.experience import Experience
from evokernel.memory.values import Value
from evokernel.prompts import sources
from evokernel.prompts.section import Item, Section, line
from evokernel.prompts.situation import Situation, TechniqueNote
from evokernel.wording import counted, milliseconds, with_interval

_LINE = 500
_KINDS = {
    "kernel": "a kernel that was right",
    "edit": "an edit",
    "fix": "a repair that worked",
    "lesson": "what failed",
    "technique": "a note on a technique",
    "api": "a note on an interface",
}


def experiences(
    situation: Situation,
    named: Iterable[str],
    base: tuple[str, str] = ("", ""),
    places: Mapping[str, str] | None = None,
) -> Section:
    """What memory brought back, without what is shown elsewhere in the prompt.

    Args:
        situation: The step.
        named: Ids that are shown elsewhere.
        base: A kernel that is shown whole, and what it is called: like ones are shown as a
            difference from it.
        places: Hashes of candidates whose code stands elsewhere in the prompt, and where.
    """
    seen = set(named)
    shown = [e for e in situation.shown if e.id not in seen]
    task = situation.task.name
    return Section(
        name="experiences",
        title="What was learned before",
        intro=(
            "From earlier work on this or related tasks. A value says how much better than usual "
            "steps went in which it was shown (0 is as usual). Take what fits; shapes and "
            "operators may be others, and speedups were measured where it was learned."
        ),
        items=tuple(
            _experience(e, task, situation.values, _code(e, base, _twin(e, shown[:n], places)))
            for n, e in enumerate(shown)
        ),
        budget=6000,
        least=1200,
        what="experiences",
        gap="\n\n",
    )


def techniques(known: Iterable[TechniqueNote], parents: tuple[Attempt, ...]) -> Section:
    """The names that a reply may use, and what they mean: those that help against what binds.

    For a repair the names have to do: first it has to be right.
    """
    known = tuple(known)
    applied = set(parents[0].proposal.techniques) if parents else set()
    is_repair = bool(parents) and not parents[0].evaluation.status.is_feasible
    bound = _bound_by(parents)
    told = [] if is_repair else [t for t in known if not bound or bound in t.bottlenecks]
    intro = "Use these names in your answer; other ideas are as welcome, in your own words."
    if bound:
        intro += f" Described are those that help a kernel which is bound by {bound}."
    items = [_note(t) for t in told if t.name not in applied]
    if has := [f"`{t.name}`" for t in known if t.name in applied and not is_repair]:
        items.append(f"- The candidate has {', '.join(has)}.")
    if others := [f"`{t.name}`" for t in known if t not in told and t.name not in applied]:
        items.append(f"- {'Names' if is_repair else 'Further names'}: {', '.join(others)}.")
    return Section(
        name="techniques",
        title="Techniques",
        intro=intro,
        items=tuple(Item(text=text) for text in items),
        budget=2000,
        least=300,
        what="techniques",
    )


def _bound_by(parents: tuple[Attempt, ...]) -> str:
    profile = parents[0].evaluation.profile if parents else None
    return profile.bound_by if profile and profile.bound_by != "unknown" else ""


def _note(technique: TechniqueNote) -> str:
    return (
        f"- `{technique.name}`: {technique.does} Helps: {technique.helps} Costs: {technique.costs}"
    )


def _experience(experience: Experience, task: str, values: Mapping[str, Value], code: Item) -> Item:
    payload = experience.payload
    place = "this task" if experience.origin.task == task else f"task `{experience.origin.task}`"
    told = [
        f"### `{experience.id}`: {_KINDS[experience.kind]} ({place}, {experience.family})",
        "",
        f"{line(experience.summary, _LINE)}.{_measured(experience)}"
        f"{_worth(values.get(experience.id))}{code.text}",
    ]
    if experience.note:
        told.append(f"Remark: {line(experience.note, _LINE)}")
    if payload.get("note"):
        told.append(f"Note: {line(payload['note'], _LINE)}")
    if feedback := payload.get("feedback", "").partition("; ")[0]:
        told.append(f"It was {line(feedback, _LINE)}.")
    # The summary of a failure says its first line already.
    if experience.kind == "fix" and payload.get("error"):
        told.append(f"Error: {line(sources.reason(payload['error']), _LINE)}")
    return code.model_copy(update={"text": "\n".join(told)})


def _twin(
    experience: Experience, before: list[Experience], places: Mapping[str, str] | None
) -> str:
    """Where its code stands already; the kernel and the edit that one step left hold the same."""
    candidate = experience.origin.candidate
    if place := (places or {}).get(candidate):
        return place
    twins = (e.id for e in before if candidate and e.origin.candidate == candidate)
    found = next(twins, "")
    return f"`{found}`" if found else ""


def _code(experience: Experience, base: tuple[str, str], twin: str) -> Item:
    """The code of an experience; its text says what it is a difference from."""
    payload = experience.payload
    if twin and experience.kind in {"kernel", "edit", "fix"}:
        return Item(text=f" Its code is that of {twin}.")
    # A difference says more than the source that it leads to; a failed source is no example.
    if payload.get("diff"):
        changes = sources.without_names(payload["diff"])
        return Item(text="", code=changes, language="diff", what="the difference")
    if payload.get("source") and experience.outcome == "success":
        source = sources.shown(payload["source"], *base)
        return Item(
            text=source.remark, code=source.code, language=source.language, what="the source"
        )
    return Item(text="")


def _measured(experience: Experience) -> str:
    measured = experience.measurement
    told = ""
    if measured.speedup is not None:
        against = "PyTorch eager" if experience.kind == "kernel" else "what it was made from"
        told += f" {with_interval(measured.speedup)} as fast as {against}"
    if measured.median_ms is not None and experience.kind == "kernel":
        told += f"{',' if told else ''} {milliseconds(measured.median_ms)} a call"
    return f"{told}." if told else ""


def _worth(value: Value | None) -> str:
    if value is None or not value.visits:
        return " Value: not known yet."
    return f" Value: {value.q:+.2f} after {counted(value.visits, 'use')}."
