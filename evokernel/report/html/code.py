"""Owns sources inside of a page: highlighted text, and what differs from the parent.

A candidate is Python whose kernels are C++ or CUDA in long strings; those are highlighted in their
own language.
"""

import difflib
import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from evokernel.wording import plain

if TYPE_CHECKING:
    from markupsafe import Markup

LONG = 120
"""Letters from which on a string is taken for a kernel of another language (ours)."""


def highlighted(source: str, name: str) -> "Markup":
    """A Python source as lines of markup, each with the id `name-LINE`.

    Args:
        source: Any text; nothing in it becomes markup.
        name: Unique in the page; letters, digits and `-`.
    """
    from markupsafe import Markup
    from pygments.formatters import HtmlFormatter

    text = io.StringIO()
    tokens = ((_plainer(kind), value) for kind, value in _tokens(plain(source).rstrip("\n") + "\n"))
    HtmlFormatter(nowrap=True).format(tokens, text)
    lines = enumerate(text.getvalue().splitlines(), start=1)
    return Markup("".join(f'<span id="{name}-{n}">{line}\n</span>' for n, line in lines))


def _plainer(kind: Any) -> Any:
    """Text, for what the style sheet leaves as it is: a page of many sources is half as long."""
    from pygments.token import Name, Operator, Punctuation, Text

    is_plain = kind in (Name, Operator, Punctuation) or kind in Text
    return Text if is_plain and kind is not Operator.Word else kind


def _tokens(source: str) -> Iterator[tuple[Any, str]]:
    """Of Python, with long strings by the lexer of C++, which knows CUDA's words well enough."""
    from pygments.lexers import CudaLexer, PythonLexer
    from pygments.token import String

    kernel = CudaLexer(ensurenl=False, stripnl=False)
    text = ""
    for kind, value in PythonLexer(ensurenl=False, stripnl=False).get_tokens(source):
        if kind in String and kind not in String.Affix:
            text += value
            continue
        yield from _string(text, kernel)
        text = ""
        yield kind, value
    yield from _string(text, kernel)


def _string(text: str, kernel: Any) -> Iterator[tuple[Any, str]]:
    from pygments.token import String

    mark = text[:3]
    if len(text) < LONG or mark not in ('"""', "'''") or "{" not in text:
        if text:
            yield String, text
        return
    yield String, mark
    yield from kernel.get_tokens(text[3:].removesuffix(mark))
    if text.endswith(mark):
        yield String, mark


class Changes:
    """What differs between two sources, as a unified diff whose lines are marked."""

    def __init__(self, before: str, after: str, context: int = 3) -> None:
        old, new = (plain(text).splitlines() for text in (before, after))
        self.lines = tuple(difflib.unified_diff(old, new, lineterm="", n=context))[2:]
        self.added = sum(line.startswith("+") for line in self.lines)
        self.removed = sum(line.startswith("-") for line in self.lines)

    def markup(self) -> "Markup":
        """One `span` a line: `add`, `del`, `at` or none of these."""
        return _marked(self.lines)


def marked(diff: str) -> "Markup":
    """The same of a unified diff that is at hand, whoever wrote it."""
    return _marked(plain(diff).splitlines())


def _marked(lines: Iterable[str]) -> "Markup":
    from markupsafe import Markup

    kinds = {"+": "add", "-": "del", "@": "at"}
    rows = (
        Markup('<span class="{}">{}\n</span>').format(kinds.get(line[:1], "same"), line)
        for line in lines
    )
    return Markup("").join(rows)
