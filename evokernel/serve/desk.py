"""Owns the process in which one run of an author outside is carried out: the desk.

It reads one line of JSON per call and answers with lines of JSON. It ends with its input, whatever
it is doing then: its workers are killed, its run stays and can be gone on with. So a call is
cancelled by hanging up, and nothing survives the server.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO, TypeVar

from evokernel.answers import answers
from evokernel.config import RunConfig
from evokernel.errors import EvoKernelError
from evokernel.external import ExternalRun, Judged, Submission
from evokernel.frozen import Frozen
from evokernel.serve import telling, told
from evokernel.serve.asked import Evaluate, Recall
from evokernel.serve.refusal import BadArgument, refusal_of
from evokernel.task import Task
from evokernel.task.constants import nearest

HUNG_UP = 3
"""Exit status of a desk whose caller went away in the middle of a call."""


class DeskOrder(Frozen):
    """The first line: which run."""

    author: str
    """Who writes the candidates, for the record."""
    path: Path | None = None
    """Folder of a run to go on with; None begins a new one."""
    task: Task | None = None
    """What a new one is for."""
    config: RunConfig | None = None
    """How a new one judges."""


class Call(Frozen):
    """Any later line."""

    call: str
    """`evaluate`, `recall` or `confirm`."""
    arguments: dict[str, Any] = {}


def main() -> NoReturn:
    """Serve until the input ends."""
    answers = _quiet_stdout()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    _end_with_input(lines)
    code = 0
    try:
        _serve(lines, answers)
    except KeyboardInterrupt:
        code = HUNG_UP
    sys.stderr.flush()
    os._exit(code)  # the thread that reads may be blocked for ever


def _quiet_stdout() -> TextIO:
    """Keep standard output to ourselves; what any library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _end_with_input(lines: "queue.SimpleQueue[str]") -> None:
    """Read on a thread, so that a caller who hangs up interrupts whatever is going on."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # cleaning up is not interrupted again
        raise KeyboardInterrupt

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        lines.put("")  # should a library swallow the interrupt, this call is the last one
        signal.pthread_kill(main_thread, signal.SIGTERM)

    main_thread = threading.get_ident()
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which hangs up
    threading.Thread(target=read, daemon=True).start()


def _serve(lines: "queue.SimpleQueue[str]", answers: TextIO) -> None:
    def answer(**kinds: Any) -> None:
        answers.write(json.dumps(kinds) + "\n")
        answers.flush()

    def say(text: str) -> None:
        answer(progress=text)

    order = DeskOrder.model_validate_json(lines.get())
    run = _answered(lambda: _opened(order, say), answer, lambda run: {"run": str(run.record.path)})
    if run is None:
        return
    with run:
        desk = Desk(run)
        while True:
            if not (line := lines.get()):
                return
            call = Call.model_validate_json(line)
            _answered(partial(desk.carry_out, call), answer, dict)


Done = TypeVar("Done")


def _answered(
    work: Callable[[], Done],
    answer: Callable[..., None],
    written: Callable[[Done], dict[str, Any]],
) -> Done | None:
    """Do something and tell what came of it, or why it could not be done."""
    try:
        done = work()
    except Exception as error:
        if not isinstance(error, EvoKernelError | ValueError):
            sys.excepthook(type(error), error, error.__traceback__)
        answer(refusal=refusal_of(error).model_dump(mode="json"))
        return None
    answer(result=written(done))
    return done


def _opened(order: DeskOrder, say: Callable[[str], None]) -> ExternalRun:
    if order.path is not None:
        return ExternalRun.resume(order.path, order.author, say=say)
    assert order.task is not None
    assert order.config is not None
    return ExternalRun.begin(order.task, order.config, order.author, say=say)


class Desk:
    """Carries calls out on one run."""

    def __init__(self, run: ExternalRun) -> None:
        self._run = run
        self._has_guided = False

    def carry_out(self, call: Call) -> dict[str, Any]:
        """One call by its name, its answer as plain values."""
        match call.call:
            case "evaluate":
                answer: told.Told = self._evaluate(Evaluate.model_validate(call.arguments))
            case "recall":
                answer = self._recall(Recall.model_validate(call.arguments))
            case "confirm":
                self._run.confirm()
                return {}
            case other:
                raise EvoKernelError(f"a desk knows no call `{other}`")
        return answer.model_dump(mode="json")

    def _recall(self, asked: Recall) -> told.Recalled:
        retrieval = self._run.recall(asked.parent)
        self._run.know_machine()
        prompt = self._run.prompt(self._run.request(asked.parent, retrieval))
        is_first, self._has_guided = not self._has_guided, True
        return told.Recalled(
            run=self._run.record.id,
            stage=retrieval.stage,
            brief=prompt.user if prompt else "",
            guide=prompt.system if prompt and is_first else "",
            experiences=tuple(map(telling.shown, retrieval.experiences)),
        )

    def _evaluate(self, asked: Evaluate) -> told.Evaluated:
        submission = Submission(
            source=asked.source,
            parent=asked.parent,
            techniques=known_techniques(asked.techniques),
            rationale=asked.note,
            used=asked.used,
        )
        return self._told(self._run.judge(submission))

    def _told(self, judged: Judged) -> told.Evaluated:
        attempt, evaluation = judged.attempt, judged.attempt.evaluation
        proposal = attempt.proposal
        learned = [
            entry
            for entry in self._run.memory.list(run=self._run.record.id)
            if entry.experience.origin.step == attempt.step
        ]
        return told.Evaluated(
            run=self._run.record.id,
            attempt=judged.number,
            outcome=evaluation.outcome,
            status=evaluation.status,
            reason=evaluation.reason,
            answers=answers(evaluation),
            median_ms=attempt.median_ms,
            speedups=telling.ratios(evaluation),
            diagnostics=telling.messages(evaluation),
            mismatches=telling.mismatches(evaluation),
            log=telling.log_of(judged),
            profile=telling.digest(evaluation),
            parent=self._number_of(proposal.parents[0]) if proposal.parents else None,
            repeats=judged.repeats,
            tuned_source=proposal.candidate.source if proposal.tuning else None,
            is_best=judged.is_best,
            reward=attempt.reward,
            learned=tuple(map(telling.kept, learned)),
            seconds=evaluation.seconds,
        )

    def _number_of(self, sha: str) -> int | None:
        numbers = (a.number for a in self._run.attempts() if a.proposal.candidate.sha == sha)
        return next(numbers, None)


def known_techniques(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names as the catalogue writes them.

    Raises:
        BadArgument: one that it does not have; a table of techniques is worth something only while
            a technique has one name.
    """
    from evokernel.proposers.techniques import catalogue

    known = catalogue()
    plain = tuple(dict.fromkeys("-".join(n.lower().replace("_", " ").split()) for n in names))
    for name in plain:
        if name not in known:
            raise BadArgument(
                "techniques",
                f"there is no technique `{name}`.{nearest(name, tuple(known))}",
                "names of the resource `evokernel://techniques`",
                "Leave it out or name the nearest one; say in `note` what you did.",
            )
    return plain
