"""Owns `ReplayEvaluator`: the verdicts of a recorded run, for a workflow that repeats it."""

from evokernel.attempt import Attempt, Candidate
from evokernel.bench import Baseline, Claim
from evokernel.errors import EvoKernelError
from evokernel.evaluation import Evaluation, Promotion
from evokernel.record import RunRecord
from evokernel.testing import CallLog, FakeEvaluator


class ReplayEvaluator(FakeEvaluator):
    """Judges a candidate as a recorded run did; one that is not in the recording is an error.

    Args:
        record: The recorded run.
        log: Notes every finished call, as with `FakeEvaluator`.
    """

    def __init__(self, record: RunRecord, log: CallLog | None = None) -> None:
        super().__init__(record.task(), log)
        self._record = record
        self._known = {a.proposal.candidate.sha: a for a in reversed(record.attempts())}

    def baselines(self) -> tuple[Baseline, ...]:
        """Those of the recording."""
        self.log.add("baselines")
        times = self._record.baselines() or {}
        return tuple(Baseline(name=n, median_ms=ms, seconds=0.0) for n, ms in times.items())

    def compile(self, candidate: Candidate) -> Evaluation | None:
        """The recorded failure, where it did not compile."""
        self.log.add("compile", candidate.sha)
        evaluation = self._attempt(candidate).evaluation
        return None if evaluation.compiles else evaluation

    def verify(self, candidate: Candidate) -> Evaluation:
        """The recorded verdict."""
        self.log.add("verify", candidate.sha)
        return self._attempt(candidate).evaluation.model_copy(update={"profile": None})

    def profile(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """With the recorded profile."""
        self.log.add("profile", candidate.sha)
        profile = self._attempt(candidate).evaluation.profile
        return evaluation.model_copy(update={"profile": profile})

    def promote(self, claims: tuple[Claim, ...]) -> tuple[Promotion, ...]:
        """The recorded answers; a claim that has none stays open."""
        answers = {(p.claim, p.candidate, p.parent): p for p in self._record.promotions()}
        keys = ((c.kind, c.candidate.sha, c.parent.sha if c.parent else None) for c in claims)
        return tuple(answers[key] for key in keys if key in answers)

    def _attempt(self, candidate: Candidate) -> Attempt:
        if candidate.sha not in self._known:
            raise EvoKernelError(f"the recording `{self._record.id}` has no `{candidate.sha}`")
        return self._known[candidate.sha]
