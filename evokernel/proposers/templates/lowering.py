"""Owns the way from an operator graph to a `Program`."""

from __future__ import annotations

from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.expressions import Program, Unsupported


def lower(graph: OpGraph) -> Program:
    """Writes the graph as one fused program: composite operators taken apart, equal values merged.

    Views (reshape, expand, transpose, chunk, ...) become addresses and cost nothing. Reductions run
    over the last axes or over all; inputs are taken as contiguous, whoever calls the kernel makes
    them so. Values of graph inputs that are not tensors are the ones it was captured with.

    Raises:
        Unsupported: names the operator (with its dim, shape or dtype) that has no place in a
            program.
    """
    raise Unsupported(f"`{graph.nodes[-1].op}` is not covered yet")
