"""Owns `Office`: carries the tools' calls out, with the desks, the runs and the memory."""

import functools
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from evokernel.attempt import Attempt, Backend, Stage
from evokernel.bench.gpu import choice
from evokernel.config import BenchConfig, Budget, MemoryConfig, RunConfig, home
from evokernel.errors import EvoKernelError, RecordError
from evokernel.external import OPTION
from evokernel.memory.experience import Experience, Origin
from evokernel.record import RunRecord
from evokernel.serve import asked, running, telling, told
from evokernel.serve.desk import DeskOrder, known_techniques
from evokernel.serve.desks import Desks, OpenDesk, Tell
from evokernel.serve.refusal import BadArgument
from evokernel.task import Task

Found = TypeVar("Found")

ENDLESS = 1_000_000
"""Attempts of a run of evaluations, which has no end of its own."""
GLANCE_S = 1.0
"""How often a run that is waited for is looked at, seconds (ours)."""
STOP_S = 30.0
"""How long a run may take to come to a stop, seconds (ours)."""


class Office:
    """Carries calls out for one client.

    Args:
        runs: Folder that receives run folders.
        memory: Which memory learns, and how it chooses.
        author: Who the client is, for the record.
    """

    def __init__(self, runs: Path, memory: MemoryConfig, author: str = OPTION) -> None:
        self.runs = runs
        self.memory = memory
        self.author = author
        self._desks = Desks()
        self._sittings: dict[tuple[str, ...], Path] = {}
        """Runs that this session began, by what they are for."""

    async def close(self) -> None:
        """End every desk; runs with processes of their own go on."""
        await self._desks.close()

    # Runs of the caller's own evaluations

    async def recall(self, call: asked.Recall, tell: Tell) -> told.Recalled:
        """What helped before."""
        return told.Recalled.model_validate(await self._sit("recall", call, tell))

    async def evaluate(self, call: asked.Evaluate, tell: Tell) -> told.Evaluated:
        """Judge a candidate."""
        return told.Evaluated.model_validate(await self._sit("evaluate", call, tell))

    async def _sit(self, name: str, call: asked.Sitting, tell: Tell) -> dict[str, Any]:
        """Have the desk of the call's run carry it out."""
        order, key = await _in_thread(self._order, call)
        desk = await self._desks.at(order, tell)
        self._sittings[key] = desk.path
        arguments = call.model_dump(mode="json")
        return await desk.call(name, {**arguments, "task": None}, tell)

    def _order(self, call: asked.Sitting) -> tuple[DeskOrder, tuple[str, ...]]:
        """Which run a call means, and by what it is known."""
        if call.run is not None:
            record = running.opened(call.run, self.runs)
            if not running.is_external(record):
                raise BadArgument(
                    "run",
                    f"`{call.run}` is a run of `{record.config.proposer}`, not of evaluations",
                    "the id of a run that `evaluate` or `recall` began",
                )
            return DeskOrder(author=self.author, path=record.path), (call.run,)
        if call.task is None:
            raise BadArgument("task", "`task` is missing", "a task, or `run` to go on with one")
        source = call.source if isinstance(call, asked.Evaluate) else ""
        backend = call.backend or (choice.of_source(source) if source else choice.picked())
        task = task_of(call.task, backend)
        key = (task.sha, task.name, backend, call.contract, str(call.quick))
        if path := self._sittings.get(key):
            return DeskOrder(author=self.author, path=path), key
        return DeskOrder(
            author=self.author, task=task, config=self._config(task, backend, call)
        ), key

    def _config(self, task: Task, backend: Backend, call: asked.Sitting) -> RunConfig:
        return RunConfig(
            task=task.path or task.name,
            backend=backend,
            proposer=OPTION,
            runs=self.runs,
            budget=Budget(attempts=ENDLESS),
            memory=self.memory,
            bench=BenchConfig(
                contract="own_kernels_only" if call.contract == "own" else "library_allowed",
                measurement="quick" if call.quick else "standard",
                baselines=("eager",) if call.quick else ("eager", "compile"),
            ),
            force=call.force,
        )

    async def best(self, call: asked.Best, tell: Tell) -> told.Found:
        """The best kernel of a run."""
        record = await _in_thread(running.opened, call.run, self.runs)
        if call.confirm and running.is_external(record):
            await (await self._desk_of(record, tell)).call("confirm", {}, tell)
            record = await _in_thread(running.opened, call.run, self.runs)
        return await _in_thread(telling.found, record)

    async def _desk_of(self, record: RunRecord, tell: Tell) -> OpenDesk:
        order = DeskOrder(author=self.author, path=record.path)
        return self._desks.of(record.id) or await self._desks.at(order, tell)

    async def profile(self, call: asked.Profile, tell: Tell) -> told.Profiled:
        """What bounds a kernel."""
        return await _in_thread(_profiled, call, self.runs)

    async def remember(self, call: asked.Remember, tell: Tell) -> told.Remembered:
        """Keep a remark, in quarantine."""
        return await _in_thread(self._remembered, call)

    def _remembered(self, call: asked.Remember) -> told.Remembered:
        from evokernel.memory.store import Memory

        record = running.opened(call.run, self.runs)
        attempt = _attempt(record, call.attempt) if call.attempt else None
        note = _remark(record, call, attempt, self.author)
        config = self.memory.model_copy(update={"path": record.memory})
        with Memory.open(config) as memory:
            (id,) = memory.add((note,), note.origin.step, record.graph())
            return told.Remembered(kept=telling.kept(memory.get(id)), note=QUARANTINED)

    # Runs with processes of their own

    async def start_run(self, call: asked.StartRun, tell: Tell) -> told.RunStanding:
        """Start a run, and say where it stands once it has begun."""
        await tell("starting a process for the run")
        arguments = await _in_thread(self._arguments, call)
        run = await _in_thread(running.start, arguments, self.runs)
        return await self._status(run)

    def _arguments(self, call: asked.StartRun) -> list[str]:
        task = task_of(call.task, call.backend or choice.picked())
        path = task.path or _written(task)
        memory = "none" if self.memory.path is None else str(self.memory.path)
        options = {
            "--attempts": call.attempts,
            "--minutes": call.minutes,
            "--backend": call.backend,
            "--model": call.model,
            "--usd": call.usd,
            "--seed": call.seed,
            "--memory": memory,
            "--policy": self.memory.policy,
        }
        flags = [
            n for n, is_set in {"--quick": call.quick, "--force": call.force}.items() if is_set
        ]
        pairs = [[name, str(value)] for name, value in options.items() if value is not None]
        return [path, *sum(pairs, []), *flags]

    async def run_status(self, call: asked.RunStatus, tell: Tell) -> told.RunStanding:
        """Where a run stands; waits for its end as long as the caller wants."""
        found = await self._status(call.run)
        with anyio.move_on_after(call.wait_s):
            while found.state == "running":
                await anyio.sleep(GLANCE_S)
                before, found = found, await self._status(call.run)
                if (found.attempts_made, found.phase) != (before.attempts_made, before.phase):
                    await tell(_in_words(found))
        return found

    async def stop_run(self, call: asked.StopRun, tell: Tell) -> told.RunStanding:
        """Stop a run of `start_run`; one of evaluations is let go of."""
        record = await _in_thread(running.opened, call.run, self.runs)
        if (desk := self._desks.of(record.id)) is not None:
            await desk.end()
        elif not await _in_thread(running.stop, record, STOP_S):
            raise EvoKernelError(
                f"`{record.id}` has not come to a stop within {STOP_S:.0f} seconds; it will, as "
                "soon as what it waits for is done"
            )
        return await self._status(call.run)

    async def _status(self, run: str) -> told.RunStanding:
        return await _in_thread(lambda: running.status(running.opened(run, self.runs)))

    # The machine

    async def doctor(self, call: asked.Doctor, tell: Tell) -> told.Checked:
        """Look at this machine, in a process of its own."""
        command = [sys.executable, "-P", "-m", "evokernel", "doctor", *call.checks, "--json"]
        places = ["--runs-dir", str(self.runs)]
        if self.memory.path is not None:
            places += ["--memory", str(self.memory.path)]
        done = await anyio.run_process(
            [*command, *places], check=False, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        if not done.stdout.strip():
            said = done.stderr.decode("utf-8", "replace").removeprefix("evokernel: ").strip()
            raise BadArgument("checks", said, "names of checks")
        found = json.loads(done.stdout)
        names = set(told.Check.model_fields)
        checks = ({k: v for k, v in row.items() if k in names} for row in found["findings"])
        return told.Checked.model_validate({"can_run": found["can_run"], "findings": list(checks)})


QUARANTINED = (
    "It is shown inside this run only, until a person takes it over (`evokernel memory approve`): "
    "nothing that was not measured is shown to other tasks by itself."
)


async def _in_thread(work: Callable[..., Found], *arguments: Any) -> Found:
    """Do something that reads files, without keeping other calls waiting."""
    return await anyio.to_thread.run_sync(functools.partial(work, *arguments))


def task_of(text: str, backend: Backend) -> Task:
    """The task that an argument names or holds.

    Raises:
        TaskError: no such task, or the text is none.
        DeviceMissing: the backend needs a GPU, and there is none.
    """
    choice.require(backend)
    device = choice.device_of(backend)
    if "\n" not in text:
        return Task.load(text, device)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Task.from_source(text, name=f"task-{digest}", device=device)


def _written(task: Task) -> str:
    """A file with the text of a task that has none, for a process that goes on without us."""
    path = home() / "tasks" / f"{task.name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(task.source, encoding="utf-8")
    return str(path)


def _attempt(record: RunRecord, number: int) -> Attempt:
    found = record.attempt(number)
    if found is None:
        known = len(record.attempts())
        raise BadArgument(
            "attempt", f"`{record.id}` has no attempt {number}", f"one of its {known} attempts"
        )
    return found


def _profiled(call: asked.Profile, runs: Path) -> told.Profiled:
    record = running.opened(call.run, runs)
    attempt = _attempt(record, call.attempt) if call.attempt else record.best()
    if attempt is None:
        raise RecordError(f"no attempt of `{record.id}` has passed, so there is nothing to profile")
    digest = telling.digest(attempt.evaluation)
    if digest is None or attempt.median_ms is None:
        raise BadArgument(
            "attempt",
            f"attempt {attempt.number} ended as {attempt.evaluation.status}; there is no profile",
            "an attempt that passed",
        )
    share = digest.roofline_share
    return told.Profiled(
        run=record.id,
        attempt=attempt.number,
        median_ms=attempt.median_ms,
        profile=digest,
        floor_ms=attempt.median_ms * share if share else None,
    )


def _remark(
    record: RunRecord, call: asked.Remember, attempt: Attempt | None, author: str
) -> Experience:
    """A lesson in words. It is no failure that was observed, so it enters in quarantine."""
    graph, task = record.graph(), record.task()
    step = f"{record.id}/note-{hashlib.sha256(call.note.encode()).hexdigest()[:12]}"
    profile = attempt.evaluation.profile if attempt else None
    return Experience(
        kind="lesson",
        stage=attempt.proposal.stage if attempt else Stage.DRAFT,
        backend=record.config.backend,
        family=graph.family if graph else "unknown",
        fingerprint=graph.fingerprint if graph else task.sha,
        bottleneck=profile.bound_by if profile else "unknown",
        techniques=known_techniques(call.techniques),
        outcome="success",
        summary=" ".join(call.note.split())[:200],
        payload={"note": call.note},
        origin=Origin(
            run=record.id,
            step=step,
            task=task.name,
            candidate=attempt.proposal.candidate.sha if attempt else "",
            proposer=author,
        ),
    )


def _in_words(status: told.RunStanding) -> str:
    best = status.best
    speed = f", best {best.speedup:.2f}x as fast as eager" if best and best.speedup else ""
    return f"{status.attempts_made} attempts{speed}; {status.phase or status.state}"
