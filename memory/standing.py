"""Owns what a memory says of candidates and experiences to those who met them elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from evokernel.config import MemoryConfig
from evokernel.errors import StoreError
from evokernel.frozen import Frozen
from evokernel.memory.database import FILE
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.store import Memory
from evokernel.memory.withdrawal import Withdrawal


class Standing(Frozen):
    """What is withdrawn or suspect of what memory keeps about one candidate."""

    withdrawn: tuple[str, ...] = ()
    """Ids."""
    suspect: tuple[str, ...] = ()
    """Ids."""
    reason: str = ""
    """Of the first of them."""
    trouble: str = ""
    """Why the memory could not be asked."""

    def in_words(self) -> str:
        """One sentence; empty where nothing is held against it."""
        if self.trouble:
            return f"memory could not be asked whether it was retracted: {self.trouble}"
        if self.withdrawn:
            return f"retracted: {self.reason}"
        return f"suspect: {self.reason}" if self.suspect else ""


def standing(place: Path, candidate: str) -> Standing:
    """Ask the memory at `place`, if there is one; a fault of it is told, not raised."""
    if not (place / FILE).exists():
        return Standing()
    try:
        with _opened(place) as memory:
            entries = memory.standing(candidate)
    except StoreError as error:
        return Standing(trouble=str(error).splitlines()[0])
    gone = [e for e in entries if e.status is ExperienceStatus.TOMBSTONE]
    rest = [e for e in entries if e.status is ExperienceStatus.SUSPECT]
    return Standing(
        withdrawn=tuple(entry.experience.id for entry in gone),
        suspect=tuple(entry.experience.id for entry in rest),
        reason=next((entry.reason for entry in (*gone, *rest)), ""),
    )


def summaries(place: Path, ids: Sequence[str]) -> dict[str, str]:
    """What experiences are about, by id, as far as the memory at `place` still knows them."""
    if not ids or not (place / FILE).exists():
        return {}
    try:
        with _opened(place) as memory:
            return dict(_summaries(memory, ids))
    except StoreError:
        return {}  # a page about a run does not fail because of them


def _summaries(memory: Memory, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    for id in ids:
        with suppress(StoreError):  # of an experience that is not there any more
            yield id, memory.get(id).experience.summary


def retract(place: Path, candidate: str, reason: str) -> Withdrawal | None:
    """Withdraw all that a memory claims of a candidate; None where it claims nothing.

    Raises:
        StoreError: the memory is damaged or locked.
    """
    if not (place / FILE).exists():
        return None
    with _opened(place) as memory:
        withdrawal = memory.withdrawal(memory.about(candidate))
        memory.forget(withdrawal, reason)
        return withdrawal if withdrawal.ids or withdrawal.gone else None


def reinstate(place: Path, candidate: str, reason: str) -> tuple[str, ...]:
    """Give what is suspect of a candidate its former status.

    Returns:
        Ids of what was suspect.

    Raises:
        StoreError: the memory is damaged or locked.
    """
    with _opened(place) as memory:
        suspect = ExperienceStatus.SUSPECT
        found = [e.experience.id for e in memory.standing(candidate) if e.status is suspect]
        return memory.reinstate(found, reason)


def _opened(place: Path) -> Memory:
    return Memory.open(MemoryConfig(path=place), create=False, to_repair=True)
