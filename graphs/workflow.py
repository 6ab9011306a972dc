"""Owns the workflow: which nodes there are, how they are joined, and how a run begins and goes on.

    prepare -> retrieve -> draft | refine -> compile -> verify -> profile -> learn -> retrieve ...
                |           | nothing new    | failed   | failed             |
                |           +-> retrieve     +----------+--> learn           +-> promote (new best)
                +-> promote -> end   when a budget is spent or nothing new can be proposed

Every node's result is on disk before the next one starts.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langsmith.run_helpers import tracing_context

from evokernel.errors import RecordError
from evokernel.graphs import nodes, routing
from evokernel.graphs.budget import node_limit
from evokernel.graphs.state import Node, Services, State, plain
from evokernel.record import RunRecord

Workflow = CompiledStateGraph[State, Services, State, State]

WAIT_S = 10.0
"""How long another program may hold the checkpoint file before that is an error, seconds (ours)."""


def build() -> StateGraph[State, Services, State, State]:
    """Join the nodes; the caller compiles the graph with a checkpointer of its choice."""
    graph = StateGraph(State, context_schema=Services)
    joined(graph, plain, END)
    graph.add_edge(START, "prepare")
    return graph


def joined(graph: "StateGraph[Any, Any, Any, Any]", wrap: Callable[[Node], Any], end: str) -> None:
    """Put the nodes into a graph and join them, from `prepare` to `end`.

    Args:
        graph: Which has neither yet.
        wrap: Makes of a node what the graph calls.
        end: What follows when the run is over.
    """
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
    ):
        graph.add_node(node.__name__, wrap(node))
    graph.add_edge("prepare", "retrieve")
    for name, route in {
        "retrieve": routing.after_retrieve,
        "draft": routing.after_proposal,
        "refine": routing.after_proposal,
        "compile": routing.after_compile,
        "verify": routing.after_verify,
        "learn": routing.after_learn,
    }.items():
        ends = get_args(get_type_hints(route)["return"])
        graph.add_conditional_edges(name, _Route(route), list(ends))
    graph.add_edge("profile", "learn")
    after = {"retrieve": "retrieve", END: end}
    graph.add_conditional_edges("promote", routing.after_promote, after)  # type: ignore[arg-type]


def begin(services: Services) -> str:
    """Carry a new run out.

    Returns:
        Why it ended, in words.

    Raises:
        RecordError: when its checkpoints cannot be written.
    """
    with checkpoints(services.record.checkpoints) as saver:
        return _carry_out(build().compile(saver), {"reason": ""}, services)


def proceed(services: Services) -> str:
    """Continue a run where it stopped; one that has ended is left as it is.

    Returns:
        Why it ended, in words.

    Raises:
        RecordError: when it has no checkpoint, or one that is locked or damaged.
    """
    record = services.record
    require_checkpoint(record)
    with checkpoints(record.checkpoints) as saver:
        # Also where the snapshot names no next node: the last one's writes may await their turn.
        return _carry_out(build().compile(saver), None, services)


def require_checkpoint(record: RunRecord, wait_s: float = WAIT_S) -> None:
    """Tell an absent checkpoint from a locked and from a damaged one: three different answers.

    Args:
        record: The run.
        wait_s: How long another program may hold the file, seconds.

    Raises:
        RecordError: says which of them it is, and what to do.
    """
    path = record.checkpoints
    if not path.exists():
        raise _absent(record)
    address = f"{path.resolve().as_uri()}?mode=rw"
    with explained(path), closing(sqlite3.connect(address, wait_s, uri=True)) as file:
        (verdict,) = file.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _damaged(path, verdict)
        tables = file.execute("SELECT name FROM sqlite_master WHERE name = 'checkpoints'")
        if not tables.fetchone() or not _is_legible(SqliteSaver(file), record):
            raise _absent(record)


def _is_legible(saver: SqliteSaver, record: RunRecord) -> bool:
    """Whether there is a checkpoint; one that cannot be read raises."""
    try:
        return saver.get_tuple(settings(record)) is not None
    except sqlite3.Error:
        raise
    except Exception as error:  # whatever the deserialiser says
        raise _damaged(record.checkpoints, str(error)) from error


def _carry_out(workflow: Workflow, state: State | None, services: Services) -> str:
    """Run the nodes. None goes on from the checkpoint; a state would begin anew beside it."""
    given = settings(services.record)
    try:
        with explained(services.record.checkpoints), tracing_context(enabled=False):
            end = workflow.invoke(state, given, context=services, durability="sync")
    except GraphRecursionError:
        return f"the workflow passed {given['recursion_limit']} nodes, its limit"
    return str(end["reason"])


def settings(record: RunRecord) -> RunnableConfig:
    """What langgraph is told of a run: whose checkpoints, and how many nodes at most."""
    return {"configurable": {"thread_id": record.id}, "recursion_limit": node_limit(record)}


@contextmanager
def checkpoints(path: Path) -> Iterator[SqliteSaver]:
    """The open checkpoint file of a run.

    Raises:
        RecordError: when it cannot be opened or used.
    """
    with explained(path):
        connection = sqlite3.connect(path, timeout=WAIT_S, check_same_thread=False)
    with closing(connection):
        with explained(path):
            connection.execute("PRAGMA journal_mode=WAL")
            # A power cut may take the last checkpoints; their nodes find their results again.
            connection.execute("PRAGMA synchronous=NORMAL")
        yield _Saver(connection)


class _Route(Runnable[State, str]):
    """A plain function as langgraph would wrap it, but without a record for tracers around it."""

    def __init__(self, route: Callable[[State], str]) -> None:
        self.name = route.__name__
        self._route = route

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> str:
        return self._route(input)


class _Saver(SqliteSaver):
    """Leaves out what the next checkpoint says as well: one step is one node, and may run again."""

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        if any(channel in WRITES_IDX_MAP for channel, _ in writes):  # errors and interrupts
            super().put_writes(config, writes, task_id, task_path)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Tell a locked checkpoint file from a damaged one and from one that cannot be written."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise RecordError(
                f"`{path}` is locked by another program; close it, then resume the run"
            ) from error
        raise RecordError(
            f"`{path}` cannot be used: {error}; check its permissions and the free space, then "
            "resume the run. What was stored before is intact"
        ) from error
    except sqlite3.DatabaseError as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, problem: str) -> RecordError:
    problem = " ".join(problem.split())
    return RecordError(
        f"`{path}` is damaged ({problem}), so the run cannot go on where it stopped. Its attempts "
        f"are intact below `{path.parent}`; begin a new run with the good ones as `--start`"
    )


def _absent(record: RunRecord) -> RecordError:
    done = len(record.attempts())
    advice = (
        f"its {done} attempts are intact; begin a new run with the good ones as `--start`"
        if done
        else "it stopped before its first step, so begin it anew"
    )
    return RecordError(f"`{record.path}` has no checkpoint (`checkpoints.sqlite`): {advice}")
