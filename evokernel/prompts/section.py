"""Owns `Section`: a heading with items below it, and how it is made shorter.

What goes first is the last item, since the best or newest stands first; of an item that stays and
is still too long, the middle of its code goes. Each time it is said where something is missing.
"""

import math
import re
from collections.abc import Sequence

from evokernel.frozen import Frozen

LETTERS = 3.5
"""Letters in a token, as estimated (ours): GPT-4's tokeniser (cl100k) takes 3.5 to 4.1 for prompts
of real runs, in which code stands between English sentences."""
SHORTEST = 400
"""Letters of a code that is shown at all: less of one says nothing."""


class Item(Frozen):
    """One thing that a section tells."""

    text: str
    """What is said about it."""
    code: str = ""
    """Shown below the text, in a fence of its own."""
    language: str = ""
    what: str = "the code"
    """How the code is called where its middle is missing."""

    @property
    def whole(self) -> str:
        """All of it."""
        return self.shortened(len(self.code))

    def shortened(self, letters: int) -> str:
        """With at most about so many letters of the code."""
        if not self.code:
            return self.text
        code = fenced(cut(self.code, letters, self.what), self.language)
        return f"{self.text}\n\n{code}" if self.text else code


class Section(Frozen):
    """A part of a prompt."""

    name: str
    """Of its place in the text of a step, without the `$`."""
    title: str
    intro: str = ""
    items: tuple[Item, ...]
    outro: str = ""
    budget: int
    """Tokens at most, however much room there is."""
    least: int = 0
    """Tokens that it keeps until every other section is down to its least."""
    what: str = "lines"
    """What its items are, where some are missing."""
    gap: str = "\n"
    """What stands between two items."""

    @property
    def whole(self) -> str:
        """All of it."""
        return self.shown([item.whole for item in self.items])

    def shown(self, items: Sequence[str], note: str = "") -> str:
        """These items under the heading."""
        parts = (self.intro, self.gap.join(items), note, self.outro)
        body = "\n\n".join(part for part in parts if part)
        return f"## {self.title}\n\n{body}\n" if body else ""


class Cut(Frozen):
    """A section as it is shown."""

    text: str
    """Empty where all of it is left out."""
    left_out: str = ""
    """What is missing, in a few words."""

    @property
    def tokens(self) -> int:
        """Its estimated size."""
        return tokens(self.text)


def tokens(text: str) -> int:
    """How many tokens a text has, estimated."""
    return math.ceil(len(text) / LETTERS)


def shortened(section: Section, room: int) -> Cut:
    """The section in at most so many tokens, or nothing of it."""
    if tokens(section.whole) <= room:
        return Cut(text=section.whole)
    total = len(section.items)
    for count in range(total - 1, 0, -1):
        note = f"[left out here: {total - count} of {total} {section.what}]"
        text = section.shown([item.whole for item in section.items[:count]], note)
        if tokens(text) <= room:
            return Cut(text=text, left_out=f"{total - count} of {total} {section.what}")
    return _first(section, room)


def _first(section: Section, room: int) -> Cut:
    """As much of the first item as fits."""
    first, others = section.items[0], len(section.items) - 1
    note = f"[left out here: {others} of {others + 1} {section.what}]" if others else ""
    missing = f"{others} of {others + 1} {section.what} and " if others else ""
    frame = len(section.shown([first.shortened(0)], note))
    letters = int(room * LETTERS) - frame
    if not first.code or letters < SHORTEST:
        return Cut(text="", left_out=f"all of `{section.title}`")
    text = section.shown([first.shortened(letters)], note)
    return Cut(text=text, left_out=f"{missing}the middle of {first.what}")


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


def fenced(code: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"
