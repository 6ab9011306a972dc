"""Owns the reading of a reply: which code block is the candidate, and what the text claims.

The rule, which the prompt states: the candidate is the last fenced block that is Python and defines
`ModelNew`. Fences are those of CommonMark: backticks or tildes, three or more, in lists and quotes
too. Where no block is, these stand in, in this order: a stretch from a fence to a later one (a
block with a fence inside that should have been longer), the whole reply if it is bare code, and a
block with `class ModelNew` that is not Python, whose author is told so by the evaluation.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from evokernel.attempt import Fault
from evokernel.frozen import Frozen


class Block(Frozen):
    """One fenced block."""

    language: str
    """First word after the fence, in lower case."""
    code: str
    first_line: int
    """Index of the fence's line, in the reply or in the block that holds this one."""
    depth: int
    """Blocks that hold this one."""
    is_closed: bool


class Claims(Frozen):
    """What a reply says about its candidate."""

    plan: str = ""
    techniques: tuple[str, ...] = ()
    """As written, in lower case, hyphens for spaces; the catalogue decides which of them exist."""
    used: tuple[str, ...] = ()
    """Ids of experiences."""


def read_code(text: str, is_cut_off: bool) -> str | Fault:
    """The candidate's source, or why there is none.

    Args:
        text: The reply.
        is_cut_off: Its author reached a limit before its end.
    """
    text = _spoken(text)
    blocks = tuple(_blocks(text))
    for source in (*_whole(blocks, is_cut_off), *_stretches(text, blocks)):
        return source
    if _defines_model(text):
        return _tidy(text)
    if is_cut_off:
        return Fault(kind="cut_off", reason=_CUT_OFF)
    if not text.strip():
        return Fault(kind="empty", reason="the reply holds no text")
    return _broken(blocks) or Fault(kind="no_candidate", reason=_lacking(blocks))


def read_claims(text: str) -> Claims:
    """What the first lines `Plan:`, `Techniques:` and `Used:` outside of code say."""
    found: dict[str, str] = {}
    for line in _prose(_spoken(text)):
        if match := _CLAIM.match(line):
            found.setdefault(match["name"].lower(), match["text"].strip(" *_`."))
    return Claims(
        plan=found.get("plan", ""),
        techniques=tuple(dict.fromkeys(_names(found.get("techniques", "")))),
        used=tuple(dict.fromkeys(_names(found.get("used", "")))),
    )


_CLAIM = re.compile(
    r"^[\s>*_#`-]*(?P<name>plan|techniques|used)[*_`]*\s*:[*_`]*\s*(?P<text>.*)$", re.IGNORECASE
)
_CUT_OFF = (
    "the reply reached its length limit before the code was complete; a shorter text before the "
    "code, or a shorter kernel, fits"
)
_DEFINITION = re.compile(r"^class ModelNew\b", re.MULTILINE)


def _spoken(text: str) -> str:
    """Without what the model only thought, and with plain line ends."""
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    return re.sub(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", "", text, flags=re.DOTALL)


def _blocks(text: str, depth: int = 0) -> Iterator[Block]:
    """Every fenced block, in order, those inside of a block that holds Markdown included."""
    from markdown_it import MarkdownIt

    for token in MarkdownIt("commonmark").parse(text):
        if token.type != "fence" or token.map is None:
            continue
        begin, end = token.map
        language = token.info.split()[0].lower() if token.info.split() else ""
        code = token.content
        if depth < 2 and (language in {"markdown", "md"} or "\n```" in f"\n{code}"):
            yield from _blocks(code, depth + 1)
        lines = code.count("\n") + (code != "" and not code.endswith("\n"))
        is_closed = end - begin == lines + 2
        yield Block(
            language=language, code=code, first_line=begin, depth=depth, is_closed=is_closed
        )


def _whole(blocks: Iterable[Block], is_cut_off: bool) -> Iterator[str]:
    """Blocks that are a candidate, best first."""
    for block in reversed(tuple(blocks)):
        if _defines_model(block.code) and (block.is_closed or not is_cut_off):
            yield _tidy(block.code)


def _stretches(text: str, blocks: Iterable[Block]) -> Iterator[str]:
    """From an opening fence to a closing one beyond the first, where that is a candidate."""
    lines = text.split("\n")
    fences = [i for i, line in enumerate(lines) if re.fullmatch(r" {0,3}(`{3,}|~{3,})\s*", line)]
    for block in (block for block in blocks if block.depth == 0):
        for end in reversed([i for i in fences if i > block.first_line]):
            code = "\n".join(lines[block.first_line + 1 : end])
            if "class ModelNew" in code and _defines_model(code):
                yield _tidy(code)


def _broken(blocks: tuple[Block, ...]) -> str | None:
    """The last block that means to be a candidate but is not Python."""
    found = [block.code for block in blocks if _DEFINITION.search(block.code)]
    return _tidy(found[-1]) if found else None


def _defines_model(code: str) -> bool:
    if not _DEFINITION.search(code):
        return False
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in body)


def _tidy(code: str) -> str:
    return code.strip("\n") + "\n"


def _lacking(blocks: tuple[Block, ...]) -> str:
    rule = "expected one fenced block of Python that defines `class ModelNew`"
    if not blocks:
        return f"the reply holds no code block; {rule}"
    languages = ", ".join(block.language or "unnamed" for block in blocks)
    return f"none of the reply's code blocks ({languages}) defines `class ModelNew`; {rule}"


def _prose(text: str) -> Iterator[str]:
    """The lines outside of fenced blocks."""
    from markdown_it import MarkdownIt

    fences = (t.map for t in MarkdownIt("commonmark").parse(text) if t.type == "fence" and t.map)
    inside = {line for begin, end in fences for line in range(begin, end)}
    return (line for i, line in enumerate(text.split("\n")) if i not in inside)


def _names(listed: str) -> Iterator[str]:
    for name in re.split(r"[,;]", listed):
        plain = re.sub(r"[\s_]+", "-", name.strip(" `*[]().").lower())
        if plain and plain not in {"none", "n/a"}:
            yield plain
