"""Owns when two sources are the same code: by canonical form, or nearly so by a sketch of it."""

import ast
import hashlib
import re
import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SHINGLE = 5
"""Tokens in a row that are compared as one (ours)."""
SKETCH = 64
"""Smallest hashes that are kept of a source; the likeness is then known to about 0.04 (ours)."""
ALIKE = 0.9
"""Jaccard likeness from which two sources count as one (ours; Makora drops tasks above 0.8)."""

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKENS = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|<<|>>|[^\s\w]")

Sketch = NDArray[np.uint32]
"""The smallest hashes of the shingles of a source, rising, shape (at most SKETCH,)."""


@lru_cache(maxsize=64)
def shape_of(source: str) -> str:
    """Hash of the canonical form; empty for an empty source."""
    tokens = canonical(source)
    return hashlib.sha256("\n".join(tokens).encode("utf-8", "replace")).hexdigest()[:16] * bool(
        tokens
    )


@lru_cache(maxsize=64)
def sketch_of(source: str) -> bytes:
    """The bottom-k sketch of the shingles of the canonical form, as bytes of uint32.

    Source: Broder, "On the resemblance and containment of documents", 1997.
    """
    tokens = canonical(source)
    runs = {" ".join(tokens[i : i + SHINGLE]) for i in range(max(1, len(tokens) - SHINGLE + 1))}
    hashes = sorted({zlib.crc32(run.encode("utf-8", "replace")) for run in runs if run})
    return np.asarray(hashes[:SKETCH], dtype=np.uint32).tobytes()


def likeness(one: Sketch, two: Sketch) -> float:
    """Estimate of the Jaccard likeness of two sources from their sketches, 0..1."""
    union = np.union1d(one, two)[:SKETCH]
    if not len(union):
        return 0.0
    both = np.intersect1d(one, two, assume_unique=True)
    return len(np.intersect1d(both, union, assume_unique=True)) / len(union)


@lru_cache(maxsize=64)
def canonical(source: str) -> tuple[str, ...]:
    """Tokens of a source without what does not matter: layout, comments, docstrings, local names.

    Python is taken apart as a syntax tree, with what a function binds numbered in order; kernels in
    its strings are split into tokens without their comments. What is no Python is split likewise.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return _split(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            _number(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _strip(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = " ".join(_split(node.value))
    return _split(ast.unparse(ast.fix_missing_locations(tree)))


def _split(text: str) -> tuple[str, ...]:
    return tuple(_TOKENS.findall(_COMMENTS.sub(" ", text)))


def _strip(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Take the docstring away."""
    first = node.body[0] if node.body else None
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return
    if isinstance(first.value.value, str):
        node.body[0] = ast.Pass()


def _number(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
    """Name what the function binds `v0`, `v1` ... in the order in which it is bound."""
    nodes = list(ast.walk(function))
    fixed = {name for n in nodes if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
    bound: dict[str, str] = {}
    for node in nodes:
        name = _bound(node)
        if name and name not in fixed and not re.fullmatch(r"v\d+", name):
            bound.setdefault(name, f"v{len(bound)}")
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in bound:
            node.id = bound[node.id]
        elif isinstance(node, ast.arg) and node.arg in bound:
            node.arg = bound[node.arg]


def _bound(node: ast.AST) -> str:
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""
