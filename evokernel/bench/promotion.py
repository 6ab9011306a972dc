"""Owns the second look: parent and child measured again together, in fresh processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby

from evokernel.attempt import Candidate
from evokernel.bench import Claim, race, timing
from evokernel.bench.messages import Faulted
from evokernel.bench.oracle import Case
from evokernel.bench.pool import Worker
from evokernel.bench.session import Session
from evokernel.bench.timing import CANDIDATE, Pace, Series
from evokernel.bench.trials import Failure, Trials
from evokernel.errors import WorkerError
from evokernel.evaluation import Interval, Promotion, Status

PROCESSES = 3
"""Fresh processes of each side."""
SPARE = 2
"""More of them that may replace those which the machine spoiled."""
LIMIT_S = 0.8
"""Seconds of blocks in each process: what still moves a ratio of several processes is the
difference between them, not the noise within one."""
EAGER = "eager"


def promote(session: Session, claims: tuple[Claim, ...]) -> tuple[Promotion, ...]:
    """Answer each claim; a kernel's claims that follow each other share their processes.

    A `kernel` is compared with eager, an `edit` with its parent: the claim holds when the child is
    right again and its ratio, a gain or a loss, was measured. A `fix` holds when the child passes
    every check again. A claim that the machine spoiled gets no answer, and stays open.
    """
    answers: list[Promotion] = []
    for _, group in groupby(claims, key=lambda claim: claim.candidate.sha):
        answers += _SecondLook(session, tuple(group)).answers()
    return tuple(answers)


def pair(session: Session, first: Candidate | None, second: Candidate, pace: Pace) -> Series:
    """Time two candidates, each in one fresh process; None is the reference, run eagerly.

    Returns:
        A series with `second` as the candidate and `first` as `opponent`.

    Raises:
        Faulted: One of them failed.
    """
    with ExitStack() as stack:
        sides = {CANDIDATE: stack.enter_context(_timed(session, second))}
        sides["opponent"] = stack.enter_context(_timed(session, first))
        return _measure(session, sides, pace)


class _SecondLook:
    """Fresh processes for one child, its parents and eager, as its claims ask for."""

    def __init__(self, session: Session, claims: tuple[Claim, ...]) -> None:
        self._session = session
        self._claims = claims
        self._child = claims[0].candidate
        self._timed = [claim for claim in claims if claim.kind != "fix"]
        self._series: list[Series] = []
        self._failure: Failure | None = None

    def answers(self) -> list[Promotion]:
        self._look()
        if self._failure is not None and not self._failure.status.is_charged:
            return []
        return [self._answer(claim) for claim in self._claims]

    def _look(self) -> None:
        """Check and measure in process after process; the first real failure ends it."""
        spoiled = 0
        wanted = PROCESSES if self._timed else 1
        while len(self._series) < wanted and self._failure is None:
            number = len(self._series) + spoiled
            try:
                failure = self._process(number)
            except Faulted as error:
                failure = Failure(error.fault.status, error.fault.reason)
            except WorkerError as error:
                failure = Failure(Status.INFRASTRUCTURE, str(error))
            if failure is None:
                continue
            if failure.status.is_charged or spoiled >= SPARE:
                self._failure = failure
            spoiled += 1

    def _process(self, number: int) -> Failure | None:
        session = self._session
        with ExitStack() as stack:
            child = stack.enter_context(_timed(session, self._child))
            trials = self._trials(number)
            if failure := trials.before(child):
                return failure
            sides = {CANDIDATE: child}
            for claim in self._timed:
                try:
                    sides[_opponent(claim)] = stack.enter_context(_timed(session, claim.parent))
                except Faulted as error:
                    raise WorkerError(f"the parent failed to load again: {error}") from error
            series = Series()
            if self._timed:
                pace = _brief(session.pace)
                series = _measure(session, sides, pace)
                if failure := race.spoiled(series, pace):
                    return failure
            if failure := trials.after(child, series.kept):
                return failure
            self._series.append(series)
        return None

    def _trials(self, number: int) -> Trials:
        """All cases for the first process, fresh normal values alone for the others."""
        session = self._session
        normal = session.cases[0]
        fresh = (Case(normal.workload, "normal", draw=2 + number),)
        return Trials(session.oracle, fresh if number else session.cases, repeats=1)

    def _answer(self, claim: Claim) -> Promotion:
        measured = self._failure is None and claim.kind != "fix"
        return Promotion.model_validate(
            {
                "candidate": claim.candidate.sha,
                "parent": claim.parent.sha if claim.parent else None,
                "claim": claim.kind,
                "holds": self._failure is None,
                "ratio": self._ratio(claim) if measured else None,
                "processes": len(self._series),
                "reason": self._failure.reason if self._failure else "",
            }
        )

    def _ratio(self, claim: Claim) -> Interval:
        is_tolerant = race.is_tolerant(self._series, self._session.pace)
        return race.interval(self._series, _opponent(claim), is_tolerant)


def _brief(pace: Pace) -> Pace:
    return replace(pace, limit_s=min(pace.limit_s, LIMIT_S))


def _opponent(claim: Claim) -> str:
    return claim.parent.sha if claim.parent else EAGER


@contextmanager
def _timed(session: Session, candidate: Candidate | None) -> Iterator[Worker]:
    """A fresh worker of a candidate, or of the reference, with the timed inputs."""
    worker, _ = session.fork(candidate) if candidate else session.fork_reference("eager")
    with worker:
        session.put_timed(worker)
        yield worker


def _measure(session: Session, sides: dict[str, Worker], pace: Pace) -> Series:
    with session.lock():
        return timing.measure(sides, session.oracle, pace, session.device.flush_bytes, session.rng)
