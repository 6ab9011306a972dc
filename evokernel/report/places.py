"""Owns where a page of a memory tells of an experience, and how other parts of it point there."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from evokernel.memory.experience import ExperienceStatus
from evokernel.report.html.table import Cell
from evokernel.wording import plain

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_LINKS = 12
"""Experiences that one line names; the others are counted."""
SHORT = 40
"""Letters up to which an id is never broken into lines."""
STATUS_MARKS = {
    ExperienceStatus.QUARANTINE: "faint",
    ExperienceStatus.ACTIVE: "passed",
    ExperienceStatus.SUSPECT: "failed",
    ExperienceStatus.RETIRED: "spoiled",
    ExperienceStatus.TOMBSTONE: "failed",
}
"""Class of a status."""


class Places:
    """Numbers what a page shows, because an id may be any text."""

    def __init__(self, shown: Sequence[str], summaries: Mapping[str, str]) -> None:
        self._numbers = {id: number for number, id in enumerate(shown, 1)}
        self._summaries = summaries

    def name(self, id: str) -> str:
        """The id of its element; empty where the page does not show it."""
        return f"experience-{self._numbers[id]}" if id in self._numbers else ""

    def cell(self, id: str, text: str = "") -> Cell:
        """A cell that leads to it, where it is shown.

        Args:
            id: The experience.
            text: What to read there instead of the id.
        """
        said = self._summaries.get(id, "")
        link = f"#{self.name(id)}" if self.name(id) else ""
        return Cell(text=text or id, link=link, hint=said, mark="wide" if text else "code whole")

    def links(self, ids: Iterable[str]) -> "Markup":
        """All of them in one line."""
        from markupsafe import Markup

        known = list(dict.fromkeys(ids))
        parts = [self._link(id) for id in known[:MOST_LINKS]]
        if len(known) > MOST_LINKS:
            parts.append(Markup("{} more").format(len(known) - MOST_LINKS))
        return Markup(", ").join(parts)

    def _link(self, id: str) -> "Markup":
        from markupsafe import Markup

        about = self.cell(id)
        kind, title = "code whole" if len(id) <= SHORT else "code", plain(about.hint)
        if not about.link:
            text = '<span class="{}" title="{}">{}</span>'
            return Markup(text).format(kind, title, plain(id))
        link = '<a class="{}" href="{}" title="{}">{}</a>'
        return Markup(link).format(kind, about.link, title, plain(id))


def moment(at: float) -> str:
    """A time to the minute, e.g. `2026-11-01 18:30`, in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"
