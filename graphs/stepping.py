"""Owns carrying a run on step by step, for a caller that writes its candidates itself."""

from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from langsmith.run_helpers import tracing_context

from evokernel.frozen import Frozen
from evokernel.graphs.state import Services, State
from evokernel.graphs.workflow import Workflow, build, checkpoints, explained, settings

AFTER = ["learn"]
"""Where the workflow pauses: a step is closed, and nothing else has begun."""


class Pause(Frozen):
    """Where a run stands."""

    is_wanted: bool = False
    """A candidate is wanted from outside."""
    reason: str = ""
    """Why the run has ended; empty while it goes on."""


def advance(services: Services, answer: dict[str, Any] | None = None) -> Pause:
    """Carry a run on until a candidate is wanted, a step is closed, or the run ends.

    Args:
        services: What it works with; its proposer is an `ExternalProposer`.
        answer: What the request that waits is answered with; None where none waits.

    Raises:
        RecordError: its checkpoints cannot be read or written.
    """
    with checkpoints(services.record.checkpoints) as saver:
        workflow = build().compile(saver)
        given: State | Command[Any] | None = None
        if answer is not None:
            given = Command(resume=answer)
        elif not _has_begun(saver, services):
            given = {"reason": ""}
        return _until_pause(workflow, given, services)


def conclude(services: Services, reason: str) -> Pause:
    """End a run here: what is still open gets its second look, and no further step is planned.

    Raises:
        RecordError: its checkpoints cannot be read or written.
    """
    with checkpoints(services.record.checkpoints) as saver:
        if not _has_begun(saver, services):
            return Pause(reason=reason)
        workflow = build().compile(saver)
        workflow.update_state(settings(services.record), {"reason": reason}, as_node="retrieve")
        return _until_pause(workflow, None, services)


def _has_begun(saver: SqliteSaver, services: Services) -> bool:
    return saver.get_tuple(settings(services.record)) is not None


def _until_pause(
    workflow: Workflow, given: "State | Command[Any] | None", services: Services
) -> Pause:
    place = settings(services.record)
    with explained(services.record.checkpoints), tracing_context(enabled=False):
        workflow.invoke(given, place, context=services, durability="sync", interrupt_after=AFTER)
        now = workflow.get_state(place)
    return Pause(
        is_wanted=bool(now.interrupts), reason="" if now.next else str(now.values["reason"])
    )
