"""Owns the check of a recorded result: a kernel judged and timed again in fresh processes.

It is the promotion's second look, with every baseline as an opponent instead of eager alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from evokernel.attempt import Candidate
from evokernel.bench import Say, provenance, race, silent, timing
from evokernel.bench.messages import Faulted
from evokernel.bench.opponents import Opponents
from evokernel.bench.oracle import Case
from evokernel.bench.promotion import PROCESSES, SPARE
from evokernel.bench.provenance import Subject
from evokernel.bench.series import CANDIDATE, Series
from evokernel.bench.session import Session
from evokernel.bench.trials import Failure, Trials
from evokernel.config import BenchConfig
from evokernel.errors import WorkerError
from evokernel.evaluation import Contract, Correctness, Status, Timing
from evokernel.frozen import Frozen
from evokernel.task import Task


class Recheck(Frozen):
    """What was found now."""

    status: Status
    """`passed`, the candidate's fault, or `infrastructure` where the machine was too busy."""
    reason: str = ""
    """One sentence; empty when passed."""
    correctness: Correctness | None = None
    contract: Contract | None = None
    timing: Timing | None = None
    """Of all processes together."""
    device: str
    """Fingerprint of the device."""
    notes: tuple[str, ...] = ()
    """What is missing or limited, e.g. a baseline that does not run here."""


def recheck(task: Task, config: BenchConfig, candidate: Candidate, say: Say = silent) -> Recheck:
    """Judge and time a candidate again, in three fresh processes.

    The first process runs every case of every input family, the others fresh normal values.

    Raises:
        TaskError: The reference fails.
        CompilerMissing: No compiler answers.
    """
    session = Session(task, config, say)
    try:
        return _Looks(session).at(candidate)
    finally:
        session.close()


class _Looks:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._opponents = Opponents(session)
        self._series: list[Series] = []
        self._first: Trials | None = None
        self._contract: Contract | None = None

    def at(self, candidate: Candidate) -> Recheck:
        failure, spoiled = None, 0
        while failure is None and len(self._series) < PROCESSES:
            failure = self._one(candidate, len(self._series) + spoiled)
            if failure and not failure.status.is_charged and spoiled < SPARE:
                failure, spoiled = None, spoiled + 1
        session = self._session
        is_timed = failure is None
        return Recheck(
            status=failure.status if failure else Status.PASSED,
            reason=failure.reason if failure else "",
            correctness=self._first.correctness() if self._first else None,
            contract=self._contract,
            timing=self._timing(self._series) if is_timed else None,
            device=session.device.fingerprint,
            notes=(*session.oracle.notes, *self._opponents.notes),
        )

    def _one(self, candidate: Candidate, number: int) -> Failure | None:
        """One fresh process; what is wrong with it, if anything."""
        self._session.say(f"judging in fresh process {number + 1}")
        try:
            return self._look(candidate, number)
        except Faulted as error:
            return Failure(error.fault.status, f"in `{error.fault.phase}`: {error.fault.reason}")
        except WorkerError as error:
            return Failure(Status.INFRASTRUCTURE, str(error))

    def _look(self, candidate: Candidate, number: int) -> Failure | None:
        session = self._session
        worker, loaded = session.fork(candidate)
        with worker:
            trials = self._trials(number)
            if failure := trials.before(worker):
                return failure
            if self._contract is None:
                subject = Subject.of(session, candidate, worker, loaded, trials)
                self._contract, failure = provenance.examine(subject)
                if failure:
                    return failure
            others = self._opponents.workers()
            session.put_timed(worker)
            sides = {CANDIDATE: worker, **others}
            with session.lock():
                stage = session.stage()
                series = timing.measure(sides, session.oracle, session.pace, stage, session.rng)
                failure = race.spoiled(series, session.pace) or race.disbelieved(
                    session, worker, series, tuple(others)
                )
            if failure:
                return failure
            if failure := trials.after(worker, series.kept()):
                return failure
        self._series.append(series)
        return None

    def _trials(self, number: int) -> Trials:
        if not self._series:  # also where the one before was lost half-way
            self._first = Trials(self._session.oracle, self._session.cases, repeats=1)
            return self._first
        normal = self._session.cases[0]
        fresh = (Case(normal.workload, "normal", draw=2 + number),)
        return Trials(self._session.oracle, fresh, repeats=1)

    def _timing(self, series: Sequence[Series]) -> Timing:
        return race.summarise(self._session, series, tuple(self._opponents.workers()), ())
