"""Owns the splitting of C++ text into tokens, as far as reading declarations needs it."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
      (?P<skip>\s+|//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/|\\\n)
    | (?P<directive>\#(?:[^\n\\]|\\\n|\\.)*)
    | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)")
    | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
    | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
    | (?P<name>[A-Za-z_]\w*)
    | (?P<number>\.?\d(?:[\w.]|'\w|[eEpP][+-])*)
    | (?P<mark>::|->|\.\.\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DEFINE = re.compile(r"\s*#\s*define\s+([A-Za-z_]\w*)(?![\w(])(.*)", re.DOTALL)
_CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b\s*(.*)")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_ATTRIBUTES = frozenset(
    {"__attribute__", "__attribute", "__declspec", "alignas", "noexcept"}
    | {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__"}
)
_MACRO_DEPTH = 8


class Token(NamedTuple):
    """One token of a source."""

    text: str
    """As written; a string keeps its quotes."""
    line: int
    """One-based line on which it begins."""
    is_name: bool = False
    """An identifier or keyword."""


def tokenize(source: str) -> list[Token]:
    """Split C++ text into tokens, without comments and preprocessor lines.

    Macros without parameters are replaced. Of the branches of a condition only the first is
    kept (the second where the first is `#if 0`), so that braces stay balanced.
    """
    macros: dict[str, list[Token]] = {}
    branches: list[bool] = []
    kept: list[Token] = []
    for kind, text, line in _pieces(source):
        if kind == "directive":
            _direct(text, branches, macros)
        elif all(branches):
            kept += _replaced(Token(text, line, kind == "name"), macros)
    return kept


def _pieces(source: str) -> Iterator[tuple[str, str, int]]:
    line = 1
    for match in _TOKEN.finditer(source):
        if match["skip"] is None:
            kind = "raw" if match["raw"] is not None else str(match.lastgroup)
            yield kind, match[0], line
        line += match[0].count("\n")


def _direct(text: str, branches: list[bool], macros: dict[str, list[Token]]) -> None:
    if condition := _CONDITION.match(text):
        _branch(condition[1], condition[2], branches)
    elif all(branches) and (define := _DEFINE.match(text)):
        body = define[2].replace("\\\n", " ")
        macros[define[1]] = [
            Token(piece, 0, kind == "name")
            for kind, piece, _ in _pieces(body)
            if kind != "directive"
        ]


def _branch(word: str, rest: str, branches: list[bool]) -> None:
    if word.startswith("if"):
        branches.append(not (word == "if" and rest.split("/")[0].strip() in {"0", "false"}))
    elif word == "endif":
        del branches[-1:]
    elif branches:
        branches[-1] = not branches[-1] and word == "else"


def _replaced(token: Token, macros: dict[str, list[Token]], depth: int = 0) -> list[Token]:
    if not token.is_name or token.text not in macros or depth >= _MACRO_DEPTH:
        return [token]
    return [
        inner
        for part in macros[token.text]
        for inner in _replaced(part._replace(line=token.line), macros, depth + 1)
    ]


def closing(tokens: Sequence[Token], at: int) -> int:
    """Index of the bracket that closes the one at `at`, or of the last token where none does."""
    expected: list[str] = []
    for index in range(at, len(tokens)):
        text = tokens[index].text
        if text in _PAIRS:
            expected.append(_PAIRS[text])
        elif expected and text == expected[-1]:
            expected.pop()
            if not expected:
                return index
    return len(tokens) - 1


def split_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    """Part a parameter list at its outermost commas; an empty list has no parts."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in {"(", "[", "{", "<"}) - (token.text in {")", "]", "}", ">"})
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def without_attributes(tokens: Sequence[Token]) -> list[Token]:
    """Leave out attributes, alignment and `noexcept`."""
    kept: list[Token] = []
    at = 0
    while at < len(tokens):
        following = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if tokens[at].text in _ATTRIBUTES:
            at = closing(tokens, at + 1) + 1 if following == "(" else at + 1
        elif tokens[at].text == "[" and following == "[":
            at = closing(tokens, at) + 1
        else:
            kept.append(tokens[at])
            at += 1
    return kept
