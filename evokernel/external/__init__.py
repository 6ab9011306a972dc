"""Owns `ExternalRun`: a run whose candidates come from outside, one at a time.

It leaves what any run leaves: a folder with every attempt and verdict, experiences in memory under
the same rules of quarantine, rewards for what was shown. Only the author is somebody else, and so
is the order of work: no workflow decides what comes next.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from evokernel.attempt import Attempt, Candidate, Proposal, Stage
from evokernel.bench import Evaluator, Say, silent
from evokernel.config import RunConfig
from evokernel.errors import ConfigError
from evokernel.evaluation import Promotion
from evokernel.external import opening
from evokernel.external.submission import ExternalAuthor, Judged, Submission, most_alike
from evokernel.graphs import learning, requests, selection
from evokernel.graphs.claims import first_with
from evokernel.graphs.selection import Plan
from evokernel.graphs.state import Services
from evokernel.memory.harvest import harvest
from evokernel.memory.retrieval import Query, Retrieval
from evokernel.opgraph import OpGraph
from evokernel.proposers import Request
from evokernel.record import Clock, Event, RunRecord
from evokernel.task import Task

if TYPE_CHECKING:
    from evokernel.memory.store import Memory
    from evokernel.prompts import Prompt

__all__ = ["OPTION", "ExternalAuthor", "ExternalRun", "Judged", "Submission", "most_alike"]


class ExternalRun:
    """One run of an author outside; a context manager that leaves no process behind.

    Args:
        record: Its folder, locked by this process.
        services: Record, task, operators, evaluator, author and memory.
        stack: What is to be closed with it.
    """

    def __init__(self, record: RunRecord, services: Services, stack: ExitStack) -> None:
        self.record = record
        self._services = services
        self._stack = stack
        # Nodes look at nothing else of the context that langgraph gives them.
        self._runtime: Any = _Runtime(services)

    @classmethod
    def begin(
        cls,
        task: Task,
        config: RunConfig,
        author: str = "external",
        *,
        evaluator: Evaluator | None = None,
        memory: "Memory | None" = None,
        graph: OpGraph | None = None,
        is_examined: bool = False,
        clock: Clock | None = None,
        say: Say = silent,
        on_event: Callable[[Event], None] | None = None,
    ) -> Self:
        """Make the folder of a new run.

        Args:
            task: What candidates are for.
            config: How they are judged, and which memory learns.
            author: Who writes them, for the record.
            evaluator: Who judges; None measures on this machine. One given is open and stays open.
            memory: What learns; None opens `config.memory`. One given stays open.
            graph: The task's operators; None captures them from the reference.
            is_examined: The caller answers for the task, so that it needs no check.
            clock: Where the time is read.
            say: Told what takes time.
            on_event: Told of everything that happens.

        Raises:
            UsageError: something has to change before a run can begin; nothing was written.
        """
        why_not = ""
        if graph is None:
            graph, why_not = opening.captured(task)
        faults = () if is_examined else opening.faults(task, config, graph, say)
        with ExitStack() as stack:
            judge = evaluator or stack.enter_context(opening.local_evaluator(task, config, say))
            record = RunRecord.create(config, task, graph, opening.environment(), clock, faults)
            stack.callback(record.close)
            record.on_event = on_event
            record.event("began", run=record.id, path=str(record.path), task=task.name)
            if why_not:
                record.event("note", text=why_not)
            return cls._entered(record, task, graph, judge, author, memory, stack)

    @classmethod
    def resume(
        cls,
        path: Path,
        author: str = "external",
        *,
        evaluator: Evaluator | None = None,
        memory: "Memory | None" = None,
        clock: Clock | None = None,
        say: Say = silent,
        on_event: Callable[[Event], None] | None = None,
    ) -> Self:
        """Go on with one; the arguments are those of `begin`.

        Raises:
            RecordError: it cannot be read, or another process is at work on it.
        """
        with ExitStack() as stack:
            record = RunRecord.resume(path, clock)
            stack.callback(record.close)
            task, graph, config = record.task(), record.graph(), record.config
            judge = evaluator or stack.enter_context(opening.local_evaluator(task, config, say))
            record.on_event = on_event
            record.event("resumed", run=record.id, path=str(record.path), task=task.name)
            return cls._entered(record, task, graph, judge, author, memory, stack)

    @classmethod
    def _entered(
        cls,
        record: RunRecord,
        task: Task,
        graph: OpGraph | None,
        judge: Evaluator,
        author: str,
        memory: "Memory | None",
        stack: ExitStack,
    ) -> Self:
        memory = memory or stack.enter_context(opening.own_memory(record))
        services = Services(record, task, graph, judge, ExternalAuthor(author), memory)
        return cls(record, services, stack.pop_all())

    @property
    def task(self) -> Task:
        """What candidates are for."""
        return self._services.task

    @property
    def graph(self) -> OpGraph | None:
        """The task's operators, where they are known."""
        return self._services.graph

    @property
    def memory(self) -> "Memory":
        """What learns."""
        return self._services.memory

    @property
    def evaluator(self) -> Evaluator:
        """Who judges."""
        return self._services.evaluator

    def attempts(self) -> tuple[Attempt, ...]:
        """Every finished attempt, in order."""
        return self.record.attempts()

    def know_machine(self) -> None:
        """Put what the verdicts rest on into the record, where it is not there yet."""
        if "device" not in self.record.header.environment:
            facts = self.evaluator.facts()
            known = facts.model_dump(mode="json", exclude={"protections"}, exclude_none=True)
            self.record.add_environment({name: str(fact) for name, fact in known.items()})

    def request(self, parent: int | None, shown: Retrieval | None = None) -> Request:
        """The situation of the next step, as a proposer would see it; for prompts."""
        plan = self._plan(self._parent(parent))
        services = self._services
        by_sha = first_with(self.attempts())
        return Request(
            task=services.task,
            graph=services.graph,
            backend=services.config.backend,
            stage=plan.stage,
            step=plan.step,
            seed=plan.seed,
            parents=tuple(by_sha[sha] for sha in plan.parents),
            children=tuple(a for a in self.attempts() if a.proposal.parents == plan.parents),
            tried=tuple(by_sha),
            shown=shown.experiences if shown else (),
            machine=_machine(self.record),
            baselines=self.record.baselines() or {},
            contract=services.task.options.contract or services.config.bench.contract,
        )

    def prompt(self, request: Request) -> "Prompt | None":
        """A step in words, as a model would be shown it; None where there is no text for it."""
        from evokernel.prompts import backends, render
        from evokernel.proposers.techniques import catalogue

        if request.backend not in backends():
            return None
        family = request.graph.family if request.graph else "unknown"
        known = catalogue().values()
        return render(request, [t for t in known if t.suits(family, request.backend)])

    def recall(self, parent: int | None = None) -> Retrieval:
        """What memory brings back for the next step; the step's reward goes to it.

        Args:
            parent: The attempt that will be edited or repaired; 0 or None is none.
        """
        self._set_aside(None)
        plan = self._plan(self._parent(parent or 0))
        retrieval = self.memory.recall(self._query(plan))
        self.record.save(plan.number, "plan", plan.model_copy(update={"shown": retrieval.ids}))
        return retrieval

    def judge(self, submission: Submission) -> Judged:
        """Judge a candidate, let memory learn from it, and enter it as an attempt.

        Raises:
            ConfigError: no such parent.
            WorkerError: the machine spoiled it too often; the step stays open.
        """
        candidate = Candidate(source=submission.source, backend=self.record.config.backend)
        self._set_aside(candidate)
        parent = self._parent(submission.parent, candidate)
        plan = self._plan(parent)
        number = plan.number
        if self.record.has(number, "plan"):
            shown = self.record.load(number, "plan", Plan).shown
            plan = plan.model_copy(update={"shown": shown})
        self.record.save(number, "plan", plan)
        self.record.event(
            "step", **plan.model_dump(mode="json", exclude={"seed", "step", "option"})
        )
        if not self.record.has(number, "proposal"):
            self._propose(plan, candidate, submission, parent)
        self._carry_out(number)
        return self._judged(number)

    def confirm(self) -> tuple[Promotion, ...]:
        """Look again, in fresh processes, at every claim that was not looked at yet.

        What holds becomes active in memory, what does not becomes suspect.

        Returns:
            Every answer of the run so far.
        """
        from evokernel.graphs import nodes

        nodes.promote({"reason": "asked for"}, self._runtime)
        return self.record.promotions()

    def close(self) -> None:
        """End every process and give the folder back."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _parent(self, number: int | None, candidate: Candidate | None = None) -> Attempt | None:
        if number == 0 or (number is None and candidate is None):
            return None
        if number is None and candidate is not None:
            return most_alike(candidate.source, self.attempts())
        found = self.record.attempt(number or 0)
        if found is None:
            known = len(self.attempts())
            raise ConfigError(
                f"there is no attempt {number} in run `{self.record.id}` to be the `parent`; "
                f"expected one of its {known} attempts, or 0 for a candidate made from nothing"
            )
        return found

    def _plan(self, parent: Attempt | None) -> Plan:
        number = self.record.next_number()
        is_feasible = parent is not None and parent.evaluation.status.is_feasible
        made_from = f"attempt {parent.number}" if parent else "nothing"
        return Plan(
            number=number,
            step=f"{self.record.id}/{number}",
            seed=selection.step_seed(self.record.config.search.seed, number),
            trajectory=0,
            stage=Stage.REFINE if is_feasible else Stage.DRAFT,
            option=OPTION,
            why=f"handed in from outside, made from {made_from}",
            parents=(parent.proposal.candidate.sha,) if parent else (),
        )

    def _query(self, plan: Plan) -> Query:
        scene = learning.scene(self._services)
        parent = first_with(self.attempts())[plan.parents[0]] if plan.parents else None
        profile = parent.evaluation.profile if parent else None
        return Query(
            task=self.task.name,
            graph=self.graph,
            stage=plan.stage,
            backend=self.record.config.backend,
            family=scene.family,
            fingerprint=scene.fingerprint,
            bottleneck=profile.bound_by if profile else "unknown",
            techniques=parent.proposal.techniques if parent else (),
            run=self.record.id,
            step=plan.step,
            seed=self.record.config.search.seed,
            exclude=() if parent is None else tuple(e.id for e in harvest(parent, scene)),
        )

    def _set_aside(self, candidate: Candidate | None) -> None:
        """Close a step that was cut short, unless the same candidate has come back for it."""
        number = self.record.next_number()
        if self.record.has(number, "proposal"):
            proposal = self.record.proposal(number)
            begun = proposal.tuning.source if proposal.tuning else proposal.candidate.source
            if candidate is None or begun != candidate.source:
                self.record.close_in_vain(number, "cut short")
                self.record.event("skipped", number=number, why="it was cut short")

    def _propose(
        self, plan: Plan, candidate: Candidate, submission: Submission, parent: Attempt | None
    ) -> None:
        before = parent.proposal.techniques if parent else ()
        proposal = Proposal(
            candidate=candidate,
            stage=plan.stage,
            parents=plan.parents,
            techniques=submission.techniques,
            changed=tuple(sorted({*before} ^ {*submission.techniques})),
            used=tuple(id for id in submission.used if id in plan.shown),
            rationale=submission.rationale,
            prompt=submission.prompt,
            reply=submission.reply,
            fault=submission.fault,
            usage=submission.usage,
        )
        self.record.save_proposal(plan.number, proposal)
        self.record.event(
            "proposed",
            number=plan.number,
            candidate=candidate.sha,
            techniques=list(proposal.techniques),
            changed=list(proposal.changed),
            rationale=proposal.rationale,
            usage=proposal.usage.model_dump(mode="json"),
        )

    def _carry_out(self, number: int) -> None:
        """The way of any step through the workflow, from its proposal on."""
        from evokernel.graphs import nodes

        self.know_machine()
        state: Any = {"number": number}
        status = nodes.compile(state, self._runtime).get("status", "")
        if not status and not self.record.has(number, "evaluation"):
            status = nodes.verify(state, self._runtime)["status"]
        if not status:
            # Preparing torch.compile takes longer than finding most faults, so it comes last.
            nodes.prepare(state, self._runtime)
            nodes.profile(state, self._runtime)
        nodes.learn(state, self._runtime)

    def _judged(self, number: int) -> Judged:
        attempt = self.record.attempt(number)
        assert attempt is not None  # `learn` has closed it
        sha = attempt.proposal.candidate.sha
        first = first_with(self.attempts())[sha].number
        best = self.record.best()
        return Judged(
            number=number,
            attempt=attempt,
            repeats=first if first != number else None,
            is_best=best is not None and best.number == number,
        )


OPTION = "external"
"""`Plan.option` of every step."""


@dataclass(frozen=True)
class _Runtime:
    context: Services


def _machine(record: RunRecord) -> tuple[str, ...]:
    """What the record knows of the device, in words."""
    environment = record.header.environment
    return tuple(
        f"{words}: {environment[name]}"
        for name, words in requests.FACTS.items()
        if environment.get(name)
    )
