"""Owns the way from an operator graph to a `Program`."""

from __future__ import annotations

import math

from evokernel.opgraph import Node, OpGraph
from evokernel.proposers.templates.expressions import Level, Program, Reduce, Unsupported
from evokernel.proposers.templates.folds import PLACES
from evokernel.proposers.templates.grid import Grid
from evokernel.proposers.templates.literals import C_TYPES
from evokernel.proposers.templates.lower_activations import ACTIVATIONS
from evokernel.proposers.templates.lower_losses import LOSSES
from evokernel.proposers.templates.lower_norms import NORMS
from evokernel.proposers.templates.lower_pointwise import POINTWISE
from evokernel.proposers.templates.lower_pools import POOLS
from evokernel.proposers.templates.lower_reductions import REDUCTIONS
from evokernel.proposers.templates.lower_triangles import TRIANGLES
from evokernel.proposers.templates.lower_views import VIEWS
from evokernel.proposers.templates.placement import Placement
from evokernel.proposers.templates.scope import Rule, Scope

RULES: dict[str, Rule] = {
    **POINTWISE,
    **ACTIVATIONS,
    **VIEWS,
    **REDUCTIONS,
    **NORMS,
    **POOLS,
    **LOSSES,
    **TRIANGLES,
}
"""Every operator that can be lowered."""


def lower(graph: OpGraph, axes: tuple[int, ...] = ()) -> Program:
    """Write the graph as one fused program: composite operators taken apart, equal values merged.

    Views (reshape, expand, transpose, chunk, ...) become addresses and cost nothing. Reductions and
    scans run over any axes, which must be the same for all of them, or over everything; inputs are
    taken as contiguous, whoever calls the kernel makes them so. Arguments of `forward` that are not
    tensors keep the values of the capture. Half precision and complex numbers are not covered.

    Args:
        graph: The operators.
        axes: Sizes of the axes of a grid that the program has to have, the last one its columns;
            empty for the grid that suits the graph.

    Raises:
        Unsupported: names the operator (with its dim, shape or dtype) that has no place in a
            program.
    """
    scope = translate(graph)
    _require_results(graph)
    results = [(scope.symbol(r), graph.spec(r)) for r in graph.results]
    grid = Grid(scope.symbols, axes, (len(axes) - 1,)) if axes else None
    program = Placement(graph, scope.symbols, results, grid).program()
    if program.kind == "windows":
        _require_pool(program)
    return program


def translate(graph: OpGraph) -> Scope:
    """Every value of the graph as a formula.

    Raises:
        Unsupported: names the operator that has no formula.
    """
    _require_covered(graph)
    scope = Scope(graph)
    for node in _needed(graph):
        scope.define(node, _translate(scope, node))
    return scope


def _translate(scope: Scope, node: Node) -> int | tuple[int | None, ...]:
    if node.value is not None:
        return scope.symbols.number(node.value, node.outputs[0].dtype)
    if node.kind != "call":
        return scope.symbols.given(node)
    try:
        return RULES[node.op](scope, node)
    except Unsupported as reason:
        if f"`{node.op}`" in str(reason):
            raise
        raise Unsupported(f"`{node.op}`: {reason}") from None


def require_rules(graph: OpGraph) -> None:
    """Refuse operators that no rule translates.

    Raises:
        Unsupported: names them.
    """
    missing = sorted({n.op for n in _needed(graph) if n.kind == "call" and n.op not in RULES})
    if missing:
        raise Unsupported(f"no template covers {', '.join(f'`{op}`' for op in missing)}")


def _require_covered(graph: OpGraph) -> None:
    """Refuse what no rule could do; operators first, since they are what to name."""
    require_rules(graph)
    for node in _needed(graph):
        for spec in node.outputs:
            if spec.dtype not in C_TYPES:
                raise Unsupported(f"`{node.name}` has dtype {spec.dtype}, which is not covered")
            if math.prod(spec.shape) == 0:
                raise Unsupported(f"`{node.name}` has no elements (shape {list(spec.shape)})")


def _require_results(graph: OpGraph) -> None:
    for number, result in enumerate(graph.results):
        if graph.spec(result).strides:
            raise Unsupported(f"result {number} is not contiguous")
        if graph.node(result.node).kind != "call":
            raise Unsupported(f"result {number} is an argument of the reference itself")


def _require_pool(program: Program) -> None:
    """Refuse what a kernel of windows cannot go on with; as stages it may be covered."""
    reductions = [v for v in program.values if isinstance(v, Reduce)]
    levels = [program.values[output.value].level for output in program.outputs]
    if len(program.passes) != 1 or program.last or Level.ELEMENT in levels:
        raise Unsupported("a reduction behind pooling is not covered in one kernel")
    if any(v.op in PLACES for v in reductions):
        raise Unsupported("the places of a pool's maxima are not covered")
    if len({v.guards for v in reductions}) > 1:
        raise Unsupported("pooling with different windows is not covered in one kernel")


def _needed(graph: OpGraph) -> list[Node]:
    """Nodes that the results depend on, in order."""
    wanted = {r.node for r in graph.results}
    for node in reversed(graph.nodes):
        if node.name in wanted:
            wanted.update(ref.node for ref in node.refs())
    return [n for n in graph.nodes if n.name in wanted]
