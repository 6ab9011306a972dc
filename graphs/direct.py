"""Owns the workflow without langgraph: the same nodes and routes, one after the other.

For experiments that repeat thousands of short runs whose steps cost nothing: there is no checkpoint
and no resumption, and what a run did lies in its record alone.
"""

from collections.abc import Callable

from langgraph.graph import END
from langgraph.runtime import Runtime

from evokernel.graphs import nodes, routing
from evokernel.graphs.budget import node_limit
from evokernel.graphs.state import Node, Services, State

NODES: dict[str, Node] = {
    node.__name__: node
    for node in (
        nodes.prepare,
        nodes.retrieve,
        nodes.draft,
        nodes.refine,
        nodes.compile,
        nodes.verify,
        nodes.profile,
        nodes.learn,
        nodes.promote,
    )
}
ROUTES: dict[str, Callable[[State], str]] = {
    "retrieve": routing.after_retrieve,
    "draft": routing.after_proposal,
    "refine": routing.after_proposal,
    "compile": routing.after_compile,
    "verify": routing.after_verify,
    "learn": routing.after_learn,
    "promote": routing.after_promote,
}
NEXT = {"prepare": "retrieve", "profile": "learn"}


def carry_out(services: Services) -> str:
    """Carry a new run out in this process.

    Returns:
        Why it ended, in words.
    """
    state: State = {"reason": ""}
    runtime = Runtime(context=services)
    name = "prepare"
    for _ in range(node_limit(services.record)):
        state |= NODES[name](state, runtime)
        name = ROUTES[name](state) if name in ROUTES else NEXT[name]
        if name == END:
            return state["reason"]
    return "the workflow passed its limit of nodes"
