"""Attempts and requests that the tests of the prompts are made of."""

from evokernel.attempt import Attempt, Candidate, Proposal, Stage
from evokernel.evaluation import Evaluation, Status
from evokernel.proposers import Request
from evokernel.proposers.techniques import catalogue
from evokernel.testing import fake_evaluation, fake_graph, fake_kernel, fake_task

TASK = fake_task()
NOTES = [catalogue()["row-caching"], catalogue()["vectorized-math"]]


def attempt(number: int, source: str, stage: Stage = Stage.DRAFT, **more) -> Attempt:
    candidate = Candidate(source=source, backend="cpp")
    proposal = {"candidate": candidate, "stage": stage, "rationale": f"idea {number}"}
    evaluation = more.pop("evaluation", None) or fake_evaluation(candidate, TASK)
    return Attempt(
        number=number,
        step=f"r/{number}",
        trajectory=0,
        proposal=Proposal.model_validate(proposal | more),
        evaluation=evaluation,
    )


def failed(source: str, status: Status, **evidence) -> Evaluation:
    sha = Candidate(source=source, backend="cpp").sha
    return Evaluation(candidate=sha, task=TASK.sha, status=status, **evidence)


def request(stage: Stage = Stage.DRAFT, **more) -> Request:
    given = {"task": TASK, "graph": fake_graph(), "backend": "cpp", "step": "r/9", "seed": 1}
    return Request.model_validate({**given, "stage": stage, **more})


FAST = attempt(2, fake_kernel(2.0, techniques=("row-caching",)), techniques=("row-caching",))
