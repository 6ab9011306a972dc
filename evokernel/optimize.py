"""Owns the Python front door: `optimize` carries a run out, `resume` goes on with one."""

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from evokernel.answers import Answer, answers
from evokernel.attempt import Attempt, Backend
from evokernel.bench import Evaluator, Say, processor
from evokernel.config import MemoryConfig, RunConfig
from evokernel.errors import ConfigError, DeviceMissing, EvoKernelError, RecordError
from evokernel.evaluation import Interval, Promotion
from evokernel.frozen import Frozen
from evokernel.graphs.stop import Stop
from evokernel.opgraph import CaptureFailed, OpGraph, capture
from evokernel.proposers import Proposer
from evokernel.record import Clock, Event, RunRecord
from evokernel.record.spending import Spending, spending
from evokernel.task import Task

if TYPE_CHECKING:
    from evokernel.bench.checkup import Checkup
    from evokernel.memory.store import Memory


class RunResult(Frozen):
    """What a run has come to."""

    run: str
    """Its id."""
    path: Path
    """Its folder."""
    reason: str
    """Why it ended, in words."""
    attempts: int
    """Attempts that were judged."""
    seconds: float
    """Wall seconds, all sessions together."""
    best: Attempt | None
    """The fastest feasible attempt that no second look has refuted; None if there is none."""
    kernel: Path | None
    """File of the best kernel."""
    answers: tuple[Answer, ...] = ()
    """The five answers about the best kernel; none without one."""
    spending: Spending = Spending()
    """What the replies of a model cost; nothing without one."""
    second_look: Promotion | None = None
    """The best kernel's measurement over eager in fresh processes."""

    def speedup(self, against: str) -> Interval | None:
        """How much faster the best kernel is than `eager` or `compile`; None if not measured."""
        timing = self.best.evaluation.timing if self.best else None
        speedup = timing.against(against) if timing else None
        return speedup.ratio if speedup else None


class RunStopped(KeyboardInterrupt):
    """A run was stopped from outside, by Ctrl-C or SIGTERM, and can be resumed."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"stopped; `evokernel resume {path}` goes on from here")
        self.path = path


def optimize(
    task: Task | Path | str,
    config: RunConfig | None = None,
    *,
    evaluator: Evaluator | None = None,
    proposer: Proposer | None = None,
    memory: "Memory | None" = None,
    graph: OpGraph | None = None,
    clock: Clock | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> RunResult:
    """Make one task faster within a budget.

    Args:
        task: A task, the name of a built-in one, or the path of a task file.
        config: How; None is the default for this task.
        evaluator: Who judges; None measures on this machine, and examines the task first. It is
            entered and left here.
        proposer: Who writes candidates; None is what `config.proposer` names.
        memory: What was learned before; None opens `config.memory`. One given stays open.
        graph: The task's operators; None captures them from the reference.
        clock: Where the time is read.
        on_event: Told of everything that happens, as `events.jsonl` has it.

    Raises:
        UsageError: something has to change before a run can begin; nothing was written.
        EvoKernelError: the run cannot go on; it is kept and can be resumed.
        RunStopped: Ctrl-C or SIGTERM; the run is kept and can be resumed.
    """
    from evokernel.bench.gpu import choice
    from evokernel.graphs.state import Services
    from evokernel.graphs.workflow import begin

    backend = config.backend if config else "cpp"
    if evaluator is None:
        choice.require(backend)
    if not isinstance(task, Task):
        task = Task.load(task, choice.device_of(backend))
    config = config or RunConfig(task=task.path or task.name)
    task = task.in_precision(config.precision) if config.precision else task
    _require_room(config)
    say = _Voice()
    proposer = proposer or _proposer(config, say)  # a missing key is told before torch is loaded
    graph, why_not = (graph, "") if graph else _captured(task, _place(config, evaluator))
    proposer.check(task, graph, config.backend)
    with ExitStack() as stack:
        # Before the run folder: what the user has to repair first must leave no run behind.
        judge = stack.enter_context(evaluator or _evaluator(task, config, say))
        memory = memory or _shared_memory(config, stack)
        # Last, for it takes seconds. Whoever brings an evaluator answers for the task as well.
        found = None if evaluator else _checkup(task, config, graph)
        record = say.record = RunRecord.create(
            config,
            task,
            graph,
            environment(config.backend),
            clock,
            found.examination.failed if found else (),
        )
        stop = stack.enter_context(_kept(record))
        record.on_event = on_event
        _introduce(record, task, found, why_not)
        memory = memory or _own_memory(record, stack)
        services = Services(record, task, graph, judge, proposer, memory, stop)
        return _concluded(record, begin(services))


def _introduce(record: RunRecord, task: Task, found: "Checkup | None", why_not: str) -> None:
    """The first events of a run: what it is for, and what is known of the task."""
    record.event("began", run=record.id, path=str(record.path), task=task.name)
    if found is not None:
        seconds = 0.0 if found.is_kept else found.examination.seconds
        record.event("examined", text=found.in_words(), seconds=seconds)
    if why_not:
        record.event("note", text=why_not)


def resume(
    path: Path | str,
    *,
    evaluator: Evaluator | None = None,
    proposer: Proposer | None = None,
    memory: "Memory | None" = None,
    clock: Clock | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> RunResult:
    """Go on with a run where it stopped, as if it never had.

    What was proposed, measured and rewarded is read back from the run folder. The arguments are
    those of `optimize`.

    Raises:
        RecordError: no run, at work in another process, or without a usable checkpoint.
    """
    from evokernel.graphs.state import Services
    from evokernel.graphs.workflow import proceed, require_checkpoint

    with ExitStack() as stack:
        record = RunRecord.resume(Path(path), clock)
        stack.callback(record.close)
        if ended := [event for event in record.events() if event["kind"] == "ended"]:
            return _result(record, ended[-1]["reason"], ended[-1]["elapsed"])
        require_checkpoint(record)
        config, task, graph = record.config, record.task(), record.graph()
        proposer = proposer or _proposer(config, _Voice(record))
        judge = stack.enter_context(evaluator or _evaluator(task, config, _Voice(record)))
        memory = memory or _shared_memory(config, stack)
        stop = stack.enter_context(_kept(record))
        record.on_event = on_event
        record.event("resumed", run=record.id, path=str(record.path), task=task.name)
        memory = memory or _own_memory(record, stack)
        services = Services(record, task, graph, judge, proposer, memory, stop)
        return _concluded(record, proceed(services))


def _concluded(record: RunRecord, reason: str) -> RunResult:
    record.event("ended", reason=reason)
    return _result(record, reason, record.elapsed())


@contextmanager
def _kept(record: RunRecord) -> Iterator[Stop]:
    """Leave a run that can be resumed, whatever happens; SIGTERM stops it as Ctrl-C does."""
    stop = Stop()
    try:
        with stop.answering():
            yield stop
    except KeyboardInterrupt as interrupt:
        record.event("stopped")
        raise RunStopped(record.path) from interrupt
    except Exception as error:
        if isinstance(error, EvoKernelError):
            error.exit_code = 1
        # In place of the notes for developers that langgraph has left.
        error.__notes__ = [f"The run is kept; `evokernel resume {record.path}` goes on from here."]
        with suppress(RecordError):  # the folder may be the very thing that failed
            record.event("failed", error=str(error))
        raise
    finally:
        record.close()


def _result(record: RunRecord, reason: str, seconds: float) -> RunResult:
    best = record.best()
    sha = best.proposal.candidate.sha if best else ""
    looks = [p for p in record.promotions() if p.claim == "kernel" and p.candidate == sha]
    return RunResult(
        run=record.id,
        path=record.path,
        reason=reason,
        attempts=len(record.attempts()),
        seconds=round(seconds, 3),
        best=best,
        kernel=record.path / "best" / "kernel.py" if best else None,
        answers=answers(best.evaluation) if best else (),
        spending=spending(record),
        second_look=looks[-1] if looks else None,
    )


def _require_room(config: RunConfig) -> None:
    starts, attempts = len(config.search.start), config.budget.attempts
    if starts > attempts:
        raise ConfigError(
            f"`--start` names {starts} kernels, each of which is an attempt, but the budget has "
            f"only {attempts}; raise `--attempts`"
        )


def _place(config: RunConfig, evaluator: Evaluator | None) -> str:
    """Whose memory judging takes; that of who brings an evaluator is not known here."""
    from evokernel.bench.gpu import choice

    return "cpu" if evaluator else choice.device_of(config.backend)


def _captured(task: Task, place: str) -> tuple[OpGraph | None, str]:
    """The task's operators, or why they are not known.

    Raises:
        TaskError: the reference fails, or judging it takes more memory than there is.
    """
    from evokernel.bench.reference import free_bytes
    from evokernel.program.estimate import plan_reference

    program = task.program()
    graph: OpGraph | None = None
    why_not = ""
    try:
        graph = capture(program)
    except CaptureFailed as failure:
        why_not = f"the operators of `{task.name}` are not known: {failure}"
    plan_reference(program, None, graph, free_bytes(place) // 2)
    if graph is None:  # perhaps because it does not run at all
        program.check()
    return graph, why_not


def _checkup(task: Task, config: RunConfig, graph: OpGraph | None) -> "Checkup":
    """What is known about the task, in seconds, and at once the second time.

    Raises:
        TaskError: it failed, and `config.force` does not run it all the same.
    """
    from evokernel.bench.checkup import checkup, require_passed

    if task.device != "cpu" and task.path:
        # What it asks does not depend on sizes, and a GPU's would take the processor minutes.
        task, graph = Task.load(task.path), None
    found = checkup(task, config.bench.cache, graph)
    if not config.force:
        require_passed(task, found)
    return found


def _proposer(config: RunConfig, say: Say) -> Proposer:
    """Who writes candidates.

    Raises:
        ConfigError: a model without a key, of an unknown provider, or at an impossible address.
    """
    if config.proposer == "templates":
        from evokernel.proposers.templates import TemplateProposer

        return TemplateProposer()
    from evokernel.proposers.llm import ModelProposer

    needs_price = config.budget.usd is not None
    return ModelProposer(config.proposer, config.model, say=say, needs_price=needs_price)


def _evaluator(task: Task, config: RunConfig, say: Say) -> Evaluator:
    from evokernel.bench.evaluator import LocalEvaluator

    return LocalEvaluator(task, config.bench, config.backend, say)


class _Voice:
    """Lets the evaluator, which is made before the run folder, say what it is doing."""

    def __init__(self, record: RunRecord | None = None) -> None:
        self.record = record

    def __call__(self, text: str) -> None:
        if self.record is not None:
            self.record.event("phase", text=text)


def _shared_memory(config: RunConfig, stack: ExitStack) -> "Memory | None":
    return _opened(config.memory, stack) if config.memory.path else None


def _own_memory(record: RunRecord, stack: ExitStack) -> "Memory":
    """A memory shared with no other run lies in the run folder, and so is resumed with it."""
    return _opened(record.config.memory.model_copy(update={"path": record.memory}), stack)


def _opened(config: MemoryConfig, stack: ExitStack) -> "Memory":
    from evokernel.memory.store import Memory

    return stack.enter_context(Memory.open(config))


def environment(backend: Backend = "cpp") -> dict[str, str]:
    """What a run's numbers depend on: machine, interpreter and the packages that compute."""
    return {
        **_gpu(backend),
        "system": platform.platform(),
        "processor": processor.name(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "vectors": processor.vectors(),
        "caches": processor.caches(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
    }


def _gpu(backend: Backend) -> dict[str, str]:
    """The GPU that kernels of a backend run on, and its driver."""
    from evokernel.bench.gpu import choice
    from evokernel.bench.gpu.lock import physical
    from evokernel.bench.gpu.nvml import opened

    place = choice.device_of(backend)
    if place == "cpu":
        return {}
    try:
        return {"gpu": physical(0).name, "driver": opened().driver}
    except DeviceMissing:  # who brings an evaluator may run elsewhere
        return {}
