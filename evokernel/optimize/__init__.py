"""Owns the Python front door: `optimize` carries a run out, `resume` goes on with one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evokernel.bench import Evaluator
from evokernel.config import RunConfig
from evokernel.graphs.stop import Stop
from evokernel.opgraph import OpGraph
from evokernel.optimize.opening import Brought, RunStopped, created, ending, kept, reopened
from evokernel.optimize.result import Best, RunResult, result_of
from evokernel.optimize.subject import task_of
from evokernel.proposers import Proposer
from evokernel.record import Clock, Event, RunRecord
from evokernel.task import Task

if TYPE_CHECKING:
    import torch

    from evokernel.memory.store import Memory

__all__ = ["Best", "RunResult", "RunStopped", "optimize", "resume"]


def optimize(
    task: "Task | Path | str | torch.nn.Module",
    config: RunConfig | None = None,
    *,
    inputs: Sequence[Any] | None = None,
    evaluator: Evaluator | None = None,
    proposer: Proposer | None = None,
    memory: "Memory | None" = None,
    graph: OpGraph | None = None,
    clock: Clock | None = None,
    on_event: Callable[[Event], None] | None = None,
    stop: Stop | None = None,
) -> RunResult:
    """Make one task faster within a budget.

    Args:
        task: A task, the name of a built-in one, the path of a task file, the text of one, or a
            live module.
        config: How; None is the default for this task. Its `task` may say anything.
        inputs: Example arguments of a live module's `forward`; see `evokernel.capture`.
        evaluator: Who judges; None measures on this machine, and examines the task first. It is
            entered and left here.
        proposer: Who writes candidates; None is what `config.proposer` names.
        memory: What was learned before; None opens `config.memory`. One given stays open.
        graph: The task's operators; None captures them from the reference.
        clock: Where the time is read.
        on_event: Told of everything that happens, as `events.jsonl` has it.
        stop: Ends the run, resumable, when asked to from another thread.

    Raises:
        UsageError: something has to change before a run can begin; nothing was written.
        EvoKernelError: the run cannot go on; it is kept and can be resumed.
        RunStopped: Ctrl-C, SIGTERM or `stop`; the run is kept and can be resumed.
    """
    from evokernel.graphs.workflow import begin

    brought = Brought(evaluator, proposer, memory, graph, clock, on_event, stop or Stop())
    with (
        created(task_of(task, inputs, config), config, brought) as services,
        kept(services.record, services.stop),
    ):
        return _concluded(services.record, begin(services))


def resume(
    path: Path | str,
    *,
    evaluator: Evaluator | None = None,
    proposer: Proposer | None = None,
    memory: "Memory | None" = None,
    clock: Clock | None = None,
    on_event: Callable[[Event], None] | None = None,
    stop: Stop | None = None,
) -> RunResult:
    """Go on with a run where it stopped, as if it never had.

    What was proposed, measured and rewarded is read back from the run folder. The arguments are
    those of `optimize`.

    Raises:
        RecordError: no run, at work in another process, or without a usable checkpoint.
    """
    from evokernel.graphs.workflow import proceed

    record = RunRecord.resume(Path(path), clock)
    if ended := ending(record):
        record.close()
        return result_of(record, ended["reason"], ended["elapsed"])
    brought = Brought(evaluator, proposer, memory, None, clock, on_event, stop or Stop())
    with reopened(record, brought) as services, kept(record, services.stop):
        return _concluded(record, proceed(services))


def _concluded(record: RunRecord, reason: str) -> RunResult:
    record.event("ended", reason=reason)
    return result_of(record, reason, record.elapsed())
