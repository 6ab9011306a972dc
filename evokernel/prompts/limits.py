"""Owns how much of each thing a prompt shows, and how what is left out is named."""

import re
from typing import Self

from evokernel.frozen import Frozen


class Limits(Frozen):
    """Most letters, or entries, of each part of a prompt. The figures are ours."""

    task: int = 16_000
    """Of the task's file."""
    graph: int = 60
    """Operators of the graph."""
    candidate: int = 48_000
    """Of a candidate that is to be edited; one that is cut cannot be given back whole."""
    other: int = 20_000
    """Of a second start point."""
    experience: int = 6_000
    """Of the source or the difference that an experience holds."""
    children: int = 12
    """Attempts made from the same start point."""
    diagnostics: int = 8
    """Messages of the compiler."""
    mismatches: int = 4
    """Places at which results differ."""
    log: int = 1_500
    """Of what the candidate printed: its end."""
    line: int = 500
    """Of one message."""

    def halved(self) -> Self:
        """For a model with less room; what is to be edited stays whole the longest."""
        kept = {"candidate": self.candidate // 2 if self.experience < 2_000 else self.candidate}
        return self.model_copy(update={n: max(1, v // 2) for n, v in self} | kept)


def cut(text: str, limit: int, what: str) -> str:
    """The text, or its beginning and its end, with a line between them on what is missing."""
    if len(text) <= limit:
        return text
    head = text[: limit * 2 // 3].rpartition("\n")[0] or text[: limit * 2 // 3]
    tail = text[len(text) - limit // 3 :].partition("\n")[2] or text[len(text) - limit // 3 :]
    missing = len(text) - len(head) - len(tail)
    return f"{head}\n[... {missing} letters of {what} are left out here ...]\n{tail}"


def line(text: str, limit: int) -> str:
    """One line of at most so many letters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]} [...]"


def listed(entries: list[str], limit: int, what: str) -> list[str]:
    """The first entries, and how many more there are."""
    more = len(entries) - limit
    return entries if more <= 0 else [*entries[:limit], f"[... and {more} more {what}]"]


def fenced(code: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"
