"""Owns the removal of what a model only thought from what it says."""

import re

_TAGS = ("think", "thinking", "thought", "reasoning", "reflection", "scratchpad")
_NAMES = "|".join(_TAGS)
_LEADING = re.compile(
    rf"\A\s*(?:<(?P<tag>{_NAMES})>.*?(?:</(?P=tag)>|\Z)|\[THINK\].*?(?:\[/THINK\]|\Z)"
    r"|◁think▷.*?(?:◁/think▷|\Z))",
    re.DOTALL | re.IGNORECASE,
)
_CLOSED_ONLY = re.compile(rf"^[ \t]*(?:</(?:{_NAMES})>|\[/THINK\]|◁/think▷)[ \t]*$", re.MULTILINE)
_OPENED = re.compile(rf"<(?:{_NAMES})>|\[THINK\]|◁think▷", re.IGNORECASE)
_CHANNEL = re.compile(r"<\|channel\|>final(?:<\|[a-z_]+\|>[^<\n]*)*<\|message\|>", re.IGNORECASE)
_MARK = re.compile(r"<\|(?:end|return|start|message|im_end|endoftext)\|>(?:assistant)?")


def spoken(text: str) -> str:
    """A reply without what comes before it: thoughts between tags, or in a channel of their own.

    A tag that is never closed leaves nothing: everything after it was thought. A tag that is closed
    but was never opened was opened by the server's template, before the reply began. Line ends come
    out plain.
    """
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    if final := list(_CHANNEL.finditer(text)):
        text = _MARK.sub("", text[final[-1].end() :])
    while (found := _LEADING.match(text)) is not None:
        text = text[found.end() :]
    closed = _CLOSED_ONLY.search(text)
    if closed and not _OPENED.search(text[: closed.start()]):
        text = text[closed.end() :]
    return text
