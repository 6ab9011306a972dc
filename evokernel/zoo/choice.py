"""Owns which exhibits are looked at: those that are named, and fewer where time is short."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from evokernel.zoo import Exhibit, exhibits


def chosen(names: Sequence[str] = (), quick: bool = False) -> tuple[Exhibit, ...]:
    """The exhibits to look at.

    Args:
        names: Names, codes, kinds or backends; none of them is all.
        quick: Of every mechanism those that are marked, else one that no text rule sees where
            there is one, on few tasks; and in the same way honest candidates for each of these.
    """
    found = [e for e in exhibits() if not names or set(e.labels) & set(names)]
    if not quick:
        return tuple(found)
    often = Counter(exhibit.task for exhibit in exhibits())
    found.sort(key=lambda e: (e.needs_gpu, not e.quick, e.in_text, -often[e.task]))  # stable
    codes = _few([e for e in found if e.code], "code")
    tasks = {exhibit.task for exhibit in codes}
    honest = [e for e in found if not e.code and not e.needs_gpu]
    return (*codes, *_few([e for e in honest if e.task in tasks or not codes], "task"))


def _few(found: Sequence[Exhibit], field: Literal["code", "task"]) -> tuple[Exhibit, ...]:
    """The first with each value of a field, and all that are marked."""
    first: dict[str, Exhibit] = {}
    for exhibit in found:
        first.setdefault(getattr(exhibit, field), exhibit)
    kept = (e for e in found if e.quick or first[getattr(e, field)] is e)
    return tuple(sorted(kept, key=lambda e: getattr(e, field)))
