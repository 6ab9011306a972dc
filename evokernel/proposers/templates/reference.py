"""Owns what a candidate takes over from the reference's text: `Model` and forward's signature."""

import ast
import re
from collections.abc import Sequence
from functools import cached_property

from evokernel.frozen import Frozen

_FOR_THE_TASK = {"get_inputs", "get_init_inputs", "get_workloads", "EVOKERNEL"}
"""Parts of a task file that say nothing about the model."""


class Reference(Frozen):
    """The text of a task file."""

    source: str

    @cached_property
    def model(self) -> str:
        """The text without what only a task needs; what `Model` uses remains."""
        nodes = self._tree.body
        kept = [node for node in nodes if not _is_for_the_task(node)]
        used = _names(kept)
        kept = [node for node in kept if not _is_idle(node, used)]
        if _share_lines(nodes):
            return self.source
        lines = self.source.splitlines()
        parts: list[str] = []
        previous = 0
        for node in nodes:
            last = node.end_lineno or node.lineno
            if node in kept:
                parts += lines[previous:last]
            previous = last
        return re.sub(r"\n{4,}", "\n\n\n", "\n".join(parts)).strip("\n")

    @cached_property
    def signature(self) -> str:
        """Forward's parameters as they are written, `self` included."""
        return ast.unparse(self._arguments) if self._arguments else "self, *inputs"

    def argument(self, position: int) -> str | None:
        """The expression of an argument by its position, or None if there is none."""
        if self._arguments is None:
            return f"inputs[{position}]"
        names = self.names
        if position < len(names):
            return names[position]
        rest = self._arguments.vararg
        return f"{rest.arg}[{position - len(names)}]" if rest else None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of forward's positional parameters without `self`."""
        if self._arguments is None:
            return ()
        taken = [*self._arguments.posonlyargs, *self._arguments.args]
        return tuple(arg.arg for arg in taken[1:])

    def free(self, name: str) -> str:
        """The name, with as many underscores behind it as make it new to the text."""
        while name in self._words:
            name += "_"
        return name

    def returned(self, values: Sequence[str]) -> str:
        """The expression of what forward returns, nested as the reference nests it."""
        inside = ", ".join(values)
        match self._result:
            case ast.List():
                return f"[{inside}]"
            case ast.Dict(keys=keys) if len(keys) == len(values) and all(keys):
                pairs = zip(keys, values, strict=True)
                return f"{{{', '.join(f'{ast.unparse(k)}: {v}' for k, v in pairs if k)}}}"
            case ast.Tuple() if len(values) == 1:
                return f"({inside},)"
        return inside

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(re.findall(r"\w+", self.source))

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def _forward(self) -> ast.FunctionDef | None:
        for node in self._tree.body:
            if isinstance(node, ast.ClassDef) and node.name == "Model":
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                return next((m for m in methods if m.name == "forward"), None)
        return None

    @property
    def _arguments(self) -> ast.arguments | None:
        return self._forward.args if self._forward else None

    @property
    def _result(self) -> ast.expr | None:
        found = ast.walk(self._forward) if self._forward else ()
        values = [node.value for node in found if isinstance(node, ast.Return)]
        return values[-1] if values else None


def _is_for_the_task(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(name=name):
            return name in _FOR_THE_TASK
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in _FOR_THE_TASK
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=test):
            return "__name__" in ast.unparse(test)
    return False


def _is_idle(node: ast.stmt, used: set[str]) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() | ast.BinOp()):
            return name not in used
    return False


def _names(nodes: Sequence[ast.stmt]) -> set[str]:
    """Names that are read somewhere."""
    walked = (part for node in nodes for part in ast.walk(node))
    return {p.id for p in walked if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Load)}


def _share_lines(nodes: Sequence[ast.stmt]) -> bool:
    pairs = zip(nodes, nodes[1:], strict=False)
    return any((a.end_lineno or a.lineno) >= b.lineno for a, b in pairs)
