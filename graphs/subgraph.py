"""Owns the workflow as a graph for others to carry out: alone, or as a node of a larger one.

    open -> prepare -> retrieve -> ... -> promote -> [approve ->] close

State and checkpoints are the carrier's; sources, verdicts and logs lie in the run folder, as ever.
What happens is streamed as custom events, the plain ones of `events.jsonl`.
"""

from collections.abc import Callable
from typing import Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from evokernel.attempt import Attempt
from evokernel.errors import SessionError
from evokernel.graphs.hosting import House
from evokernel.graphs.state import Node, Services, State, plain
from evokernel.graphs.workflow import joined

Step = Any
"""A node; langgraph's own types of them are many."""
Checkpointer = BaseCheckpointSaver[Any] | bool | None
"""As `StateGraph.compile` takes it."""
Hosted = CompiledStateGraph[Any, Any, Any, Any]
"""The workflow, ready to be carried out."""


class WorkflowInput(TypedDict, total=False):
    """What a graph around it has to know."""

    task: str
    """Name of a built-in task, path of a task file, or the text of one."""
    settings: dict[str, Any]
    """Fields of a `RunConfig` that replace those that the workflow was built with."""


class WorkflowOutput(TypedDict, total=False):
    """What the graph around it gets."""

    run: str
    """The run folder."""
    reason: str
    """Why it ended, in words."""
    kernel: str | None
    """File of the best kernel; None without one, or where it was not approved."""
    source: str | None
    """Its text."""
    median_ms: float | None
    """Its time."""
    speedups: dict[str, float]
    """How many times faster it is, by baseline."""
    approved: bool | None
    """What the person said; None where nobody was asked."""


class WholeState(State, WorkflowInput, WorkflowOutput, total=False):
    """All of it."""


def hosted_graph(house: House, is_approved: bool) -> StateGraph[Any, Any, Any, Any]:
    """Join the nodes for a graph whose carrier knows nothing of runs.

    Args:
        house: Opens and closes them.
        is_approved: A person is asked about the best kernel before it is handed over.
    """
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(
        WholeState, input_schema=WorkflowInput, output_schema=WorkflowOutput
    )
    last = "approve" if is_approved else "close"
    graph.add_node("open", _opening(house))
    joined(graph, lambda node: _hosted(house, plain(node)), last)
    graph.add_edge(START, "open")
    graph.add_edge("open", "prepare")
    if is_approved:
        graph.add_node("approve", _hosted(house, _approve))
        graph.add_edge("approve", "close")
    graph.add_node("close", _closing(house))
    graph.add_edge("close", END)
    return graph


def _opening(house: House) -> Step:
    def open_run(state: WholeState, runtime: Runtime[None]) -> dict[str, Any]:
        given = {"task": state["task"], "settings": state.get("settings") or {}}
        services = house.open({**given, "listen": runtime.stream_writer})
        return {"run": str(services.record.path), "reason": ""}

    return open_run


def _hosted(house: House, node: Node | Callable[..., Any]) -> Step:
    """A node that finds its run by the path in the state."""

    def carried_out(state: WholeState, runtime: Runtime[None]) -> dict[str, Any]:
        guest = house.guest(state["run"])
        services = guest.services
        assert services is not None
        services.record.on_event = runtime.stream_writer
        inner: Runtime[Services] = Runtime(context=services, stream_writer=runtime.stream_writer)
        try:
            return guest.do(lambda: dict(node(state, inner)))
        except BaseException:  # interrupts as well: nothing is held while a person thinks
            house.close(state["run"])
            raise

    return carried_out


def _closing(house: House) -> Step:
    def close(state: WholeState, runtime: Runtime[None]) -> dict[str, Any]:
        guest = house.guest(state["run"])
        services = guest.services
        assert services is not None
        services.record.on_event = runtime.stream_writer
        try:
            guest.do(lambda: services.record.event("ended", reason=state["reason"]))
            return _result(services, state.get("approved"))
        finally:
            house.close(state["run"])

    return close


def _approve(state: WholeState, runtime: Runtime[Services]) -> dict[str, Any]:
    """Ask a person whether the best kernel may be used."""
    record = runtime.context.record
    best = record.best()
    if best is None:
        return {"approved": None}
    answer = interrupt({"kind": "approval", "run": str(record.path), **_about(best)})
    is_approved, why = _understood(answer)
    record.event("note", text=f"the kernel was {'' if is_approved else 'not '}approved{why}")
    return {"approved": is_approved}


def _understood(answer: Any) -> tuple[bool, str]:
    given = answer if isinstance(answer, dict) else {"approved": answer}
    if not isinstance(given.get("approved"), bool):
        raise SessionError(
            f"the approval is {answer!r:.60}; expected true or false, or a dictionary with "
            "`approved` and, if you like, `why`"
        )
    why = str(given.get("why") or "")
    return given["approved"], f": {why}" if why else ""


def _result(services: Services, approved: bool | None) -> dict[str, Any]:
    best = services.record.best()
    if best is None or approved is False:
        nothing: dict[str, Any] = {
            "kernel": None,
            "source": None,
            "median_ms": None,
            "speedups": {},
        }
        return {**nothing, "approved": approved}
    kernel = str(services.record.path / "best" / "kernel.py")
    return {"kernel": kernel, "approved": approved, **_about(best)}


def _about(best: Attempt) -> dict[str, Any]:
    timing = best.evaluation.timing
    speedups = {s.against: round(s.ratio.value, 4) for s in timing.speedups} if timing else {}
    source = best.proposal.candidate.source
    return {"source": source, "median_ms": best.median_ms, "speedups": speedups}
