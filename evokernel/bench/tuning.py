"""Owns the search among a candidate's declared values: right first, then timed against the best.

The first combination is what stands in the source. Then come those that differ from the best so
far in the fewest parameters. Each runs in a process of its own, has to pass the numerical trials,
and is timed in alternation with the best: rejected after the first round that shows it slower, put
in its place only if its interval lies above 1. The winner's figures are no verdict: its source is
judged anew, like any other candidate's.
"""

from __future__ import annotations

import time
from itertools import islice

from evokernel.attempt import Backend, Candidate
from evokernel.bench import Heard, provenance, statistics, timing
from evokernel.bench.messages import Faulted, Loaded, Outcome
from evokernel.bench.oracle import Case
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.provenance import Subject
from evokernel.bench.race import BETWEEN
from evokernel.bench.series import CANDIDATE
from evokernel.bench.session import Session
from evokernel.bench.trials import Failure, Trials
from evokernel.bench.tries import KnownTries
from evokernel.errors import WorkerError
from evokernel.evaluation import Interval, Status
from evokernel.tuning import Space, Try, Tuning, Values, written

ROUND = Pace(limit_s=0.1, least=5, tight=0.02, quiet_s=0.0, is_strict=False, kept=1, warmups=1)
"""One round of a comparison."""
ROUNDS = 3
"""Rounds before two combinations count as equally fast."""
SURE = 2
"""Rounds before one may take the best one's place; to lose, one is enough."""
AHEAD = 2
"""Combinations whose kernels may be built while another is measured."""
BEST = "best"
"""The side against which a combination is timed."""


def search(
    session: Session, space: Space, backend: Backend, known: KnownTries, heard: Heard
) -> Tuning:
    """Try combinations until all are tried or the budget is spent.

    Args:
        session: Forks, judges, and says how much may be spent.
        space: What to choose from.
        backend: The language of the kernels.
        known: Answers of earlier searches.
        heard: Told of each try.
    """
    at_work = _Search(session, space, backend, known, heard)
    try:
        stopped = at_work.run()
    finally:
        at_work.close()
    return Tuning(
        source=space.source,
        parameters=space.parameters,
        chosen=at_work.best.values if at_work.best else space.first,
        tries=tuple(at_work.tries),
        combinations=space.size,
        stopped=stopped,
        seconds=round(sum(t.seconds for t in at_work.tries), 3),
        notes=space.notes,
    )


class _Search:
    """The tries so far, the best of them, and its worker."""

    def __init__(
        self, session: Session, space: Space, backend: Backend, known: KnownTries, heard: Heard
    ) -> None:
        self.tries: list[Try] = []
        self.best: Try | None = None
        self._session = session
        self._space = space
        self._backend = backend
        self._known = known
        self._heard = heard
        self._champion: Worker | None = None

    def run(self) -> str:
        """Try one combination after the other; why it ended, in words."""
        while not (reason := self._spent()):
            values = self._next()
            if values is None:
                return "every combination was tried"
            self._expect_after(values)
            try:
                found = self._answer(values)
            except WorkerError as error:
                return f"the measuring processes failed: {error}"
            self.tries.append(found)
            if found.is_best:
                self.best = found
            self._heard(found)
        return reason

    def close(self) -> None:
        """End the best one's worker."""
        if self._champion is not None:
            self._champion.kill()
        self._champion = None

    def _spent(self) -> str:
        budget = self._session.config.tune
        if len(self.tries) >= budget.tries:
            return f"all {budget.tries} tries are spent"
        if sum(t.seconds for t in self.tries) >= budget.seconds:
            return f"all {budget.seconds:g} s are spent"
        return ""

    def _next(self) -> Values | None:
        centre = self.best.values if self.best else self._space.first
        tried = [t.values for t in self.tries]
        return next((v for v in self._space.near(centre) if v not in tried), None)

    def _expect_after(self, values: Values) -> None:
        """What comes next unless this one wins: it may be built meanwhile."""
        centre = self.best.values if self.best else self._space.first
        tried = [*(t.values for t in self.tries), values]
        after = islice((v for v in self._space.near(centre) if v not in tried), AHEAD)
        self._session.expect(
            [Candidate(source=self._space.frozen(v), backend=self._backend) for v in after]
        )

    def _answer(self, values: Values) -> Try:
        """Look it up, or find it out and write it down."""
        candidate = Candidate(source=self._space.frozen(values), backend=self._backend)
        best = self.best.candidate if self.best else None
        found = self._known.find(candidate.sha, best)
        if found is None:
            self._session.say(f"tuning, try {len(self.tries) + 1}: {written(values)}")
            found = self._judged(values, candidate)
            self._known.keep(found)
        elif found.is_best:
            self.close()  # it is another one's worker now
        return found

    def _judged(self, values: Values, candidate: Candidate) -> Try:
        began = time.monotonic()
        found = Try(values=values, candidate=candidate.sha, status=Status.PASSED)
        try:
            worker, loaded = self._session.fork(candidate)
            try:
                found = self._checked(found, worker, loaded)
            finally:
                if worker is not self._champion:
                    worker.kill()
        except Faulted as error:
            fault = error.fault
            reason = f"in `{fault.phase}`: {fault.reason}"
            found = found.model_copy(update={"status": fault.status, "reason": reason})
        return found.model_copy(update={"seconds": round(time.monotonic() - began, 3)})

    def _checked(self, found: Try, worker: Worker, loaded: Loaded) -> Try:
        """Trials first; only what is right is timed."""
        session = self._session
        trials = Trials(session.oracle, session.telling_cases, repeats=1)
        ratio: Interval | None = None
        failure = trials.before(worker)
        if failure is None:
            candidate = Candidate(source=worker.spec.source, backend=self._backend)
            subject = Subject.of(session, candidate, worker, loaded, trials)
            _, failure = provenance.examine(subject, thorough=False)
        if failure is None:
            session.put_timed(worker)
            ratio, failure = self._raced(worker, trials) if self.best else (None, None)
        if failure is not None:
            return found.model_copy(update={"status": failure.status, "reason": failure.reason})
        against = self.best.candidate if self.best else None
        is_best = ratio is None or ratio.low > 1
        if is_best:
            self._crown(worker)
        return found.model_copy(update={"ratio": ratio, "against": against, "is_best": is_best})

    def _crown(self, worker: Worker) -> None:
        """From now on, others are timed against this one."""
        self.close()
        self._champion = worker

    def _raced(self, worker: Worker, trials: Trials) -> tuple[Interval, Failure | None]:
        """The best one's time over this one's; then the outputs of timed calls are checked."""
        session = self._session
        sides = {CANDIDATE: worker, BEST: self._opponent()}
        clean: list[tuple[float, float]] = []
        pairs: list[tuple[float, float]] = []
        kept: list[tuple[Case, Outcome]] = []
        with session.turn():
            for number in range(1, ROUNDS + 1):
                series = timing.measure(sides, session.oracle, ROUND, session.stage(), session.rng)
                kept += series.kept()
                clean += series.pairs(BEST)
                pairs += series.pairs(BEST, tolerant=True)
                enough = len(clean) >= number * ROUND.least
                ratio = statistics.ratio_interval([clean if enough else pairs], between=BETWEEN)
                if ratio.high < 1 or (ratio.low > 1 and number >= SURE):
                    break
        return ratio, trials.after(worker, kept)

    def _opponent(self) -> Worker:
        """The best one's worker, made anew where it was found in the cache or has died.

        Raises:
            WorkerError: It fails now, though it was right before.
        """
        assert self.best is not None
        if self._champion is None or not self._champion.is_alive:
            candidate = Candidate(
                source=self._space.frozen(self.best.values), backend=self._backend
            )
            try:
                self._champion, _ = self._session.fork(candidate)
            except Faulted as error:
                text = f"{written(self.best.values)} was right before and fails now: {error}"
                raise WorkerError(text) from error
            self._session.put_timed(self._champion)
        return self._champion
