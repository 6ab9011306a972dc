"""Owns what the page of a memory says of one experience."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from evokernel.memory import words
from evokernel.memory.evidence import Evidence, Showing
from evokernel.memory.experience import Experience
from evokernel.report.html.code import highlighted, marked
from evokernel.report.html.table import Cell, Table, row, table
from evokernel.report.knowledge import Known
from evokernel.report.knowledge_tables import number, whole, wide
from evokernel.report.places import STATUS_MARKS, Places, moment
from evokernel.wording import counted

if TYPE_CHECKING:
    from markupsafe import Markup

LEDGER = 30
"""Steps that one experience's ledger lists: the newest."""
LONGEST = 60_000
"""Letters of one text that are shown: its beginning."""
HIGHLIGHTED = 250_000
"""Letters of sources that are highlighted, which makes them five times as long."""
ROOM = 6_000_000
"""Letters of texts in all; what comes after them is named only."""

TEXTS = {
    "note": "Note",
    "error": "Error",
    "feedback": "Feedback",
    "diff": "Changes to the parent",
    "source": "Source",
}
"""Texts of an experience in the order of reading; others come between, by their names."""


class Text(NamedTuple):
    """One text of an experience."""

    title: str
    content: "Markup | str"
    kind: str
    """Class of its element: `text`, `diff` or `source`."""


class Card(NamedTuple):
    """One experience."""

    name: str
    """Id of its element."""
    title: str
    state: str
    mark: str
    facts: tuple[tuple[str, "Markup | str"], ...]
    answers: Table | None
    ledger: Table | None
    ledger_note: str
    history: Table
    revisions: Table | None
    texts: tuple[Text, ...]
    left_out: tuple[str, ...]
    """What is said of texts that stand elsewhere or have no room."""
    same_source: "Markup | str"
    """Link to the card that has its source; empty where this one has it, or none does."""


def cards(known: Sequence[Known], places: Places) -> Iterator[Card]:
    """All experiences that are shown, in order."""
    library = _Library(places)
    for one in known:
        yield _card(one, places, library)


class _Library:
    """Gives each text room once: a kernel and the edit that made it share their source."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._room = ROOM
        self._highlighted = HIGHLIGHTED
        self._holders: dict[str, str] = {}

    def holder(self, experience: Experience) -> str:
        """Id of another experience whose card has the same source already; empty if none."""
        source = experience.payload.get("source", "")
        return self._holders.setdefault(source, experience.id) if source else ""

    def has_room(self, text: str) -> bool:
        """Whether a text may stand in the page; it takes its room."""
        self._room -= min(len(text), LONGEST)
        return self._room >= 0

    def shown(self, id: str, name: str, text: str) -> Text:
        """One text, ready for the page."""
        title, cut = TEXTS.get(name, name), text[:LONGEST]
        if len(text) > LONGEST:
            title += f" (the first {LONGEST:,} of {len(text):,} letters)"
        if name == "diff":
            return Text(title, marked(cut), "diff")
        if name != "source":
            return Text(title, cut, "text")
        self._highlighted -= len(cut)
        if self._highlighted < 0:
            return Text(title, cut, "text")
        return Text(title, highlighted(cut, f"{self._places.name(id)}-line"), "source")


def _card(one: Known, places: Places, library: _Library) -> Card:
    entry, experience = one.entry, one.experience
    holder = library.holder(experience)
    is_elsewhere = holder not in {"", experience.id}
    wanted = {n: experience.payload[n] for n in _in_order(experience.payload)}
    if is_elsewhere:
        wanted.pop("source")
    found = {name: text for name, text in wanted.items() if library.has_room(text)}
    pinned = ", pinned" if entry.is_pinned else ""
    return Card(
        name=places.name(experience.id),
        title=experience.summary,
        state=f"{experience.origin.task}: {experience.kind}, {entry.status}{pinned}",
        mark=STATUS_MARKS[entry.status],
        facts=tuple((name, text) for name, text in _facts(one, places) if text),
        answers=_answers(experience),
        ledger=_ledger(one.evidence),
        ledger_note=_ledger_note(one.evidence.showings),
        history=_history(one.evidence),
        revisions=_revisions(one),
        texts=tuple(library.shown(experience.id, n, text) for n, text in found.items()),
        left_out=tuple(TEXTS.get(name, name) for name in wanted if name not in found),
        same_source=places.links([holder]) if is_elsewhere else "",
    )


def _in_order(payload: dict[str, str]) -> list[str]:
    order = list(TEXTS)
    return sorted(payload, key=lambda name: order.index(name) if name in order else len(order) - 2)


def _facts(one: Known, places: Places) -> "Iterator[tuple[str, Markup | str]]":
    entry, experience = one.entry, one.experience
    origin = experience.origin
    yield "id", experience.id
    yield "status", f"{entry.status}: {entry.reason}"
    yield "note", experience.note
    for stage, value in one.evidence.values.items():
        spread = "" if value.spread is None else f" ± {value.spread:.2f}"
        told = f"{value.q:+.3f}{spread} after {counted(value.visits, 'reward')}"
        yield f"value to {stage}", told if value.visits else "none: not rewarded yet"
    yield "techniques", ", ".join(experience.techniques)
    yield "measured", words.measured(experience)
    yield "outcome", f"{experience.outcome}, bound by {experience.bottleneck}"
    yield "task", f"{origin.task}, family {experience.family}, {experience.fingerprint}"
    yield (
        "made in",
        f"{origin.step} ({experience.stage}, {experience.backend}), by {origin.proposer}",
    )
    yield "entered", f"{moment(one.added_at)} UTC"
    candidate = f"{origin.candidate} from {', '.join(origin.parents) or 'nothing'}"
    yield "candidate", candidate if origin.candidate else ""
    yield "made from", places.links(one.parents)
    yield "shown then", places.links(origin.context)
    yield "led to", places.links(one.children)
    yield "shown for", places.links(one.followers)


def _answers(experience: Experience) -> Table | None:
    if not experience.answers:
        return None
    rows = (
        row(whole(answer.name), whole(answer.verdict), answer.evidence)
        for answer in experience.answers
    )
    return table(("answer", "", "evidence"), rows, is_long=True)


def _ledger(evidence: Evidence) -> Table | None:
    """The steps in which it was shown, newest first."""
    if not evidence.showings:
        return None
    heads = ("step", number("reward"), "shown", "run", "stage", "task", "policy")
    rows = (
        row(
            Cell(text=showing.step.rpartition("/")[2], hint=showing.step),
            _reward(showing),
            moment(showing.at),
            showing.run,
            showing.stage.value,
            showing.task,
            showing.policy,
            Cell(text=f"{showing.propensity:.2f}", value=showing.propensity),
            "" if showing.rewarded_at is None else moment(showing.rewarded_at),
        )
        for showing in evidence.showings[: -LEDGER - 1 : -1]
    )
    return table((*heads, number("chance"), "rewarded"), rows)


def _reward(showing: Showing) -> Cell:
    if showing.reward is None:
        return Cell(text="none", mark="faint")
    if not showing.counts:
        return Cell(text=f"{showing.reward:+.3f}, left out: retracted", mark="spoiled")
    mark = "passed" if showing.reward > 0 else "failed" if showing.reward < 0 else ""
    return Cell(text=f"{showing.reward:+.3f}", value=showing.reward, mark=mark)


def _ledger_note(showings: Sequence[Showing]) -> str:
    if not showings:
        return "It has not been shown to any step yet."
    runs = len({showing.run for showing in showings})
    earned = [s.reward for s in showings if s.reward is not None and s.counts]
    told = f"Shown {counted(len(showings), 'time')} in {counted(runs, 'run')}"
    if earned:
        told += f"; mean of {counted(len(earned), 'reward')} that count {fmean(earned):+.3f}"
    if len(showings) > LEDGER:
        told += f"; the {LEDGER} newest are listed"
    return f"{told}."


def _history(evidence: Evidence) -> Table:
    rows = (
        row(whole(moment(c.at)), whole(c.status), wide(c.reason), c.step) for c in evidence.history
    )
    return table(("when", "status", "why", "by"), rows, is_long=True)


def _revisions(one: Known) -> Table | None:
    if not one.revisions:
        return None
    rows = (
        row(
            whole(moment(revised.at)),
            wide(revised.reason),
            told(revised.change.model_dump(exclude_none=True)),
        )
        for revised in one.revisions
    )
    return table(("when", "why", "to"), rows, is_long=True)


def told(fields: dict[str, object]) -> str:
    """What a person changed, e.g. `note: mind the tail; techniques: tiling, unrolling`."""
    return "; ".join(
        f"{name}: {', '.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in fields.items()
    )
