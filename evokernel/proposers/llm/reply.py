"""Owns the reading of a reply: which code block is the candidate, or why there is none.

The rule, which the prompt states: the candidate is the last fenced block that is Python and defines
`ModelNew`. Fences are those of CommonMark: backticks or tildes, three or more, in lists and quotes
too. Where no block is, these stand in, in this order: a stretch from a fence to a later one (a
block with a fence inside that should have been longer), the whole reply if it is bare code, and a
block with `class ModelNew` that is not Python, whose author is told so by the evaluation.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from evokernel.attempt import Fault
from evokernel.frozen import Frozen
from evokernel.proposers.llm.thoughts import spoken


class Reading(Frozen):
    """What a reply holds: a source, or the fault that there is none."""

    source: str = ""
    fault: Fault | None = None
    remark: str = ""
    """What was odd about a reply that can be judged."""


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


def read(text: str, *, is_cut_off: bool = False, before: Sequence[str] = ()) -> Reading:
    """The candidate of a reply.

    Args:
        text: The reply.
        is_cut_off: Its author reached a limit before its end.
        before: Sources that it was to change.
    """
    text = spoken(text)
    blocks = tuple(_blocks(text))
    found = _candidate(text, blocks, is_cut_off)
    if found is None:
        return Reading(fault=_lack(text, blocks, is_cut_off))
    if _leaves_out(found):
        return Reading(fault=Fault(kind="diff", reason=_PARTS))
    if any(same(found, source) for source in before):
        return Reading(fault=Fault(kind="unchanged", reason=_UNCHANGED))
    return Reading(source=found, remark=_remark(blocks, found))


def same(one: str, other: str) -> bool:
    """Whether two sources are the same program, comments and layout aside."""
    return one == other or (_tree(one) is not None and _tree(one) == _tree(other))


def is_python(code: str) -> bool:
    """Whether it can be parsed."""
    return _parsed(code) is not None


def _candidate(text: str, blocks: tuple[Block, ...], is_cut_off: bool) -> str | None:
    for source in (*_whole(blocks, is_cut_off), *_stretches(text, blocks)):
        return source
    if _defines_model(text):
        return _tidy(text)
    return None if is_cut_off else _broken(blocks)


def _lack(text: str, blocks: tuple[Block, ...], is_cut_off: bool) -> Fault:
    """Why there is no candidate."""
    if is_cut_off and text.strip():
        return Fault(kind="cut_off", reason=_CUT_OFF)
    if not text.strip():
        return Fault(kind="empty", reason="the reply holds no text")
    if any(_is_difference(code) for code in (*(block.code for block in blocks), text)):
        return Fault(kind="diff", reason=_DIFFERENCE)
    return Fault(kind="no_candidate", reason=_lacking(blocks))


_RULE = "expected one fenced block of Python that defines `class ModelNew`"
_CUT_OFF = (
    "the reply reached its length limit before the code was complete; a shorter text before the "
    "code, or a shorter kernel, fits"
)
_DIFFERENCE = (
    "the reply holds changes (a difference, or blocks to search and replace) in place of the "
    f"whole file; {_RULE}, complete"
)
_PARTS = (
    "the reply leaves parts of the file out (a comment stands in their place); expected the "
    "complete file: nothing is filled in from earlier ones"
)
_UNCHANGED = (
    "the reply gives back the code that it was to change, unchanged; expected another candidate"
)
_DEFINITION = re.compile(r"^class ModelNew\b", re.MULTILINE)
_MISPLACED = re.compile(r"\A\s*(?:python3?|py|cuda|c\+\+|cpp)[ \t]*\n")
"""A language's name in the first line of the code, which belongs behind the fence."""
_HUNK = re.compile(
    r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|^--- \S.*\n\+\+\+ \S|^\*\*\* (?:Begin Patch|Update File)"
    r"|^<{5,} ?(?:SEARCH|ORIGINAL)|^={5,}\s*$(?:\n.*)*?^>{5,} ?(?:REPLACE|UPDATED)",
    re.MULTILINE,
)
_LEFT_OUT = re.compile(
    r"^\s*(?:#|//)\s*(?:\.{3}|…)?.{0,12}\b(?:rest|remainder|remaining|existing|other)\b.{0,40}"
    r"\b(?:unchanged|same|as before|as above|omitted|code|identical)\b.{0,20}(?:\.{3}|…)?\s*$",
    re.MULTILINE | re.IGNORECASE,
)


def _is_difference(code: str) -> bool:
    """A unified difference, or blocks to search and replace."""
    if _HUNK.search(code):
        return True
    lines = [line for line in code.split("\n") if line.strip()]
    signed = [line for line in lines if re.match(r"[+-](?![+-])", line)]
    return len(lines) > 1 and len(signed) > len(lines) // 2 and "class ModelNew" in code


def _leaves_out(code: str) -> bool:
    """Whether a comment stands for a part of the file, marked by dots as people do."""
    found = (match[0] for match in _LEFT_OUT.finditer(code))
    return any("..." in line or "…" in line for line in found)


def _blocks(text: str, depth: int = 0) -> Iterator[Block]:
    """Every fenced block, in order, those inside of a block that holds Markdown included."""
    from markdown_it import MarkdownIt

    for token in MarkdownIt("commonmark").parse(text):
        if token.type != "fence" or token.map is None:
            continue
        begin, end = token.map
        language = token.info.split()[0].lower() if token.info.split() else ""
        code = _MISPLACED.sub("", token.content)
        if depth < 2 and (language in {"markdown", "md"} or "\n```" in f"\n{code}"):
            yield from _blocks(code, depth + 1)
        inside = token.content
        lines = inside.count("\n") + (inside != "" and not inside.endswith("\n"))
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
    found = [code for code in found if not _is_difference(code)]
    return _tidy(found[-1]) if found else None


def _remark(blocks: tuple[Block, ...], chosen: str) -> str:
    """What whoever replies next should know about the form of this reply."""
    whole = dict.fromkeys(_whole(blocks, is_cut_off=False))
    others = [source for source in whole if not same(source, chosen)]
    if not others:
        return ""
    return (
        f"the reply held {len(others) + 1} candidates, of which only the last was judged; give one"
    )


def _defines_model(code: str) -> bool:
    if not _DEFINITION.search(code):
        return False
    tree = _parsed(code)
    body = tree.body if tree else ()
    return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in body)


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _tree(code: str) -> str | None:
    tree = _parsed(code)
    return ast.dump(tree) if tree else None


def _tidy(code: str) -> str:
    return code.strip("\n") + "\n"


def _lacking(blocks: tuple[Block, ...]) -> str:
    if not blocks:
        return f"the reply holds no code block; {_RULE}"
    languages = ", ".join(block.language or "unnamed" for block in blocks)
    return f"none of the reply's code blocks ({languages}) defines `class ModelNew`; {_RULE}"
