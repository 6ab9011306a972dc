"""Owns `Session`: a run whose candidates its caller writes, asked and told one after the other."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from evokernel.attempt import Attempt, Fault, Usage
from evokernel.bench import Evaluator
from evokernel.config import RunConfig
from evokernel.errors import ConfigError, SessionError
from evokernel.evaluation import Evaluation
from evokernel.opgraph import OpGraph
from evokernel.optimize.opening import Brought, created, ending, kept, reopened
from evokernel.optimize.result import RunResult, result_of
from evokernel.optimize.subject import task_of
from evokernel.proposers import EXTERNAL, Request
from evokernel.record import Clock, Event, RunRecord
from evokernel.task import Task

if TYPE_CHECKING:
    import torch

    from evokernel.graphs.state import Services
    from evokernel.memory.store import Memory


def open_session(
    task: "Task | Path | str | torch.nn.Module",
    config: RunConfig | None = None,
    *,
    inputs: Sequence[Any] | None = None,
    evaluator: Evaluator | None = None,
    memory: "Memory | None" = None,
    graph: OpGraph | None = None,
    clock: Clock | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> "Session":
    """Begin a run whose candidates the caller writes; `evokernel.open`.

    Everything else is as in `optimize`: the workflow plans the steps, memory recalls and learns,
    budgets count. The arguments are those of `optimize`; `config.proposer` does not matter.

    Raises:
        UsageError: something has to change before a run can begin; nothing was written.
    """
    found = task_of(task, inputs, config)
    config = config or RunConfig()
    config = config.model_copy(update={"proposer": EXTERNAL})
    brought = Brought(evaluator, _author(), memory, graph, clock, on_event)
    stack = ExitStack()
    services = stack.enter_context(created(found, config, brought))
    return Session(services, stack)


def reopen(
    path: Path | str,
    *,
    evaluator: Evaluator | None = None,
    memory: "Memory | None" = None,
    clock: Clock | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> "Session":
    """Go on with a session that was closed, or whose process died; `evokernel.reopen`.

    Raises:
        RecordError: no run, at work in another process, or without a usable checkpoint.
        SessionError: a run whose candidates do not come from its caller.
    """
    record = RunRecord.resume(Path(path), clock)
    stack = ExitStack()
    stack.callback(record.close)
    try:
        if record.config.proposer != EXTERNAL:
            raise SessionError(
                f"the candidates of `{record.path}` come from `{record.config.proposer}`; expected "
                f"a run that `evokernel.open` began. `evokernel resume {record.path}` goes on with "
                "this one"
            )
        if ended := ending(record):
            return Session(None, stack, record, str(ended["reason"]))
        brought = Brought(evaluator, _author(), memory, None, clock, on_event)
        return Session(stack.enter_context(reopened(record, brought)), stack)
    except BaseException:
        stack.close()
        raise


class Session:
    """A run that waits for its caller; made by `evokernel.open` and `evokernel.reopen`.

    Databases and worker processes belong to the thread that opened it: one thread makes all calls.
    A session that was closed, or whose process died, goes on with `evokernel.reopen`; a candidate
    that was told and not judged yet is judged by the next `ask`.
    """

    def __init__(
        self,
        services: "Services | None",
        stack: ExitStack,
        record: RunRecord | None = None,
        reason: str = "",
    ) -> None:
        """Made by `evokernel.open` and `evokernel.reopen`; without services the run is over."""
        self._services = services
        self._stack = stack
        self._reason = reason
        self._asked: Request | None = None
        self._asked_at = 0.0
        found = services.record if services else record
        assert found is not None
        self.record: RunRecord = found
        """The run folder."""

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.record.id

    @property
    def path(self) -> Path:
        """Its folder; `evokernel.reopen` takes it."""
        return self.record.path

    @property
    def task(self) -> Task:
        """What is to be made fast."""
        return self.record.task()

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Everything that was judged, in order."""
        return self.record.attempts()

    @property
    def best(self) -> Attempt | None:
        """The fastest feasible attempt that no second look has refuted; None if there is none."""
        return self.record.best()

    @property
    def memory(self) -> "Memory":
        """What the session learns for.

        Raises:
            SessionError: it is closed.
        """
        return self._open().memory

    def ask(self) -> Request | None:
        """What is wanted next: the task, the stage, what to start from, what memory recalled.

        The same request until it is told or declined. The first call times the baselines; one after
        a new best kernel measures that again.

        Returns:
            None when a budget is spent: the run has ended.

        Raises:
            SessionError: the session is closed.
            RunStopped: Ctrl-C or SIGTERM; the run is kept.
            EvoKernelError: the run cannot go on; it is kept.
        """
        while self._asked is None and not self._reason:
            self._advance()
        return self._asked

    def tell(
        self,
        request: Request | str,
        source: str,
        *,
        techniques: tuple[str, ...] = (),
        rationale: str = "",
        used: tuple[str, ...] = (),
        prompt: str = "",
        reply: str = "",
        fault: Fault | None = None,
        usage: Usage | None = None,
    ) -> Evaluation:
        """Have a candidate judged; memory learns from it, and it counts as an attempt.

        Args:
            request: What `ask` gave, or its `step`.
            source: A Python module with `ModelNew`.
            techniques: Names of those that it applies (`evokernel memory techniques`).
            rationale: Why, in a sentence or two.
            used: Ids of the shown experiences that it used.
            prompt: What the author was shown, for the record.
            reply: What the author answered, for the record.
            fault: Why there is nothing to judge; `source` is empty then.
            usage: What it cost; None is the wall time since `ask`.

        Raises:
            SessionError: another request than the open one, a closed session, or no source.
            RunStopped: Ctrl-C or SIGTERM; the next `ask` judges the candidate.
            EvoKernelError: the run cannot go on; it is kept.
        """
        from evokernel.graphs.external import understood

        step = self._require(request)
        answer = {
            "source": source,
            "techniques": tuple(techniques),
            "rationale": rationale,
            "used": tuple(used),
            "prompt": prompt,
            "reply": reply,
            "fault": fault,
            "usage": usage or Usage(seconds=round(self.record.elapsed() - self._asked_at, 3)),
        }
        self._advance(understood(answer).model_dump(mode="json"))
        return self.record.evaluation(int(step.rpartition("/")[2]))

    def decline(self, request: Request | str) -> None:
        """Have nothing new for a request: another step is planned, and nothing is counted.

        Raises:
            SessionError: another request than the open one, or a closed session.
        """
        self._require(request)
        self._advance({"source": None})

    def prompt(self, request: Request | str) -> str:
        """The text that a model would be shown for the open request.

        Raises:
            SessionError: another request than the open one, or a closed session.
            ConfigError: there is no text for the backend.
        """
        from evokernel.prompts import backends, render
        from evokernel.proposers.techniques import catalogue

        self._require(request)
        asked = self._asked
        assert asked is not None
        if asked.backend not in backends():
            raise ConfigError(
                f"there is no text for the backend `{asked.backend}`; expected one of "
                f"{', '.join(f'`{known}`' for known in backends())}"
            )
        family = asked.graph.family if asked.graph else "unknown"
        return render(
            asked, [t for t in catalogue().values() if t.suits(family, asked.backend)]
        ).text

    def finish(self, reason: str = "its caller ended it") -> RunResult:
        """End the run: results that are still open get their second look in fresh processes.

        Raises:
            SessionError: the session is closed.
        """
        from evokernel.graphs.stepping import conclude

        if not self._reason:
            services = self._open()
            with self._working(services):
                self._ended(conclude(services, reason).reason)
        return self.result()

    def result(self) -> RunResult:
        """What the run has come to so far."""
        return result_of(self.record, self._reason, self.record.elapsed())

    def close(self) -> None:
        """Leave the run as it is, and end every process of it; `evokernel.reopen` goes on."""
        if self._services is not None and not self._reason:
            self.record.event("stopped")
        self._services = None
        self._asked = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _advance(self, answer: dict[str, Any] | None = None) -> None:
        from evokernel.graphs.external import ExternalProposer
        from evokernel.graphs.stepping import advance

        services = self._open()
        author = services.proposer
        assert isinstance(author, ExternalProposer)
        self._asked = None
        with self._working(services):
            pause = advance(services, answer)
            if pause.is_wanted:
                self._asked, self._asked_at = author.asked, self.record.elapsed()
            elif pause.reason:
                self._ended(pause.reason)

    @contextmanager
    def _working(self, services: "Services") -> Iterator[None]:
        with kept(self.record, services.stop):
            yield

    def _ended(self, reason: str) -> None:
        self._reason, self._asked = reason, None
        self.record.event("ended", reason=reason)

    def _open(self) -> "Services":
        if self._services is None:
            over = f"has ended: {self._reason}" if self._reason else "is closed"
            raise SessionError(
                f"the session of `{self.path}` {over}; expected an open one. Its results are in "
                "`result()`" + ("" if self._reason else ", and `evokernel.reopen` goes on with it")
            )
        return self._services

    def _require(self, request: Request | str) -> str:
        step = request if isinstance(request, str) else request.step
        self._open()
        if self._asked is None or self._asked.step != step:
            waits = f"`{self._asked.step}` waits" if self._asked else "none waits"
            raise SessionError(
                f"the request `{step}` is not the open one ({waits}); answer what the last `ask()` "
                "gave, once"
            )
        return step


def _author() -> Any:
    from evokernel.graphs.external import ExternalProposer

    return ExternalProposer()
