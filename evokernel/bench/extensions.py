"""Owns the recognition of extensions that a worker built by itself, as `load_inline` does.

Their compiler runs inside the worker, so that this rests on weaker evidence than what the parent
builds: sources that lie beside the library and hold the candidate's own text, and the processor
time that the worker's children took, which the system counts.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from evokernel.bench.mappings import SCRATCH

LEAST_CHILDREN_S = 0.1
"""Processor seconds that building an extension takes at least: measured, one that includes nothing
takes 0.2, one with torch's headers 48."""
_LEAST_TEXT = 40
"""Characters of a text that is taken for a source."""
_SOURCES = (".cpp", ".cc", ".cxx", ".c", ".cu")
_MOST_FILES, _MOST_BYTES = 50, 1 << 20
_TICKS = 100  # of the times in /proc/<pid>/stat, on every architecture that Linux runs on today
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
    texts = tuple(_long_texts(source))
    return tuple(path for path in libraries if _has_source(pid, path, texts))


def children_s(pid: int) -> float:
    """Processor seconds of the children that a process waited for; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])) / _TICKS


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


def _has_source(pid: int, library: str, texts: tuple[str, ...]) -> bool:
    """Whether a source beside the library holds one of the texts."""
    folder = Path(f"/proc/{pid}/root{library}").parent
    try:
        files = [path for path in sorted(folder.iterdir()) if path.suffix in _SOURCES]
        beside = [path.read_bytes()[:_MOST_BYTES].decode() for path in files[:_MOST_FILES]]
    except (OSError, UnicodeDecodeError):
        return False
    return any(text in found for found in beside for text in texts)
