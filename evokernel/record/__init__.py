"""Owns `RunRecord`: what a run writes into `runs/<id>/`, and the reader of what it left there.

What a run has done is derived from the files, never from a counter beside them. `runs/README.md`
draws the folder.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evokernel import __version__
from evokernel.attempt import NO_TEXT, Attempt, source_of
from evokernel.config import RunConfig
from evokernel.errors import RecordError
from evokernel.evaluation import Promotion
from evokernel.opgraph import OpGraph
from evokernel.record.entries import Clock, Event, Header, SystemClock
from evokernel.record.folder import Folder
from evokernel.record.promotions import Promotions
from evokernel.record.steps import Steps
from evokernel.task import Task

__all__ = ["Clock", "Event", "Header", "RunRecord", "SystemClock"]

CALLS = "calls.jsonl"
"""What a model was asked and replied, one call a line, as `evokernel.proposers.llm` writes it."""

_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
"""Made once: making one costs more than writing a line with it."""


class RunRecord(Steps):
    """One run folder.

    `create` makes a new one and `resume` continues one; both hold its lock until `close`. `open`
    only reads, and may do so while another process writes.
    """

    def __init__(
        self, folder: Folder, header: Header, clock: Clock, is_writer: bool = False
    ) -> None:
        super().__init__(folder, is_writer)
        self.header = header
        self.on_event: Callable[[Event], None] | None = None
        """Told of each event after it was written."""
        self._clock = clock
        self._before = 0.0  # seconds of the run's earlier sessions
        self._began = clock.monotonic()
        self._promotions = Promotions(folder, is_writer)

    @classmethod
    def create(
        cls,
        config: RunConfig,
        task: Task,
        graph: OpGraph | None = None,
        environment: dict[str, str] | None = None,
        clock: Clock | None = None,
        task_faults: tuple[str, ...] = (),
    ) -> "RunRecord":
        """Make the folder of a new run below `config.runs`, and lock it.

        `task_faults` are the checks that the task failed before the run.

        Raises:
            RecordError: when it cannot be written, or a start kernel cannot be read.
        """
        sources = [_start(path) for path in config.search.start]
        clock = clock or SystemClock()
        created = datetime.fromtimestamp(clock.now(), UTC)
        header = Header(
            id=f"{created:%Y%m%d-%H%M%S}-{_plain_name(task.name)}-{secrets.token_hex(2)}",
            created=created.isoformat(timespec="seconds"),
            harness=__version__,
            config=config,
            environment=environment or {},
            task_faults=task_faults,
        )
        folder = Folder(config.runs / header.id)
        folder.make()
        folder.lock()
        folder.write("task.py", task.source)
        folder.write("task.json", task.model_dump_json(indent=2))
        if graph:
            folder.write("graph.json", graph.model_dump_json())
        for index, source in enumerate(sources, start=1):
            folder.write(f"start/{index}.py", source)
        folder.write("run.json", header.model_dump_json(indent=2))
        return cls(folder, header, clock, is_writer=True)

    @classmethod
    def open(cls, path: Path, clock: Clock | None = None) -> "RunRecord":
        """Read a run.

        Raises:
            RecordError: when it is no run folder, or `run.json` cannot be understood.
        """
        return cls(*_known(path), clock or SystemClock())

    @classmethod
    def resume(cls, path: Path, clock: Clock | None = None) -> "RunRecord":
        """Open a run to continue it, and lock it.

        Raises:
            RecordError: when it cannot be read, or another process is at work on it.
        """
        folder, header = _known(path)
        folder.lock()
        folder.drop_torn_line("events.jsonl")
        folder.drop_torn_line(CALLS)
        record = cls(folder, header, clock or SystemClock(), is_writer=True)
        record._before = max((float(event["elapsed"]) for event in record.events()), default=0.0)
        return record

    def close(self) -> None:
        """Give the lock back."""
        self._folder.unlock()

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._folder.path

    @property
    def id(self) -> str:
        """The folder's name: time, task and a few random digits."""
        return self.header.id

    @property
    def config(self) -> RunConfig:
        """The resolved config."""
        return self.header.config

    @property
    def checkpoints(self) -> Path:
        """Where the workflow keeps its state."""
        return self.path / "checkpoints.sqlite"

    @property
    def memory(self) -> Path:
        """Folder of the memory that the run learned for: a shared one, or its own."""
        return self.config.memory.path or self.path / "memory"

    def task(self) -> Task:
        """The task as it was when the run began."""
        return self._folder.parse("task.json", Task)

    def graph(self) -> OpGraph | None:
        """The task's operators; None where the reference could not be captured."""
        known = self._folder.has("graph.json")
        return self._folder.parse("graph.json", OpGraph) if known else None

    def start(self, index: int) -> str:
        """Source of the user's own kernel number `index`, counted from 1."""
        return self._folder.read(f"start/{index}.py")

    def elapsed(self) -> float:
        """Seconds of the run: this session, and the earlier ones up to their last event."""
        return self._before + self._clock.monotonic() - self._began

    def add_environment(self, facts: dict[str, str]) -> None:
        """Complete the header by what is known only once the evaluator is at work."""
        environment = {**self.header.environment, **facts}
        self.header = self.header.model_copy(update={"environment": environment})
        self._folder.write("run.json", self.header.model_dump_json(indent=2))

    def save_baselines(self, median_ms: dict[str, float]) -> None:
        """Store the times to beat, milliseconds by name."""
        self._folder.write("baselines.json", json.dumps(median_ms))

    def baselines(self) -> dict[str, float] | None:
        """The times to beat, milliseconds by name; None before they were measured."""
        if not self._folder.has("baselines.json"):
            return None
        times: dict[str, float] = json.loads(self._folder.read("baselines.json"))
        return times

    # -- events ------------------------------------------------------------------------------------

    def event(self, kind: str, **plain: Any) -> None:
        """Append one line to `events.jsonl`.

        Raises:
            RecordError: when it cannot be written.
        """
        at, elapsed = round(self._clock.now(), 3), round(self.elapsed(), 3)
        event: Event = {"at": at, "elapsed": elapsed, "kind": kind, **plain}
        self._folder.append("events.jsonl", _LINE.encode(event))
        if self.on_event:
            self.on_event(event)

    def events(self) -> Iterator[Event]:
        """What happened so far, in order."""
        return (json.loads(line) for line in self._folder.lines("events.jsonl"))

    # -- calls of a model --------------------------------------------------------------------------

    def add_call(self, line: str) -> None:
        """Append one line to `calls.jsonl`; somebody paid for it, so it survives a power cut.

        Raises:
            RecordError: when it cannot be written.
        """
        self._folder.append(CALLS, line, precious=True)

    def calls(self) -> Iterator[str]:
        """The lines of `calls.jsonl`, in order; none where no model was asked."""
        return self._folder.lines(CALLS)

    # -- promotion and the best --------------------------------------------------------------------

    def save_promotions(self, answers: tuple[Promotion, ...]) -> None:
        """Store the answers to one batch of claims, all or none."""
        self._promotions.save(answers)

    def batches(self) -> tuple[tuple[Promotion, ...], ...]:
        """Every batch of claims that was looked at again, in order."""
        return self._promotions.batches()

    def promotions(self) -> tuple[Promotion, ...]:
        """Every claim that was looked at again, in order."""
        return self._promotions.all()

    def best(self) -> Attempt | None:
        """The fastest feasible attempt whose kernel no promotion has refuted, or None."""
        return self._promotions.best(self.attempts())

    def save_best(self, attempt: Attempt) -> None:
        """Put the kernel that is to be used into `best/`."""
        sha = attempt.proposal.candidate.sha
        answers = [p.model_dump(mode="json") for p in self.promotions() if p.candidate == sha]
        summary = {
            "attempt": attempt.number,
            "candidate": sha,
            "median_ms": attempt.median_ms,
            "techniques": attempt.proposal.techniques,
            "tuned": tuning.chosen if (tuning := attempt.proposal.tuning) else {},
            "evaluation": attempt.evaluation.model_dump(mode="json"),
            "promotions": answers,
        }
        self._folder.write("best/kernel.py", attempt.proposal.candidate.source)
        self._folder.write("best/summary.json", json.dumps(summary, indent=2))


def _known(path: Path) -> tuple[Folder, Header]:
    folder = Folder(path)
    if not folder.has("run.json"):
        raise RecordError(f"`{path}` is not a run folder: expected `run.json` in it")
    return folder, folder.parse("run.json", Header)


def _start(path: Path) -> str:
    try:
        return source_of(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else NO_TEXT
        raise RecordError(
            f"`{path}` cannot be read: {reason}; expected a start kernel: a Python file with "
            "`ModelNew`"
        ) from error


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "task"
