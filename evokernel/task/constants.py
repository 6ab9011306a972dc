"""Owns a task file's module-level names: finding them in the text, and other constants for them."""

import ast
import difflib
import io
from collections.abc import Iterable
from typing import Any

from evokernel.errors import TaskError


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence that suggests what `word` may have meant; empty if nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.65)
    return f" Did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else ""


def assignments(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """Expressions assigned to plain names at the top level of a module, in order."""
    found: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, []).append(value)
    return found


def bound_names(body: list[ast.stmt]) -> set[str]:
    """Names that the statements of a module bind, in whatever way."""
    names: set[str] = set()
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.Assign(targets=targets):
                names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                inner = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)]
                names |= bound_names(inner)
                for handler in getattr(node, "handlers", ()):
                    names |= bound_names(handler.body)
    return names


def with_constants(source: str, tree: ast.Module, values: dict[str, Any], label: str) -> str:
    """Put other values into module-level assignments, so that what derives from them follows.

    Args:
        source: The file's text.
        tree: The same, parsed.
        values: New values by name, written as Python writes them.
        label: The file, for messages.

    Returns:
        The changed text; every line keeps its number.

    Raises:
        TaskError: a name is not assigned exactly once.
    """
    if not values:
        return source
    known = assignments(tree)
    edits: list[ast.expr] = []
    texts: dict[int, str] = {}
    for name, value in values.items():
        if len(known.get(name, ())) != 1:
            raise TaskError(
                f"{label} has no module-level constant `{name}` that is assigned exactly once, "
                f"so its size cannot be set.{nearest(name, known)}"
            )
        edits.append(known[name][0])
        texts[id(known[name][0])] = repr(value)
    lines = [line.encode() for line in io.StringIO(source, newline="")]
    for node in sorted(edits, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        _replace(lines, node, texts[id(node)])
    return b"".join(lines).decode()


def _replace(lines: list[bytes], node: ast.expr, text: str) -> None:
    """Replace a node's bytes; the columns of `ast` count UTF-8 bytes, and the line count stays."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    tail = lines[last][node.end_col_offset :]
    lines[first] = lines[first][: node.col_offset] + text.encode() + tail
    lines[first + 1 : last + 1] = [b"\n" for _ in range(last - first)]
