"""Owns how messages of compilers become records, and how a record reads."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from evokernel.evaluation import Diagnostic

_MOST = 12
_MESSAGE_CHARS = 500
_EXCERPT_CHARS = 200


def located(
    file: str,
    severity: Literal["error", "warning"],
    message: str,
    line: int | None = None,
    column: int | None = None,
    source: Sequence[str] = (),
) -> Diagnostic:
    """A message about a file as a whole, or about one of its lines.

    Args:
        file: Its name.
        severity: How bad it is.
        message: What is said; capped in length.
        line: Line number from 1; None is the file as a whole.
        column: Column from 1.
        source: The file's lines, for the excerpt.
    """
    excerpt = source[line - 1].strip() if line and line <= len(source) else None
    return Diagnostic(
        severity=severity,
        message=_cut(message, _MESSAGE_CHARS),
        file=file,
        line=line,
        column=column,
        excerpt=_cut(excerpt, _EXCERPT_CHARS) if excerpt else None,
    )


def capped(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Errors first, and not more than anybody reads."""
    return tuple(sorted(found, key=lambda d: d.severity != "error")[:_MOST])


def line_of(name: str, source: Sequence[str]) -> int | None:
    """First line that mentions a function or variable."""
    pattern = re.compile(rf"\b{re.escape(name)}\b")
    return next((n for n, line in enumerate(source, 1) if pattern.search(line)), None)


def rendered(diagnostic: Diagnostic) -> str:
    """One line in the compilers' own form: `kernel_0.cpp:3:5: error: ...`."""
    position = (diagnostic.file, diagnostic.line, diagnostic.column)
    place = ":".join(str(part) for part in position if part is not None)
    return f"{place or 'compiler'}: {diagnostic.severity}: {diagnostic.message}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 4]} ..."
