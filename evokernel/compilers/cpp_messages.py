"""Owns the reading of compiler messages: from the text of g++, clang++ and linkers to records.

The text is read, not g++'s JSON: JSON leaves out from where a template was instantiated (so an
error inside a header never names the author's line), comes back empty under `-fmax-errors`, is
not written when the compiler is killed, and is gone from later versions.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Literal

from evokernel.compilers.diagnostics import capped, line_of, located
from evokernel.evaluation import Diagnostic

KERNEL = "kernel.cpp"
"""Name under which every kernel is compiled, so that equal sources give equal libraries."""

_MESSAGE = re.compile(
    r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<kind>fatal error|error|warning|note): (?P<text>.*)"
)
_ORIGIN = re.compile(
    r"(?:In file included from |\s+from )?(?P<file>[^\s:][^:]*):(?P<line>\d+)(?::\d+)?[:,]"
    r"(?:\s+(?:recursively )?required .*)?"
)
_NEW_CONTEXT = re.compile(r"In file included from |.*: In |.*: At ")
_UNDEFINED = re.compile(r".*undefined (?:reference to|symbol:?) [`'\"]?(?P<symbol>.+?)[`'\"]?")
_LINKER = re.compile(r"(?:\S*/)?(?:ld|ld\.\w+|mold|collect2): (?:error: )?(?P<text>.+)")
_ASSEMBLER = re.compile(r"\S+\.s:\d+: Error: (?P<text>.+)")
_LINKER_NOISE = re.compile(r".*in function .*:|.*returned \d+ exit status|.*: in function .*")
_GIVEN_UP = re.compile(
    r"virtual memory exhausted|\S+: out of memory allocating|LLVM ERROR: out of mem"
)
_KILLED = re.compile(
    r"\S+: (?:fatal|internal compiler) error: .*signal terminated program (?P<which>\S+)"
)


def parse(output: str, source: str) -> tuple[Diagnostic, ...]:
    """Read what a compiler and linker wrote about `KERNEL`.

    Args:
        output: both standard streams, in the C locale and without colours.
        source: the kernel, for the excerpts.

    Returns:
        Errors first, then warnings, each once, capped in number and length. An error inside a
        header stands at the kernel's line that led there, where the compiler told.
    """
    lines = source.split("\n")  # as compilers count: a form feed ends no line
    quoted = {line.strip() for line in lines}  # a compiler's excerpt is no message
    told = [text for text in output.split("\n") if text.strip() not in quoted]
    found: dict[tuple[object, ...], Diagnostic] = {}
    for diagnostic in _read(told, lines):
        found.setdefault(_identity(diagnostic), diagnostic)
    return capped(found.values())


def ran_out_of_memory(output: str) -> bool:
    """Whether the compiler itself gave up for lack of memory (its own words, at a line start)."""
    return any(_GIVEN_UP.match(line) for line in output.splitlines())


def was_killed(output: str) -> bool:
    """Whether the driver reports that somebody killed one of its programs."""
    return any(_KILLED.fullmatch(line) for line in output.splitlines())


def failure(message: str) -> Diagnostic:
    """An error without a position."""
    return located(KERNEL, "error", message)


def _identity(diagnostic: Diagnostic) -> tuple[object, ...]:
    """What makes a message a repetition: of many from one template, led to by one line, one."""
    if diagnostic.column is None and diagnostic.line is not None:
        return diagnostic.severity, diagnostic.line, diagnostic.message.rpartition(" (in ")[0]
    return diagnostic.severity, diagnostic.line, diagnostic.column, diagnostic.message


def _read(output: Iterable[str], source: list[str]) -> Iterator[Diagnostic]:
    origin: int | None = None
    pending: re.Match[str] | None = None  # an error in a header, until its origin is known
    for text in output:
        if _NEW_CONTEXT.match(text):
            origin = None
        if message := _MESSAGE.fullmatch(text):
            is_note = message["kind"] == "note"
            if pending and (not is_note or message["file"] == KERNEL):
                yield _located(pending, int(message["line"]) if is_note else None, source)
                pending = None
            if is_note:
                continue
            if message["file"] == KERNEL or origin:
                yield _located(message, origin, source)
            else:
                pending = message
        elif (place := _ORIGIN.fullmatch(text)) and place["file"] == KERNEL:
            origin = int(place["line"])
        elif not text[:1].isspace() and (linked := _tool(text, source)):
            yield linked
    if pending:
        yield _located(pending, None, source)


def _located(message: re.Match[str], origin: int | None, source: list[str]) -> Diagnostic:
    severity: Literal["error", "warning"] = "warning" if message["kind"] == "warning" else "error"
    line, text = int(message["line"]), message["text"]
    column = int(message["column"]) if message["column"] else None
    if message["file"] == KERNEL:
        return located(KERNEL, severity, text, line, column, source)
    header = "/".join(PurePath(message["file"]).parts[-2:])
    if origin:
        return located(KERNEL, severity, f"{text} (in {header}:{line})", origin, None, source)
    return located(header, severity, text, line, column)


def _tool(text: str, source: list[str]) -> Diagnostic | None:
    """Read a line of the linker or the assembler."""
    if undefined := _UNDEFINED.fullmatch(text):
        symbol = undefined["symbol"]
        line = _line_of(symbol, source)
        return located(KERNEL, "error", f"undefined reference to `{symbol}`", line, None, source)
    if assembler := _ASSEMBLER.fullmatch(text):
        return failure(f"the assembler refuses it: {assembler['text']}")
    if (linker := _LINKER.fullmatch(text)) and not _LINKER_NOISE.fullmatch(text):
        if linker["text"].startswith("warning: "):
            return failure(linker["text"]).model_copy(update={"severity": "warning"})
        return failure(f"the linker refuses it: {linker['text']}")
    return None


def _line_of(symbol: str, source: list[str]) -> int | None:
    """First line that mentions the function or variable of a demangled symbol."""
    names = re.findall(r"[A-Za-z_]\w*", re.sub(r"[(<\[].*", "", symbol))
    return line_of(names[-1], source) if names else None
