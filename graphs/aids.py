"""Owns `StepAids`: what one step offers an author that works with tools."""

from evokernel.attempt import Candidate
from evokernel.bench import Evaluator, HasQuick
from evokernel.evaluation import Evaluation
from evokernel.graphs.selection import Plan
from evokernel.graphs.state import Services
from evokernel.memory.experience import Entry, Experience, ExperienceStatus

SEARCHED = 200
"""Experiences that a search by words may find before those are left out that may not be shown."""


class StepAids:
    """Implements `Aids` for one step of a run.

    It is used while the proposer is waited for, so an interrupt may come up in it at any time.
    """

    def __init__(self, services: Services, plan: Plan) -> None:
        self._services = services
        self._plan = plan

    def compile(self, candidate: Candidate) -> Evaluation | None:
        """Build every kernel."""
        return self._judge().compile(candidate)

    def evaluate(self, candidate: Candidate) -> Evaluation:
        """Judge it by the quick profile; what the machine spoils is judged again."""
        judge = self._judge()
        evaluation = judge.verify(candidate)
        for _ in range(self._services.config.budget.retries):
            if evaluation.status.is_charged:
                break
            evaluation = judge.verify(candidate)
        return evaluation

    def profile(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """Add what bounds it."""
        return self._judge().profile(candidate, evaluation)

    def recall(self, words: str, most: int) -> tuple[Experience, ...]:
        """Search by words among what retrieval, too, might show to this step."""
        hits = self._services.memory.search(words, limit=SEARCHED)
        return tuple(h.entry.experience for h in hits if self._may_see(h.entry))[:most]

    def read(self, id: str) -> Experience | None:
        """One experience, if this step may see it."""
        found = (e for e in self._services.memory.list() if e.experience.id == id)
        entry = next(found, None)
        return entry.experience if entry is not None and self._may_see(entry) else None

    def tell(self, tool: str, outcome: str, seconds: float) -> None:
        """An event of the run."""
        number = self._plan.number
        event = {"tool": tool, "outcome": outcome, "seconds": round(seconds, 3)}
        self._services.record.event("tool", number=number, **event)

    def _judge(self) -> Evaluator:
        evaluator = self._services.evaluator
        return evaluator.quick() if isinstance(evaluator, HasQuick) else evaluator

    def _may_see(self, entry: Entry) -> bool:
        """The filters of retrieval: policy, held-out tasks, language, status."""
        experience, config = entry.experience, self._services.config
        if config.memory.policy == "none" or experience.fingerprint in config.memory.holdout:
            return False
        is_own = experience.origin.run == self._services.record.id
        allowed = {ExperienceStatus.ACTIVE} | ({ExperienceStatus.QUARANTINE} if is_own else set())
        return experience.backend in {config.backend, "neutral"} and entry.status in allowed
