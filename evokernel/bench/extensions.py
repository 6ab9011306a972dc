"""Owns the recognition of extensions that a worker built by itself, as `load_inline` does.

Their compiler runs inside the worker, so that this rests on weaker evidence than what the parent
builds: sources that lie beside the library and hold lines of the candidate's text, and the
processor time that the worker's children took, which the system counts.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from evokernel.bench.disturbance import TICK_S
from evokernel.bench.mappings import SCRATCH

LEAST_CHILDREN_S = 0.1
"""Processor seconds that building an extension takes at least: measured, one that includes nothing
takes 0.2, one with torch's headers 48."""
_LEAST_TEXT = 40
"""Characters of a text that is taken for a source."""
_SOURCES = (".cpp", ".cc", ".cxx", ".c", ".cu")
_MOST_FILES, _MOST_BYTES = 50, 1 << 20
_LEAST_LINE = 12
"""Characters of a line that is looked for in a source."""
_CHILDREN_USER, _CHILDREN_SYSTEM = 13, 14  # fields after the name in parentheses


def built_here(pid: int, mapped: Iterable[str], source: str) -> tuple[str, ...]:
    """Those of the mapped files that the process built from its candidate's source.

    Args:
        pid: The worker's process.
        mapped: Paths of executable mappings.
        source: The candidate's text.
    """
    libraries = sorted({path for path in mapped if SCRATCH.search(path)})
    if not libraries or children_s(pid) < LEAST_CHILDREN_S:
        return ()
    texts = tuple(filter(None, map(_lines, _long_texts(source))))
    return tuple(path for path in libraries if _has_source(pid, path, texts))


def children_s(pid: int) -> float:
    """Processor seconds of the children that a process waited for; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])) * TICK_S


def _long_texts(source: str) -> Iterator[str]:
    """Texts in the candidate that may be C++."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # nested as deeply as no C++ is
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.strip()
            if len(text) >= _LEAST_TEXT and "{" in text:
                yield text


def _lines(text: str) -> frozenset[str]:
    """The longer lines and statements of a text."""
    parts = (part.strip() for part in re.split(r"[\n;{}]", text))
    return frozenset(part for part in parts if len(part) >= _LEAST_LINE)


def _has_source(pid: int, library: str, texts: tuple[frozenset[str], ...]) -> bool:
    """Whether a source beside the library holds half of the lines of one of the texts.

    Not all of them: what is put in for names, types and sizes differs.
    """
    folder = Path(f"/proc/{pid}/root{library}").parent
    try:
        files = [path for path in sorted(folder.iterdir()) if path.suffix in _SOURCES]
        beside = [_lines(path.read_bytes()[:_MOST_BYTES].decode()) for path in files[:_MOST_FILES]]
    except (OSError, UnicodeDecodeError):
        return False
    return any(2 * len(text & found) >= len(text) for found in beside for text in texts)
