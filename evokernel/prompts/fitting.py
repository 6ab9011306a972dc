"""Owns the room of a prompt: what is shortened first when not everything fits."""

from collections.abc import Iterable

from evokernel.frozen import Frozen
from evokernel.prompts.section import Cut, Section, shortened, tokens

ORDER = (
    "log",
    "best",
    "techniques",
    "children",
    "drafts",
    "exemplars",
    "experiences",
    "operators",
    "machine",
    "second",
    "verdict",
    "task",
    "candidate",
)
"""From what is given up first to what is given up last. What a model cannot do without stands at
the end: the candidate that it has to give back whole, the task, and what was wrong."""


KEPT = frozenset({"task", "verdict", "candidate"})
"""Never shortened below their least: without them there is nothing to ask."""


class Fitted(Frozen):
    """Sections as they fit."""

    sections: dict[str, Cut]
    """By name; what there was nothing to say in is not among them."""

    @property
    def tokens(self) -> int:
        """Their estimated size together."""
        return sum(cut.tokens for cut in self.sections.values())

    @property
    def left_out(self) -> tuple[str, ...]:
        """What is missing, in a few words each."""
        return tuple(cut.left_out for cut in self.sections.values() if cut.left_out)


def fit(sections: Iterable[Section], room: int | None = None) -> Fitted:
    """Shorten sections to their budgets, and then until all of them fit.

    They are shortened in `ORDER`, each as far as it must be but not below its least; only when
    all are down to that do they go further, in the same order, and at last altogether. What is
    `KEPT` stays at its least.

    Args:
        sections: What could be said; one without items is left out.
        room: Tokens for all of them; None is no more limit than the budgets.

    Returns:
        The sections in the order given; more than `room` only where what is `KEPT` is.
    """
    known = {section.name: section for section in sections if section.items}
    cuts = {name: shortened(section, section.budget) for name, section in known.items()}
    if room is not None:
        for is_last in (False, True):
            _shorten(known, cuts, room, is_last)
    return Fitted(sections=cuts)


def _shorten(known: dict[str, Section], cuts: dict[str, Cut], room: int, is_last: bool) -> None:
    for name in (*(n for n in known if n not in ORDER), *ORDER):
        excess = sum(cut.tokens for cut in cuts.values()) - room
        if excess <= 0:
            return
        if name in known:
            section, now = known[name], cuts[name].tokens
            least = 0 if is_last and name not in KEPT else min(section.least, now)
            cuts[name] = shortened(section, max(now - excess, least))


def in_words(left_out: Iterable[str]) -> str:
    """One line for whoever reads the prompt; empty where nothing is missing."""
    told = "; ".join(left_out)
    return f"Left out of this message to keep it short: {told}." if told else ""


__all__ = ["ORDER", "Fitted", "fit", "in_words", "tokens"]
