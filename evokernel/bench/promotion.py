"""Owns the second look: parents and children measured again together, in fresh processes.

In each round some kernels stand side by side with their parents and eager, each in one fresh
process, so that what they are compared with is started and timed once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from evokernel.attempt import Candidate
from evokernel.bench import TOGETHER, Claim, race, timing
from evokernel.bench.gpu import memcheck
from evokernel.bench.gpu.sanitizer import Checked
from evokernel.bench.messages import Faulted
from evokernel.bench.oracle import Case
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.rounds import Rivals
from evokernel.bench.series import CANDIDATE, Series
from evokernel.bench.session import Session
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
    """Answer each claim; all claims of a kernel share its processes, several kernels a round.

    A `kernel` is compared with eager, an `edit` with its parent: the claim holds when the child is
    right again and its ratio, a gain or a loss, was measured. A `fix` holds when the child passes
    every check again. A claim that the machine spoiled gets no answer, and stays open.
    """
    kernels: dict[str, list[Claim]] = {}
    for claim in claims:
        kernels.setdefault(claim.candidate.sha, []).append(claim)
    children = [_Child(tuple(found)) for found in kernels.values()]
    if session.gpu is not None:
        _check_memory(session, children)
    # With large inputs each stands alone: every side holds its own.
    together = 1 if session.oracle.is_large else TOGETHER
    for first in range(0, len(children), together):
        _look(session, children[first : first + together])
    profile = {"measurement": session.config.measurement}
    answers = (answer for child in children for answer in child.answers(session.pace))
    return tuple(answer.model_copy(update=profile) for answer in answers)


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
        return _measure(session, sides, pace, {CANDIDATE: ("opponent",)})


@dataclass
class _Child:
    """One kernel, what is claimed of it, and what was seen of it so far."""

    claims: tuple[Claim, ...]
    series: list[Series] = field(default_factory=list)
    failure: Failure | None = None
    spoiled: int = 0
    checked: Checked | None = None
    """What compute-sanitizer says of it; None where it is not for a GPU."""

    @property
    def candidate(self) -> Candidate:
        return self.claims[0].candidate

    @property
    def compared(self) -> tuple[Claim, ...]:
        """The claims that say how fast it is."""
        return tuple(claim for claim in self.claims if claim.kind != "fix")

    @property
    def rivals(self) -> tuple[str, ...]:
        return tuple(map(_rival, self.compared))

    @property
    def sides(self) -> tuple[str, ...]:
        return (self.candidate.sha, *self.rivals)

    @property
    def is_open(self) -> bool:
        wanted = PROCESSES if self.compared else 1
        return self.failure is None and len(self.series) < wanted

    @property
    def number(self) -> int:
        """How many processes it has had."""
        return len(self.series) + self.spoiled

    def failed(self, failure: Failure) -> None:
        """A fault of its own ends its look, the machine's only when there are too many."""
        if failure.status.is_charged or self.spoiled >= SPARE:
            self.failure = failure
        self.spoiled += 1

    def add(self, series: Series, pace: Pace) -> None:
        """Keep what a process showed; the last one's is the time to compare the clocks of all.

        One process has too few blocks that are watched from outside to doubt anybody.
        """
        self.series.append(series)
        if self.is_open or not self.compared or series.way is not None:
            return
        blocks = [block for one in self.series for block in one.blocks]
        together = Series(blocks=blocks)
        self.failure = race.contradicted(
            together, self.rivals, self.candidate.sha, is_second=True, pace=pace
        )

    def answers(self, pace: Pace) -> list[Promotion]:
        if self.failure is not None and not self.failure.status.is_charged:
            return []
        return [self._answer(claim, pace) for claim in self.claims]

    def _answer(self, claim: Claim, pace: Pace) -> Promotion:
        measured = self.failure is None and claim.kind != "fix"
        return Promotion.model_validate(
            {
                "candidate": claim.candidate.sha,
                "parent": claim.parent.sha if claim.parent else None,
                "claim": claim.kind,
                "holds": self.failure is None,
                "ratio": self._ratio(_rival(claim), pace) if measured else None,
                "processes": len(self.series),
                "reason": self.failure.reason if self.failure else "",
                "log": self.checked.log if self.checked else "",
                "notes": self.checked.notes if self.checked else (),
            }
        )

    def _ratio(self, opponent: str, pace: Pace) -> Interval:
        is_tolerant = race.is_tolerant(self.series, pace, self.sides)
        return race.interval(self.series, opponent, is_tolerant, self.candidate.sha)


def _check_memory(session: Session, children: Sequence[_Child]) -> None:
    """Let no kernel pass that uses memory which is not its own, or whose threads race."""
    session.say("looking for faults of memory")
    try:
        found = memcheck.check(session, [child.candidate for child in children])
    except (Faulted, WorkerError) as error:
        if len(children) > 1:  # one of them must not leave the others unchecked
            for child in children:
                _check_memory(session, (child,))
            return
        note = f"not checked by compute-sanitizer: {error}"
        session.say(note)
        children[0].checked = Checked(notes=(note,))
        return
    for child, checked in zip(children, found, strict=True):
        child.checked = checked
        if checked.reason:
            child.failed(Failure(Status.CRASHED, checked.reason))


def _look(session: Session, children: Sequence[_Child]) -> None:
    """Round after round, until each has its processes or its first real failure."""
    while open_ones := [child for child in children if child.is_open]:
        _round(session, open_ones)


def _round(session: Session, children: Sequence[_Child]) -> None:
    """One fresh process of each; where one spoils it for all, each has a round of its own."""
    try:
        with ExitStack() as stack:
            _Round(session, children, stack).run()
    except (Faulted, WorkerError) as error:
        if len(children) == 1:
            children[0].failed(_failure(error))
            return
        for child in children:
            if child.is_open:
                _round(session, (child,))


class _Round:
    """The processes of one round."""

    def __init__(self, session: Session, children: Sequence[_Child], stack: ExitStack) -> None:
        self._session = session
        self._children = children
        self._stack = stack
        self._sides: dict[str, Worker] = {}

    def run(self) -> None:
        """Check each child, measure those that are right together, and check them again.

        Raises:
            Faulted: A child failed.
            WorkerError: A parent or eager failed.
        """
        tried = [(child, self._trials(child)) for child in self._children]
        right = [(child, trials) for child, trials in tried if trials is not None]
        timed = [child for child, _ in right if child.rivals]
        series = self._measure(timed) if timed else Series()
        pace = _brief(self._session.pace)
        for child, trials in right:
            sha = child.candidate.sha
            failure = race.spoiled(series, pace, child.sides) if child.rivals else None
            if failure is None and child.rivals:
                worker = self._sides[sha]
                with self._session.lock():
                    failure = race.disbelieved(
                        self._session, worker, series, child.rivals, sha, is_part=True
                    )
            if failure is None:
                failure = trials.after(self._sides[sha], series.kept(sha))
            if failure is None:
                child.add(series, self._session.pace)
            else:
                child.failed(failure)

    def _trials(self, child: _Child) -> Trials | None:
        """The trials that it passed; None where it failed.

        Only a `fix` runs every case again: that is what it claims.
        """
        session, sha = self._session, child.candidate.sha
        worker = self._stack.enter_context(_timed(session, child.candidate))
        normal = session.cases[0]
        fresh = (Case(normal.workload, "normal", draw=2 + child.number),)
        is_fix = any(claim.kind == "fix" for claim in child.claims)
        cases = session.cases if is_fix and not child.series else fresh
        trials = Trials(session.oracle, cases, repeats=1)
        if failure := trials.before(worker):
            child.failed(failure)
            return None
        self._sides[sha] = worker
        return trials

    def _measure(self, children: Sequence[_Child]) -> Series:
        for claim in (claim for child in children for claim in child.compared):
            if (name := _rival(claim)) not in self._sides:
                self._sides[name] = self._opponent(claim)
        rivals = {child.candidate.sha: child.rivals for child in children}
        wanted = {name for child in children for name in child.sides}
        sides = {name: worker for name, worker in self._sides.items() if name in wanted}
        return _measure(self._session, sides, _brief(self._session.pace), rivals)

    def _opponent(self, claim: Claim) -> Worker:
        try:
            return self._stack.enter_context(_timed(self._session, claim.parent))
        except Faulted as error:
            raise WorkerError(f"the parent failed to load again: {error}") from error


def _failure(error: Faulted | WorkerError) -> Failure:
    if isinstance(error, Faulted):
        return Failure(error.fault.status, error.fault.reason)
    return Failure(Status.INFRASTRUCTURE, str(error))


def _brief(pace: Pace) -> Pace:
    return replace(pace, limit_s=min(pace.limit_s, LIMIT_S))


def _rival(claim: Claim) -> str:
    return claim.parent.sha if claim.parent else EAGER


@contextmanager
def _timed(session: Session, candidate: Candidate | None) -> Iterator[Worker]:
    """A fresh worker of a candidate, or of the reference, with the timed inputs."""
    worker, _ = session.fork(candidate) if candidate else session.fork_reference("eager")
    with worker:
        session.put_timed(worker)
        yield worker


def _measure(session: Session, sides: dict[str, Worker], pace: Pace, rivals: Rivals) -> Series:
    stage = session.stage()
    with session.lock():
        return timing.measure(sides, session.oracle, pace, stage, session.rng, rivals)
