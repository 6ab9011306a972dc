"""Owns what a run of an author outside needs before its first candidate."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from evokernel.bench import Evaluator, Say, processor
from evokernel.config import RunConfig
from evokernel.opgraph import CaptureFailed, OpGraph, capture
from evokernel.record import RunRecord
from evokernel.task import Task

if TYPE_CHECKING:
    from evokernel.memory.store import Memory


def environment() -> dict[str, str]:
    """What numbers depend on, as far as it is known before anything is measured."""
    return {
        "processor": processor.name(),
        "vectors": processor.vectors(),
        "caches": processor.caches(),
        "torch": version("torch"),
    }


def captured(task: Task) -> tuple[OpGraph | None, str]:
    """The task's operators, or why they are not known.

    Raises:
        TaskError: the reference does not run.
    """
    program = task.program()
    try:
        return capture(program), ""
    except CaptureFailed as failure:
        program.check()
        return None, f"the operators of `{task.name}` are not known: {failure}"


def faults(task: Task, config: RunConfig, graph: OpGraph | None, say: Say) -> tuple[str, ...]:
    """Checks that the task failed.

    Raises:
        TaskError: there are some, and `config.force` does not accept them.
    """
    from evokernel.bench.checkup import checkup, require_passed

    say("checking the task")
    found = checkup(task, config.bench.cache, graph)
    if not config.force:
        require_passed(task, found)
    return found.examination.failed


def local_evaluator(task: Task, config: RunConfig, say: Say) -> Evaluator:
    """Who judges on this machine."""
    from evokernel.bench.evaluator import LocalEvaluator

    return LocalEvaluator(task, config.bench, config.backend, say)


def own_memory(record: RunRecord) -> "Memory":
    """The memory that the run names, else one in its folder."""
    from evokernel.memory.store import Memory

    config = record.config.memory
    return Memory.open(config.model_copy(update={"path": config.path or record.memory}))
