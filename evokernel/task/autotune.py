"""Owns what `@triton.autotune` in a candidate becomes: a choice that our own search makes.

Triton's autotuner times configurations when the kernel is first called, whether right or wrong,
and anew in every process. Here each kernel's list is cut to one entry by a constant, and `TUNE`
gives the constant's other values: every configuration then has to be right before its time counts.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from evokernel.task.constants import assignments

_SUFFIX = "_CONFIG"


class _Choice(NamedTuple):
    """One kernel that chooses among configurations."""

    constant: str
    configs: ast.expr
    size: int


def opened(source: str) -> str:
    """Turn every `@triton.autotune` whose configurations can be counted into a constant of `TUNE`.

    Args:
        source: A candidate that declares no `TUNE`.

    Returns:
        The changed text, every line with its number; the text as it is where there is nothing to
        turn, or `TUNE` or one of the constants is there already.
    """
    if "autotune" not in source:
        return source
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source  # the compile step says so
    known = assignments(tree)
    found = [choice for choice in _choices(tree, known) if choice.size > 1]
    start = _first_import(tree)
    if not found or start is None or known.keys() & {"TUNE", *(c.constant for c in found)}:
        return source
    values = {choice.constant: list(range(choice.size)) for choice in found}
    constants = "".join(f"; {choice.constant} = 0" for choice in found)
    edits = {(start.end_lineno, start.end_col_offset): f"{constants}; TUNE = {values!r}"}
    for choice in found:
        place = choice.configs.end_lineno, choice.configs.end_col_offset
        edits[place] = f"[{choice.constant} : {choice.constant} + 1]"
    return _with_insertions(source, edits)


def _choices(tree: ast.Module, known: dict[str, list[ast.expr]]) -> Iterator[_Choice]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for configs in filter(None, map(_configs, node.decorator_list)):
            literal: ast.expr = configs
            if isinstance(configs, ast.Name) and len(known.get(configs.id, ())) == 1:
                literal = known[configs.id][0]
            size = len(literal.elts) if isinstance(literal, ast.List) else 0
            if not any(isinstance(e, ast.Starred) for e in getattr(literal, "elts", ())):
                yield _Choice(f"{node.name.upper()}{_SUFFIX}", configs, size)


def _configs(decorator: ast.expr) -> ast.expr | None:
    """The configurations that an autotuning decorator is given."""
    match decorator:
        case ast.Call(func=ast.Attribute(attr="autotune") | ast.Name(id="autotune")):
            named = [k.value for k in decorator.keywords if k.arg == "configs"]
            return next(iter([*named, *decorator.args]), None)
    return None


def _first_import(tree: ast.Module) -> ast.stmt | None:
    """The first after which anything may stand: imports from the future come before all else."""
    imports = (n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom))
    return next((n for n in imports if getattr(n, "module", "") != "__future__"), None)


def _with_insertions(source: str, edits: dict[tuple[int | None, int | None], str]) -> str:
    """Insert texts; columns count UTF-8 bytes, and none of the texts holds a line break."""
    lines = [line.encode() for line in source.split("\n")]
    for (number, column), text in sorted(edits.items(), reverse=True, key=lambda item: item[0]):
        line = lines[(number or 1) - 1]
        lines[(number or 1) - 1] = line[:column] + text.encode() + line[column:]
    return b"\n".join(lines).decode()
