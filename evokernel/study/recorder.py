"""Owns the recorder: builds, checks and times every plan of a declared space, resumably.

The checks are the harness's own (numerical trials on every telling case, the contract without the
deletion of single kernels), and so is the clock: kernels of one group and the reference alternate
in random order on fresh inputs. Other than in a verdict, a foreign process spoils nothing: with
one thread, a time is the processor's time of the call, which leaves out waiting for a core, and
the load of others is written down beside it. Each round goes through all plans in another order,
so that slow drift hits all of them alike, and each time in a fresh process.
"""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from evokernel.attempt import Backend, Candidate
from evokernel.bench import HARNESS, Say, probes, profiler, provenance, silent, timing
from evokernel.bench.device import DeviceFacts
from evokernel.bench.disturbance import Disturbance
from evokernel.bench.messages import Faulted
from evokernel.bench.opponents import Opponents
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.provenance import Subject as Accused
from evokernel.bench.series import Block, Series
from evokernel.bench.session import Session
from evokernel.bench.trials import Trials
from evokernel.config import BenchConfig
from evokernel.errors import WorkerError
from evokernel.evaluation import Status
from evokernel.opgraph import capture
from evokernel.profile import Profile
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.template import Template
from evokernel.study.recording import DIGITS, Point, Subject, Times
from evokernel.study.space import plans, thinned
from evokernel.study.tape import Tape
from evokernel.task import Task

Part = Literal["check", "time"]
PARTS: tuple[Part, ...] = ("check", "time")
EAGER = "eager"
GROUP = 5
"""Plans that are timed side by side with the reference."""
PACE = Pace(
    limit_s=1.2, least=8, tight=0.0, quiet_s=0.0, is_strict=False, kept=1, warmups=1, watched=12
)
"""One round of a group."""
MOST_ROUNDS = 6
"""Processes of one plan after which it stays as it is, be it complete or not."""
CLOSE, CLOSE_ROUNDS = 1.3, 9
"""Plans that take at most so many times the fastest one's time are timed in so many processes:
which of them is the best is what has to be known."""
SINGLE = ("threads", "schedule")
"""Choices that mean nothing with one thread."""


def subject_of(
    name: str, sizes: dict[str, int], backend: Backend, threads: int, limit: int
) -> Subject:
    """Declare the space of a task: what `record` will measure."""
    task = _sized(Task.load(name), sizes)
    graph = capture(task.program())
    template = Template(task, graph, backend)
    plain = SINGLE if threads == 1 and backend == "cpp" else ()
    return Subject(
        name=name,
        sizes=sizes,
        source=task.source,
        graph=graph.model_dump(mode="json"),
        backend=backend,
        threads=threads,
        space=thinned(template.space, template.promise, limit, plain),
        plain=plain,
        limit=limit,
    )


def record(
    subject: Subject,
    path: Path,
    config: BenchConfig,
    seconds: float,
    say: Say = silent,
    parts: Collection[Part] = PARTS,
) -> Tape:
    """Go on with a recording until it is complete or the time is up.

    Args:
        subject: What to record.
        path: The file that it grows in.
        config: How kernels are checked; `threads` follows the subject.
        seconds: Wall seconds after which nothing further is begun.
        say: Told how far it is.
        parts: What to do now: build and check plans, time those that passed, or both.
    """
    tape = Tape(path, subject)
    config = config.model_copy(
        update={"threads": subject.threads, "measurement": "quick", "baselines": (EAGER,)}
    )
    if not _is_needed(tape, subject, parts):
        return tape
    end = time.monotonic() + seconds
    recorder = _Recorder(tape, config)
    try:
        if "check" in parts:
            recorder.check(end, say)
        if "time" in parts:
            recorder.time(end, say)
    finally:
        recorder.close()
    return tape


def _is_needed(tape: Tape, subject: Subject, parts: Collection[Part]) -> bool:
    is_unchecked = any(plan.line not in tape.points for plan in plans(subject.space))
    return ("check" in parts and is_unchecked) or ("time" in parts and bool(_unserved(tape)))


def _unserved(tape: Tape) -> list[Point]:
    """Feasible plans that still need times."""
    points = [point for point in tape.points.values() if point.is_feasible]
    known = [ms for point in points if (ms := point.typical_ms) is not None]
    limit = CLOSE * min(known, default=0.0)
    if sum(ms <= limit for ms in known) < 2:
        limit = 0.0  # the best one is known already
    return [point for point in points if not _is_served(point, limit)]


def _is_served(point: Point, limit_ms: float) -> bool:
    is_close = point.typical_ms is not None and point.typical_ms <= limit_ms
    if len(point.times) >= (CLOSE_ROUNDS if is_close else MOST_ROUNDS):
        return True
    return point.is_complete and not is_close


class _Recorder:
    """The measuring processes of one subject."""

    def __init__(self, tape: Tape, config: BenchConfig) -> None:
        self._tape = tape
        subject = tape.subject
        task = Task.from_source(subject.source, name=subject.name)
        self._session = Session(task, config, silent, subject.backend)
        self._opponents = Opponents(self._session)
        self._template = Template(task, capture(task.program()), subject.backend)
        self._rng = random.Random(time.time_ns())
        self._plans = tuple(plans(subject.space))
        tape.about(self._facts())

    def close(self) -> None:
        self._session.close()

    def check(self, end: float, say: Say) -> None:
        """Build and check what was not yet."""
        for number, plan in enumerate(self._plans, 1):
            if plan.line in self._tape.points:
                continue
            if time.monotonic() > end:
                return
            point = self._judged(plan)
            if point is not None:
                self._tape.judged(point)
                say(f"{self._tape.subject.name} {number}/{len(self._plans)}: {point.status}")

    def time(self, end: float, say: Say) -> None:
        """Time what passed, round by round."""
        while (wanted := _unserved(self._tape)) and time.monotonic() < end:
            self._rng.shuffle(wanted)
            wanted.sort(key=lambda point: len(point.times))
            for first in range(0, len(wanted), GROUP):
                if time.monotonic() > end:
                    return
                self._group(wanted[first : first + GROUP])
            rounds = min(len(self._tape.points[p.plan.line].times) for p in wanted)
            say(f"{self._tape.subject.name}: {len(wanted)} plans timed, {rounds} processes each")

    def _judged(self, plan: Plan) -> Point | None:
        """The verdict on a plan; None where the machine was at fault."""
        candidate = self._template.candidate(plan)
        techniques = self._template.space.techniques(plan)
        began = time.monotonic()
        digest: Profile | None = None
        try:
            status, reason = self._checked(candidate)
            if status is Status.PASSED:
                digest = self._digest(candidate)
        except Faulted as error:
            fault = error.fault
            status, reason = fault.status, f"in `{fault.phase}`: {fault.reason}"
        except WorkerError:
            return None
        if not status.is_charged:
            return None
        return Point(
            plan=plan,
            candidate=candidate.sha,
            status=status,
            reason=reason,
            bound_by=digest.bound_by if digest else "unknown",
            limits=digest.limits if digest else (),
            techniques=techniques,
            seconds=round(time.monotonic() - began, 2),
        )

    def _checked(self, candidate: Candidate) -> tuple[Status, str]:
        session = self._session
        worker, loaded = session.fork(candidate)
        with worker:
            trials = Trials(session.oracle, session.telling_cases, repeats=1)
            failure = trials.before(worker)
            if failure is None:
                accused = Accused.of(session, candidate, worker, loaded, trials)
                _, failure = provenance.examine(accused, thorough=False)
        return (failure.status, failure.reason) if failure else (Status.PASSED, "")

    def _digest(self, candidate: Candidate) -> Profile:
        session = self._session
        assert isinstance(session.device, DeviceFacts)
        evidence = probes.examine(session, candidate)
        return profiler.digest(1e3 * evidence.call_s, session.graph, session.device, evidence)

    def _group(self, points: Sequence[Point]) -> None:
        """Time some plans side by side with the reference, each in a fresh process."""
        session = self._session
        with ExitStack() as stack:
            sides = {p.plan.line: w for p in points if (w := self._timed(p, stack)) is not None}
            others = {EAGER: self._opponents.workers()[EAGER]}
            rivals = {line: (EAGER,) for line in sides}
            try:
                with session.lock():
                    series = timing.measure(
                        sides | others,
                        session.oracle,
                        PACE,
                        session.stage(),
                        session.rng,
                        rivals,
                    )
            except (Faulted, WorkerError):
                return
        for line in sides:
            self._keep(line, series)

    def _timed(self, point: Point, stack: ExitStack) -> Worker | None:
        try:
            worker, _ = self._session.fork(self._template.candidate(point.plan))
        except (Faulted, WorkerError):
            return None
        stack.enter_context(worker)
        self._session.put_timed(worker)
        return worker

    def _keep(self, line: str, series: Series) -> None:
        blocks = series.counted[1:]  # in the first one, memory is touched for the first time
        mine, eager = (_clean_ms(blocks, side, self._session.threads) for side in (line, EAGER))
        self._tape.timed(
            line,
            Times(
                times_ms=mine,
                eager_ms=eager,
                dropped=len(blocks) - len(mine),
                foreign=round(_foreign_cores(series), 2),
            ),
        )

    def _facts(self) -> dict[str, str]:
        session = self._session
        return {
            "device": session.device.fingerprint,
            "machine": session.device.in_words(),
            "harness": HARNESS,
            "tools": f"{session.compiler.identity()}, torch {version('torch')}, "
            f"python {platform.python_version()}",
            "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        }


def _foreign_cores(series: Series) -> float:
    """Cores that other programs kept busy; 0 where that is not known, as on a GPU."""
    return series.noise.foreign_cores if isinstance(series.noise, Disturbance) else 0.0


def _clean_ms(blocks: Sequence[Block], side: str, threads: int) -> tuple[float, ...]:
    """Times of a side's calls; with one thread, without what it waited for a core.

    A call that waited longer than it ran is left out: others had the caches meanwhile.
    """
    turns = [block.turns[side].repetition for block in blocks]
    if threads > 1:
        return tuple(_ms(b.seconds[side]) for b in blocks if b.clean[side])
    return tuple(
        _ms(min(turn.nanoseconds, turn.cpu_ns) * 1e-9 / turn.calls)
        for turn in turns
        if turn.cpu_ns > turn.nanoseconds / 2
    )


def _ms(seconds: float) -> float:
    return float(f"{1e3 * seconds:.{DIGITS}g}")


def _sized(task: Task, sizes: dict[str, int]) -> Task:
    """The task with other sizes."""
    import ast

    from evokernel.task.constants import with_constants

    if not sizes:
        return task
    source = with_constants(task.source, ast.parse(task.source), sizes, f"`{task.name}`")
    return Task.from_source(source, name=task.name)
