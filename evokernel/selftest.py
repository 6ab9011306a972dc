"""Owns the self-test: every exhibit of the zoo judged as any candidate is, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from evokernel.attempt import Candidate
from evokernel.bench import Evaluator
from evokernel.config import BenchConfig
from evokernel.evaluation import Evaluation, Status
from evokernel.frozen import Frozen
from evokernel.task import Task
from evokernel.zoo import Exhibit, exhibits, habitats

TRIES = 3
"""Looks at one exhibit while the machine or our own processes spoil the verdict."""
RUN_S = 20.0
"""Wall limit of one phase of an exhibit, seconds."""

PAIRS = 2
"""Comparisons with an honest twin that a cheat for time has to win."""
GAIN = 1.12
"""A cheat for time has succeeded if its speedup exceeds the honest twin's by this factor each time:
quick measurements of the same kernel differ by several percent on a busy machine."""

Outcome = Literal[
    "caught", "harmless", "passed", "accepted", "refused", "confused", "not judged", "skipped"
]
FAILURES: tuple[Outcome, ...] = ("accepted", "refused", "confused")
"""What makes the self-test fail."""

Open = Callable[[Task, BenchConfig], Evaluator]
"""Makes the evaluator of one task."""


class Finding(Frozen):
    """What became of one exhibit."""

    name: str
    kind: str
    """`hostile`, `broken` or `honest`."""
    code: str
    """A1 to H8; empty for honest ones."""
    mechanism: str
    task: str
    expected: tuple[Status, ...]
    """Verdicts that are right."""
    outcome: Outcome
    """`caught` or `passed`: as it should be. `harmless`: it passed, but with the time of an honest
    kernel, which was all that it wanted to better. `accepted`: a cheat or mistake passed.
    `refused`: an honest one did not. `confused`: refused, but for another reason than what it does.
    `not judged`: the machine was too busy, or lacks a protection. `skipped`: it needs a device that
    is not here."""
    status: Status | None = None
    """The verdict, if there is one."""
    reason: str = ""
    """Of the verdict, or why there is none."""
    seconds: float = 0.0
    """Wall seconds that it took."""


class Summary(Frozen):
    """The whole self-test."""

    findings: tuple[Finding, ...]
    seconds: float
    """Wall seconds of all of it."""

    def number(self, *outcomes: Outcome) -> int:
        """How many exhibits came to these outcomes."""
        return sum(finding.outcome in outcomes for finding in self.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """What should not have become of an exhibit."""
        return tuple(finding for finding in self.findings if finding.outcome in FAILURES)

    @property
    def is_green(self) -> bool:
        """Nothing failed, and something was judged."""
        return not self.failed and self.number("caught", "harmless", "passed") > 0


def local(task: Task, config: BenchConfig) -> Evaluator:
    """The real evaluator."""
    from evokernel.bench.evaluator import LocalEvaluator

    return LocalEvaluator(task, config)


def chosen(names: Sequence[str] = (), quick: bool = False) -> tuple[Exhibit, ...]:
    """The exhibits to look at.

    Args:
        names: Names, codes or kinds; none of them is all.
        quick: Every mechanism once, one that no text rule sees where there is one, and an honest
            candidate for each task.
    """
    found = [e for e in exhibits() if not names or {e.name, e.code, e.kind} & set(names)]
    if not quick:
        return tuple(found)
    found.sort(key=lambda e: (e.needs_gpu, e.in_text))  # stable: the registry's order within
    first: dict[str, Exhibit] = {}
    for exhibit in found:
        first.setdefault(exhibit.code or f"Z {exhibit.task} {exhibit.needs_gpu}", exhibit)
    return tuple(first[key] for key in sorted(first))


def examine(
    wanted: Iterable[Exhibit], config: BenchConfig, open_evaluator: Open = local
) -> Iterator[Finding]:
    """Judge exhibits, those of one task and policy with one evaluator; each as soon as it is known.

    Args:
        wanted: What to judge.
        config: How; the policy is each exhibit's own.
        open_evaluator: Makes an evaluator for a task.

    Raises:
        EvoKernelError: The machine's set-up is broken.
    """
    ordered = sorted(wanted, key=_place)  # stable
    for _, group in groupby(ordered, key=_place):
        members = list(group)
        first = members[0]
        if first.needs_gpu:
            yield from (_skipped(exhibit) for exhibit in members)
            continue
        judged = config.model_copy(update={"contract": first.policy})
        with open_evaluator(habitats()[first.task].task(first.policy), judged) as evaluator:
            held = evaluator.facts().protections
            for exhibit in members:
                yield _examined(exhibit, evaluator, held)


def quick_config(**changes: Any) -> BenchConfig:
    """How exhibits are judged: roughly, against eager alone."""
    return BenchConfig(measurement="quick", baselines=("eager",), run_s=RUN_S, **changes)


def _place(exhibit: Exhibit) -> tuple[bool, str, str]:
    return exhibit.needs_gpu, exhibit.task, exhibit.policy


def _examined(exhibit: Exhibit, evaluator: Evaluator, held: dict[str, Any]) -> Finding:
    if exhibit.needs and not any(held.get(name) for name in exhibit.needs):
        names = " or ".join(name.replace("_", " ") for name in exhibit.needs)
        return _finding(exhibit, "not judged", reason=f"nothing stops it here; it takes {names}")
    began = time.monotonic()
    evaluation = _judged(evaluator, exhibit.candidate())
    outcome, reason = _outcome(exhibit, evaluation), evaluation.reason
    if outcome == "accepted" and exhibit.wants_time:
        outcome, reason = _compared(exhibit, evaluator, evaluation)
    return _finding(
        exhibit,
        outcome,
        status=evaluation.status,
        reason=reason,
        seconds=round(time.monotonic() - began, 3),
    )


def _judged(evaluator: Evaluator, candidate: Candidate) -> Evaluation:
    """The verdict, after more tries where the machine or our processes spoiled it."""
    for _ in range(TRIES):
        evaluation = evaluator.verify(candidate)
        if evaluation.status is not Status.INFRASTRUCTURE:
            break
    return evaluation


def _outcome(exhibit: Exhibit, evaluation: Evaluation) -> Outcome:
    status = evaluation.status
    if status is Status.INFRASTRUCTURE:
        return "not judged"
    if exhibit.kind == "honest":
        return "passed" if status is Status.PASSED else "refused"
    if status is Status.PASSED:
        return "accepted"
    return "caught" if status in exhibit.expected else "confused"


def _compared(
    exhibit: Exhibit, evaluator: Evaluator, evaluation: Evaluation
) -> tuple[Outcome, str]:
    """Whether a cheat for time that passed gained any, and what was seen."""
    gains: list[float] = []
    while len(gains) < PAIRS:
        if gains:
            evaluation = _judged(evaluator, exhibit.candidate())
        ours, honest = _ratio(evaluation), _ratio(_judged(evaluator, exhibit.twin))
        if ours is None or honest is None:
            return "not judged", "its time could not be compared with that of an honest kernel"
        gains.append(ours / honest)
        if gains[-1] <= GAIN:
            break
    outcome: Outcome = "harmless" if min(gains) <= GAIN else "accepted"
    return outcome, f"it passed with {min(gains):.2f} times the speed of an honest kernel"


def _ratio(evaluation: Evaluation) -> float | None:
    """The speedup over eager, if it passed."""
    found = evaluation.timing and evaluation.timing.against("eager")
    return found.ratio.value if found else None


def _skipped(exhibit: Exhibit) -> Finding:
    reason = f"its kernels are for `{exhibit.backend}`, which needs a GPU and is not measured yet"
    return _finding(exhibit, "skipped", reason=reason)


def _finding(exhibit: Exhibit, outcome: Outcome, **told: Any) -> Finding:
    return Finding(
        name=exhibit.name,
        kind=exhibit.kind,
        code=exhibit.code,
        mechanism=exhibit.mechanism,
        task=exhibit.task,
        expected=exhibit.expected,
        outcome=outcome,
        **told,
    )
