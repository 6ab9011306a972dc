"""Owns the rules for triangles and diagonals: matrices of which a part is zero."""

from __future__ import annotations

from collections.abc import Callable

from evokernel.opgraph import Node
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.scope import Rule, Scope, number
from evokernel.proposers.templates.symbols import Given, Window
from evokernel.proposers.templates.views import Guard, View

Change = Callable[[View], View]


def _triangle(sign: int) -> Rule:
    """What lies below (sign 1) or above (-1) a diagonal, and the diagonal."""

    def rule(scope: Scope, node: Node) -> int:
        *front, rows, cols = scope.shape(node, "self")
        offset = sign * int(number(node, "diagonal"))
        guard = _between(len(front), sign, offset, rows + cols + abs(offset))
        return _guarded(scope, node, lambda view: view, guard)

    return rule


def _diag(scope: Scope, node: Node) -> int:
    """A vector as the diagonal of a matrix."""
    if len(scope.shape(node, "self")) != 1 or number(node, "diagonal"):
        raise Unsupported("`diag` of a matrix, or beside the main diagonal, is not covered")
    size = scope.shape(node, "self")[0]

    def spread(view: View) -> View:
        return View(shape=(size, size), strides=(view.strides[0], 0), offset=view.offset)

    return _guarded(scope, node, spread, _between(0, 1, 0, 1))


def _between(front: int, sign: int, offset: int, size: int) -> Guard:
    """`0 <= sign * (row - column) + offset < size`."""
    return Guard(strides=(*(0,) * front, sign, -sign), offset=offset, size=size)


def _guarded(scope: Scope, node: Node, change: Change, guard: Guard) -> int:
    symbol = scope.raw(node, "self")
    item = scope.symbols.items[symbol]
    if not isinstance(item, Window) or not isinstance(scope.symbols.tensors[item.tensor], Given):
        raise Unsupported(f"`{node.op}` of computed values is not covered in one kernel")

    def guarded(view: View) -> View:
        changed = change(view)
        return changed.model_copy(update={"guards": (*changed.guards, guard)})

    return scope.symbols.view(symbol, guarded)


TRIANGLES: dict[str, Rule] = {"tril": _triangle(1), "triu": _triangle(-1), "diag": _diag}
"""Operators that put zeros into a matrix."""
