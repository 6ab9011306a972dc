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
from evokernel.attempt import Attempt, Candidate, Proposal
from evokernel.config import RunConfig
from evokernel.errors import RecordError
from evokernel.evaluation import Evaluation, Profile, Promotion
from evokernel.frozen import Frozen
from evokernel.opgraph import OpGraph
from evokernel.record.entries import (
    Batch,
    Clock,
    Ending,
    Event,
    Header,
    Skipped,
    SystemClock,
)
from evokernel.record.folder import Folder, R, read_text
from evokernel.record.ranking import Ranking
from evokernel.task import Task

__all__ = ["Clock", "Event", "Header", "RunRecord", "SystemClock"]

_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
"""Made once: making one costs more than writing a line with it."""


class RunRecord:
    """One run folder.

    `create` makes a new one and `resume` continues one; both hold its lock until `close`. `open`
    only reads, and may do so while another process writes.
    """

    def __init__(self, folder: Folder, header: Header, clock: Clock) -> None:
        self.header = header
        self.on_event: Callable[[Event], None] | None = None
        """Told of each event after it was written."""
        self._folder = folder
        self._clock = clock
        self._before = 0.0  # seconds of the run's earlier sessions
        self._began = clock.monotonic()
        self._is_writer = False
        # What the folder holds as well; only a writer may trust it without looking.
        self._closed: dict[int, Attempt | Skipped] | None = None
        self._attempts: tuple[Attempt, ...] | None = None
        self._batches: list[tuple[Promotion, ...]] | None = None
        self._ranking = Ranking(0, {})
        self._at_hand: dict[tuple[str, int], Frozen] = {}

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
        expected = "a start kernel: a Python file with `ModelNew`"
        sources = [read_text(path, expected) for path in config.search.start]
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
        record = cls(folder, header, clock)
        record._is_writer = True
        return record

    @classmethod
    def open(cls, path: Path, clock: Clock | None = None) -> "RunRecord":
        """Read a run.

        Raises:
            RecordError: when it is no run folder, or `run.json` cannot be understood.
        """
        folder = Folder(path)
        if not folder.has("run.json"):
            raise RecordError(f"`{path}` is not a run folder: expected `run.json` in it")
        return cls(folder, folder.parse("run.json", Header), clock or SystemClock())

    @classmethod
    def resume(cls, path: Path, clock: Clock | None = None) -> "RunRecord":
        """Open a run to continue it, and lock it.

        Raises:
            RecordError: when it cannot be read, or another process is at work on it.
        """
        record = cls.open(path, clock)
        record._folder.lock()
        record._is_writer = True
        record._folder.drop_torn_line("events.jsonl")
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

    # -- steps and attempts ------------------------------------------------------------------------

    def next_number(self) -> int:
        """Number of the step that is under way or comes next."""
        return max(self._closed_steps(), default=0) + 1

    def save(self, number: int, name: str, value: Frozen, *, precious: bool = False) -> None:
        """Store one record of a step; a `precious` one survives a power cut, too."""
        text = value.model_dump_json(indent=1)
        self._folder.write(_named(number, f"{name}.json"), text, precious=precious)
        self._at_hand[name, number] = value

    def has(self, number: int, name: str) -> bool:
        """Whether a step has come as far as storing this record."""
        return self._folder.has(_named(number, f"{name}.json"))

    def load(self, number: int, name: str, kind: type[R]) -> R:
        """Read a record of a step back.

        Raises:
            RecordError: when it is missing or damaged.
        """
        known = self._at_hand.get((name, number))
        if isinstance(known, kind):
            return known
        return self._folder.parse(_named(number, f"{name}.json"), kind)

    def save_proposal(self, number: int, proposal: Proposal) -> None:
        """Store what the proposer handed over, its texts as files of their own."""
        is_paid = proposal.usage.tokens_out > 0
        texts = {
            "candidate.py": proposal.candidate.source,
            "prompt.md": proposal.prompt,
            "reply.md": proposal.reply,
        }
        for name, text in texts.items():
            if text or name == "candidate.py":
                self._folder.write(_named(number, name), text, precious=is_paid)
        candidate = Candidate(source="", backend=proposal.candidate.backend)
        bare = proposal.model_copy(update={"candidate": candidate, "prompt": "", "reply": ""})
        # Last: from here on the proposal counts, and everything that belongs to it is there.
        self.save(number, "proposal", bare, precious=is_paid)
        self._at_hand["proposed", number] = proposal

    def proposal(self, number: int) -> Proposal:
        """The stored proposal of a step.

        Raises:
            RecordError: when it is missing or damaged.
        """
        if isinstance(known := self._at_hand.get(("proposed", number)), Proposal):
            return known
        bare = self.load(number, "proposal", Proposal)
        source = self._folder.read(_named(number, "candidate.py"))
        texts = {
            name: self._folder.read(file)
            for name in ("prompt", "reply")
            if self._folder.has(file := _named(number, f"{name}.md"))
        }
        candidate = Candidate(source=source, backend=bare.candidate.backend)
        return bare.model_copy(update={"candidate": candidate, **texts})

    def save_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Store the verdict on a step's candidate; its profile is a file of its own."""
        if evaluation.profile:
            self.save(number, "profile", evaluation.profile)
        self.save(number, "evaluation", evaluation.model_copy(update={"profile": None}))
        self._at_hand["verdict", number] = evaluation

    def save_profile(self, number: int, profile: Profile) -> None:
        """Store what bounds a step's kernel."""
        self.save(number, "profile", profile)
        self._at_hand.pop(("verdict", number), None)

    def evaluation(self, number: int) -> Evaluation:
        """The stored evaluation of a step, its profile included.

        Raises:
            RecordError: when it is missing or damaged.
        """
        if isinstance(known := self._at_hand.get(("verdict", number)), Evaluation):
            return known
        evaluation = self.load(number, "evaluation", Evaluation)
        if not self.has(number, "profile"):
            return evaluation
        return evaluation.model_copy(update={"profile": self.load(number, "profile", Profile)})

    def close_attempt(self, attempt: Attempt, repeats: int | None = None) -> None:
        """Close a step whose candidate was judged; `repeats` is the attempt that had it before."""
        names = set(Ending.model_fields) - {"repeats"}
        ending = Ending(**attempt.model_dump(include=names), repeats=repeats)
        self.save(attempt.number, "attempt", ending)
        self._close(attempt.number, attempt)

    def close_in_vain(self, number: int, option: str) -> None:
        """Close a step for which the proposer had nothing new; `option` is what it was asked."""
        skipped = Skipped(number=number, option=option)
        self.save(number, "skipped", skipped)
        self._close(number, skipped)

    def attempts(self) -> tuple[Attempt, ...]:
        """Every finished attempt, in order."""
        closed = self._closed_steps()
        if self._attempts is None or not self._is_writer:
            found = (a for _, a in sorted(closed.items()) if isinstance(a, Attempt))
            self._attempts = tuple(found)
        return self._attempts

    def attempt(self, number: int) -> Attempt | None:
        """One finished attempt, or None where there is none of that number."""
        found = self._closed_steps().get(number)
        return found if isinstance(found, Attempt) else None

    def skipped(self) -> tuple[str, ...]:
        """What the proposer was asked for in vain, in order."""
        closed = self._closed_steps()
        return tuple(s.option for _, s in sorted(closed.items()) if isinstance(s, Skipped))

    def _close(self, number: int, how: Attempt | Skipped) -> None:
        self._closed_steps()[number] = how
        self._attempts = None
        self._at_hand.clear()

    def _closed_steps(self) -> dict[int, Attempt | Skipped]:
        if self._closed is None or not self._is_writer:
            known = self._closed or {}
            numbers = self._folder.numbers("attempts")
            found = {n: known.get(n) or self._read_closed(n) for n in numbers}
            self._closed = {n: closed for n, closed in found.items() if closed}
        return self._closed

    def _read_closed(self, number: int) -> Attempt | Skipped | None:
        if self.has(number, "skipped"):
            return self.load(number, "skipped", Skipped)
        if not self.has(number, "attempt"):
            return None
        return Attempt(
            **self.load(number, "attempt", Ending).model_dump(exclude={"repeats"}),
            proposal=self.proposal(number),
            evaluation=self.evaluation(number),
        )

    # -- promotion and the best --------------------------------------------------------------------

    def save_promotions(self, answers: tuple[Promotion, ...]) -> None:
        """Store the answers to one batch of claims, all or none."""
        number = len(self.batches()) + 1
        text = Batch(answers=answers).model_dump_json(indent=1)
        self._folder.write(f"promotions/{number:03}.json", text)
        if self._batches is not None:
            self._batches.append(answers)

    def batches(self) -> tuple[tuple[Promotion, ...], ...]:
        """Every batch of claims that was looked at again, in order."""
        if self._batches is None or not self._is_writer:
            names = (f"promotions/{n:03}.json" for n in self._folder.numbers("promotions"))
            self._batches = [self._folder.parse(name, Batch).answers for name in names]
        return tuple(self._batches)

    def promotions(self) -> tuple[Promotion, ...]:
        """Every claim that was looked at again, in order."""
        return tuple(answer for batch in self.batches() for answer in batch)

    def best(self) -> Attempt | None:
        """The fastest feasible attempt whose kernel no promotion has refuted, or None."""
        batches, attempts = self.batches(), self.attempts()
        if len(batches) != self._ranking.batches or not self._is_writer:
            looks = {p.candidate: p for b in batches for p in b if p.claim == "kernel"}
            self._ranking = Ranking(len(batches), looks)
        self._ranking.take_in(attempts)
        return self._ranking.best

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


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "task"


def _named(number: int, file: str) -> str:
    return f"attempts/{number:03}/{file}"
