"""Owns the opening of a run: everything it works with, made or reopened, and closed at its end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evokernel.bench import Evaluator, Say
from evokernel.config import MemoryConfig, RunConfig
from evokernel.errors import ConfigError, EvoKernelError, RecordError
from evokernel.graphs.stop import Stop
from evokernel.opgraph import CaptureFailed, OpGraph, capture
from evokernel.optimize.environment import environment
from evokernel.proposers import EXTERNAL, Proposer
from evokernel.proposers.llm.book import CallBook
from evokernel.record import Clock, Event, RunRecord
from evokernel.task import Task

if TYPE_CHECKING:
    from evokernel.bench.checkup import Checkup
    from evokernel.graphs.state import Services
    from evokernel.memory.store import Memory


class RunStopped(KeyboardInterrupt):
    """A run was stopped from outside, by Ctrl-C, SIGTERM or its caller, and can be resumed."""

    def __init__(self, path: Path, proposer: str = "") -> None:
        super().__init__(f"stopped; {_how_to_go_on(path, proposer)} goes on from here")
        self.path = path


@dataclass(frozen=True)
class Brought:
    """What the caller brings to a run; None is what its config says."""

    evaluator: Evaluator | None = None
    """Who judges. It is entered and left with the run; who brings one answers for the task, too."""
    proposer: Proposer | None = None
    """Who writes candidates."""
    memory: "Memory | None" = None
    """What was learned before; one given stays open."""
    graph: OpGraph | None = None
    """The task's operators."""
    clock: Clock | None = None
    """Where the time is read."""
    on_event: Callable[[Event], None] | None = None
    """Told of everything that happens, as `events.jsonl` has it."""
    stop: Stop = field(default_factory=Stop)
    """Whether the run is to end here."""


@contextmanager
def created(task: Task, config: RunConfig | None, brought: Brought) -> "Iterator[Services]":
    """Begin a run; everything is closed when this is left, and the run stays on disk.

    Raises:
        UsageError: something has to change before a run can begin; nothing was written.
    """
    from evokernel.bench.gpu import choice

    backend = config.backend if config else "cpp"
    if brought.evaluator is None:
        choice.require(backend)
    config = config or RunConfig()
    if not config.task:
        config = config.model_copy(update={"task": task.path or task.name})
    task = task.in_precision(config.precision) if config.precision else task
    _require_room(config)
    say = _Voice()
    book = _book(config, brought)
    # A missing key is told before torch is loaded.
    proposer = brought.proposer or _proposer(config, say, book)
    graph, why_not = brought.graph, ""
    if graph is None:
        graph, why_not = _captured(task, _place(config, brought.evaluator))
    proposer.check(task, graph, config.backend)
    with ExitStack() as stack:
        # Before the run folder: what the user has to repair first must leave no run behind.
        judge = stack.enter_context(brought.evaluator or _evaluator(task, config, say))
        memory = brought.memory or _shared_memory(config, stack)
        # Last, for it takes seconds.
        found = None if brought.evaluator else _checkup(task, config, graph)
        faults = found.examination.failed if found else ()
        about = environment(config.backend)
        record = RunRecord.create(config, task, graph, about, brought.clock, faults)
        stack.callback(record.close)
        say.record = record
        with kept(record, brought.stop):
            record.on_event = brought.on_event
            book.attach(record)
            _introduce(record, task, found, why_not)
            memory = memory or _own_memory(record, stack)
        brought = replace(brought, proposer=proposer, memory=memory, graph=graph)
        yield _services(record, task, judge, brought)


@contextmanager
def reopened(
    record: RunRecord, brought: Brought, *, is_checkpointed: bool = True
) -> "Iterator[Services]":
    """Go on with a run that `RunRecord.resume` has locked; it is closed when this is left.

    Args:
        record: The run.
        brought: What the caller brings.
        is_checkpointed: Its state lies in its folder, and not with the caller.

    Raises:
        RecordError: it has no usable checkpoint.
    """
    from evokernel.graphs.workflow import require_checkpoint

    with ExitStack() as stack:
        stack.callback(record.close)
        if is_checkpointed:
            require_checkpoint(record)
        config, task = record.config, record.task()
        book = _book(config, brought, is_resumed=True)
        proposer = brought.proposer or _proposer(config, _Voice(record), book)
        judge = stack.enter_context(brought.evaluator or _evaluator(task, config, _Voice(record)))
        memory = brought.memory or _shared_memory(config, stack)
        with kept(record, brought.stop):
            record.on_event = brought.on_event
            book.attach(record)
            record.event("resumed", run=record.id, path=str(record.path), task=task.name)
            memory = memory or _own_memory(record, stack)
        brought = replace(brought, proposer=proposer, memory=memory, graph=record.graph())
        yield _services(record, task, judge, brought)


@contextmanager
def kept(record: RunRecord, stop: Stop) -> Iterator[None]:
    """Leave a run that can be resumed, whatever happens; SIGTERM stops it as Ctrl-C does."""
    try:
        with stop.answering():
            yield
    except KeyboardInterrupt as interrupt:
        record.event("stopped")
        raise RunStopped(record.path, record.config.proposer) from interrupt
    except Exception as error:
        if isinstance(error, EvoKernelError):
            error.exit_code = 1
        # In place of the notes for developers that langgraph has left.
        how = _how_to_go_on(record.path, record.config.proposer)
        error.__notes__ = [f"The run is kept; {how} goes on from here."]
        with suppress(RecordError):  # the folder may be the very thing that failed
            record.event("failed", error=str(error))
        raise


def _how_to_go_on(path: Path, proposer: str) -> str:
    is_external = proposer == EXTERNAL
    return f'`evokernel.reopen("{path}")`' if is_external else f"`evokernel resume {path}`"


def ending(record: RunRecord) -> Event | None:
    """The event with which a run ended; None while it can go on."""
    return next((event for event in record.events() if event["kind"] == "ended"), None)


def _services(record: RunRecord, task: Task, judge: Evaluator, brought: Brought) -> "Services":
    from evokernel.graphs.state import Services

    assert brought.proposer is not None
    assert brought.memory is not None
    return Services(
        record, task, brought.graph, judge, brought.proposer, brought.memory, brought.stop
    )


def _introduce(record: RunRecord, task: Task, found: "Checkup | None", why_not: str) -> None:
    """The first events of a run: what it is for, and what is known of the task."""
    record.event("began", run=record.id, path=str(record.path), task=task.name)
    if found is not None:
        seconds = 0.0 if found.is_kept else found.examination.seconds
        record.event("examined", text=found.in_words(), seconds=seconds)
    if why_not:
        record.event("note", text=why_not)


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


def _proposer(config: RunConfig, say: Say, book: CallBook) -> Proposer:
    """Who writes candidates.

    Raises:
        ConfigError: a model without a key, of an unknown provider, or at an impossible address; a
            run whose candidates come from its caller.
    """
    if config.proposer == "templates":
        from evokernel.proposers.templates import TemplateProposer

        return TemplateProposer()
    if config.proposer == EXTERNAL:
        raise ConfigError(
            "the candidates of this run come from its caller: begin one with `evokernel.open`, go "
            "on with `evokernel.reopen`, from Python (docs/python.md)"
        )
    if config.agent:
        from evokernel.proposers.llm.agentic import AgenticProposer

        return AgenticProposer(
            config.proposer,
            config.model,
            config.agent,
            say=say,
            budget=config.budget,
            book=book,
            prompts=config.prompts,
        )
    from evokernel.proposers.llm import ModelProposer

    return ModelProposer(
        config.proposer,
        config.model,
        say=say,
        budget=config.budget,
        book=book,
        prompts=config.prompts,
    )


def _book(config: RunConfig, brought: Brought, *, is_resumed: bool = False) -> CallBook:
    """Where a model's calls are stored; a proposer that the caller brings may have one."""
    known = getattr(brought.proposer, "book", None)
    return known if isinstance(known, CallBook) else CallBook.of(config, is_resumed=is_resumed)


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
