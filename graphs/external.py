"""Owns the proposer whose candidates come from outside: the workflow stops where one is wanted."""

from typing import Any

from langgraph.types import interrupt
from pydantic import ValidationError

from evokernel.attempt import Backend, Candidate, Fault, Proposal, Usage
from evokernel.errors import SessionError
from evokernel.frozen import Frozen
from evokernel.opgraph import OpGraph
from evokernel.proposers import EXTERNAL, Exhausted, Request
from evokernel.task import Task


class Answer(Frozen):
    """What an author outside hands over for one request."""

    source: str = ""
    """A Python module with `ModelNew`; empty with a `fault`."""
    techniques: tuple[str, ...] = ()
    """Names of the techniques it applies, from the catalogue where they stand there."""
    rationale: str = ""
    """Why, in a sentence or two."""
    used: tuple[str, ...] = ()
    """Ids of the shown experiences that it used."""
    prompt: str = ""
    """What the author was shown, for the record."""
    reply: str = ""
    """What the author answered, for the record."""
    fault: Fault | None = None
    """Why there is nothing to judge; the attempt ends as `invalid_source` and counts."""
    usage: Usage = Usage()


class ExternalProposer:
    """Interrupts the workflow; what it is resumed with is the candidate.

    Resume it with a text (the source), with the fields of an `Answer`, or with None where the
    author has nothing new for this request.
    """

    name = EXTERNAL

    def __init__(self) -> None:
        self.asked: Request | None = None
        """The last request, for an author in this process."""

    def check(self, task: Task, graph: OpGraph | None, backend: Backend) -> None:
        """Serve every task."""

    def propose(self, request: Request) -> Proposal:
        """Wait for an author.

        Raises:
            Exhausted: it has nothing new.
            SessionError: the answer is none.
        """
        self.asked = request
        given = interrupt(summary(request))
        self.asked = None
        if given in (None, {}, {"source": None}):
            raise Exhausted("the author has nothing new")
        return _proposal(request, understood(given))


def understood(given: Any) -> Answer:
    """An answer as people and programs give it: a text, or the fields of an `Answer`.

    Raises:
        SessionError: something else, or a text that is no Unicode.
    """
    try:
        answer = Answer(source=given) if isinstance(given, str) else Answer.model_validate(given)
        answer.source.encode()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the answer"
        raise SessionError(
            f"`{place}` of the answer cannot be used: {first['msg']}; expected the source as a "
            f"text, or a dictionary with {', '.join(Answer.model_fields)}"
        ) from error
    except UnicodeEncodeError as error:
        raise SessionError(f"the source cannot be written as UTF-8: {error.reason}") from error
    if not answer.source and answer.fault is None:
        raise SessionError(
            "the answer holds no source; expected a Python file with `ModelNew`, a `fault` that "
            "says why there is none, or None to be asked something else"
        )
    return answer


def summary(request: Request) -> dict[str, Any]:
    """What waits for an answer, as plain values: enough to write a kernel from."""
    return {
        "kind": "candidate",
        "step": request.step,
        "stage": request.stage.value,
        "backend": request.backend,
        "task": request.task.name,
        "reference": request.task.source,
        "contract": request.contract,
        "baselines_ms": dict(request.baselines),
        "machine": list(request.machine),
        "parents": [
            {
                "source": parent.proposal.candidate.source,
                "status": parent.evaluation.status.value,
                "reason": parent.evaluation.reason,
                "median_ms": parent.median_ms,
            }
            for parent in request.parents
        ],
        "shown": [experience.id for experience in request.shown],
    }


def _proposal(request: Request, answer: Answer) -> Proposal:
    before = request.parents[0].proposal.techniques if request.parents else ()
    fault = answer.fault
    source = f"# no candidate: {fault.reason}\n" if fault else answer.source
    if fault:  # what fails twice in the same way was asked twice
        source += f"# {request.step}\n"
    return Proposal(
        candidate=Candidate(source=source, backend=request.backend),
        stage=request.stage,
        parents=tuple(parent.proposal.candidate.sha for parent in request.parents),
        techniques=() if fault else answer.techniques,
        changed=() if fault else tuple(sorted({*before} ^ {*answer.techniques})),
        used=tuple(id for id in answer.used if id in {each.id for each in request.shown}),
        rationale=answer.rationale,
        prompt=answer.prompt,
        reply=answer.reply,
        fault=fault,
        usage=answer.usage,
    )
