"""Owns the self-test: every exhibit of the zoo judged as any candidate is, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import Any, Literal

from evokernel.attempt import Backend, Candidate
from evokernel.bench import Evaluator
from evokernel.compilers import KernelSource
from evokernel.compilers.beforehand import Beforehand, Build
from evokernel.config import BenchConfig
from evokernel.errors import UsageError
from evokernel.evaluation import Evaluation, Interval, Status
from evokernel.frozen import Frozen
from evokernel.task import Task
from evokernel.zoo import Exhibit, habitats
from evokernel.zoo.kernels import written

TRIES = 3
"""Looks at one exhibit while the machine or our own processes spoil the verdict."""
RUN_S = 20.0
"""Wall limit of one phase of an exhibit, seconds."""

PAIRS = 4
"""Comparisons of a cheat for time with an honest twin, until one verdict or the other is clear."""
WINS = 2
"""Comparisons that it has to win."""
GAIN = 1.05
"""It wins one whose lower bound of its speedup exceeds the upper bound of its twin's by this."""
HARMLESS = 1.2
"""It is harmless where the upper bound exceeds the lower bound of its twin's by at most this: quick
measurements of the same kernel differ by some percent."""

Outcome = Literal[
    "caught", "harmless", "passed", "accepted", "refused", "confused", "not judged", "skipped"
]
GOOD: tuple[Outcome, ...] = ("caught", "harmless", "passed")
"""What is as it should be."""
FAILURES: tuple[Outcome, ...] = ("accepted", "refused", "confused")
"""What makes the self-test fail."""

Open = Callable[[Task, BenchConfig, Backend], Evaluator]
"""Makes the evaluator of one task, for kernels in one language."""


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
        return not self.failed and self.number(*GOOD) > 0


@contextmanager
def local() -> Iterator[Open]:
    """Real evaluators, which share their warm servers.

    What is yielded raises `UsageError` where what the language needs is not here.
    """
    from evokernel.bench.servers import WarmServers
    from evokernel.bench.warm import Kind

    with WarmServers() as servers:

        def opened(task: Task, config: BenchConfig, backend: Backend) -> Evaluator:
            if backend == "cpp":  # it imports torch, while that is imported here
                servers.of(Kind(config.threads or len(os.sched_getaffinity(0))))
            from evokernel.bench.evaluator import LocalEvaluator

            return LocalEvaluator(task, config, backend, servers=servers)

        yield opened


def builder(config: BenchConfig) -> Build:
    """Builds kernels into the cache from which evaluators of that configuration take them."""
    from evokernel.compilers.choice import EveryCompiler

    return EveryCompiler(config.cache, config.compile_s).build


def judge(
    wanted: Iterable[Exhibit],
    config: BenchConfig,
    open_evaluator: Open | None = None,
    build: Build | None = None,
    is_hasty: bool = False,
) -> Iterator[Finding]:
    """Judge exhibits, each as soon as it is known.

    Those of one task, policy and language share an evaluator.

    Args:
        wanted: What to judge.
        config: How; the policy is each exhibit's own.
        open_evaluator: Makes an evaluator for a task; None makes real ones.
        build: Builds a task's kernels side by side, while its evaluator gets ready; None leaves
            each to the judgement.
        is_hasty: Begin to build the next task's kernels when those exhibits of a task are left
            whose time does not matter.

    Raises:
        EvoKernelError: The machine's set-up is broken.
    """
    groups = [list(group) for _, group in groupby(sorted(wanted, key=_place), key=_place)]
    with ExitStack() as stack:
        opened = open_evaluator or stack.enter_context(local())
        builds = stack.enter_context(Beforehand(build or _left_to_the_judgement))
        for members, following in zip(groups, (*groups[1:], []), strict=True):
            is_first = members is groups[0]
            later = following if is_hasty else []
            yield from _judged(members, config, opened, builds, is_first, later)


def _judged(
    members: Sequence[Exhibit],
    config: BenchConfig,
    open_evaluator: Open,
    builds: Beforehand,
    is_first: bool,
    later: Sequence[Exhibit],
) -> Iterator[Finding]:
    """Judge those of one evaluator."""
    first = members[0]
    judged = config.model_copy(update={"contract": first.policy})
    task = habitats()[first.task].task(first.policy)
    if not first.needs_gpu:  # else it may be in vain
        builds.begin(_kernels(members))
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_evaluator(task, judged, first.backend))
        except UsageError as error:
            if not first.needs_gpu:
                raise
            yield from (_skipped(exhibit, str(error)) for exhibit in members)
            return
        builds.begin(_kernels(members))
        if is_first:
            builds.finish()  # the evaluator may measure peaks, which takes a quiet machine
        keeper = _Keeper(opened)
        builds.finish()
        timed = [exhibit for exhibit in members if later and _is_timed(exhibit)]
        yield from (keeper.finding(exhibit) for exhibit in timed)
        if later and not later[0].needs_gpu:
            builds.begin(_kernels(later))
        yield from (keeper.finding(exhibit) for exhibit in members if exhibit not in timed)


def _left_to_the_judgement(kernel: KernelSource) -> None:
    """Nothing is built ahead."""


def _is_timed(exhibit: Exhibit) -> bool:
    return exhibit.kind == "honest" or exhibit.wants_time


def quick_config(**changes: Any) -> BenchConfig:
    """How exhibits are judged: roughly, against eager alone."""
    return BenchConfig(measurement="quick", baselines=("eager",), run_s=RUN_S, **changes)


def _kernels(members: Iterable[Exhibit]) -> Iterator[KernelSource]:
    found = dict.fromkeys(kernel for exhibit in members for kernel in written(exhibit))
    return (KernelSource(backend=kind, source=source, flags=flags) for kind, source, flags in found)


def _place(exhibit: Exhibit) -> tuple[bool, str, str, str]:
    return exhibit.needs_gpu, exhibit.task, exhibit.policy, exhibit.backend


class _Keeper:
    """Judges the exhibits of one task.

    Args:
        evaluator: Of that task.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._held = evaluator.facts().protections
        self._twin: Interval | None = None

    def finding(self, exhibit: Exhibit) -> Finding:
        """What becomes of one exhibit."""
        if exhibit.needs and not any(self._held[name] for name in exhibit.needs):
            names = " or ".join(name.replace("_", " ") for name in exhibit.needs)
            reason = f"nothing stops it here; it takes {names}"
            return _finding(exhibit, "not judged", reason=reason)
        began = time.monotonic()
        evaluation = self._judged(exhibit.candidate())
        outcome, reason = _outcome(exhibit, evaluation), evaluation.reason
        if outcome == "accepted" and exhibit.wants_time:
            outcome, reason = self._compared(exhibit, evaluation)
        return _finding(
            exhibit,
            outcome,
            status=evaluation.status,
            reason=reason,
            seconds=round(time.monotonic() - began, 3),
        )

    def _judged(self, candidate: Candidate) -> Evaluation:
        """The verdict, after more tries where the machine or our processes spoiled it."""
        for _ in range(TRIES):
            evaluation = self._evaluator.verify(candidate)
            if evaluation.status is not Status.INFRASTRUCTURE:
                break
        return evaluation

    def _compared(self, exhibit: Exhibit, evaluation: Evaluation) -> tuple[Outcome, str]:
        """Whether a cheat for time that passed gained any, and what was seen."""
        wins, most = 0, float("inf")
        for number in range(PAIRS):
            if number:  # both sides once more
                evaluation, self._twin = self._judged(exhibit.candidate()), None
            self._twin = self._twin or _ratio(self._judged(exhibit.twin))
            ours, honest = _ratio(evaluation), self._twin
            if ours is None or honest is None:
                continue
            gain = ours.low / honest.high
            most = min(most, ours.high / honest.low)
            wins += gain > GAIN
            if wins == WINS:
                return "accepted", f"it passed, with over {gain:.2f} times an honest kernel's speed"
            if not wins and most <= HARMLESS:
                return (
                    "harmless",
                    f"it passed, at most {most:.2f} times as fast as an honest kernel",
                )
        return "not judged", "it passed, and the machine was too busy to tell what it gained"


def _outcome(exhibit: Exhibit, evaluation: Evaluation) -> Outcome:
    status = evaluation.status
    if status is Status.INFRASTRUCTURE:
        return "not judged"
    if exhibit.kind == "honest":
        return "passed" if status is Status.PASSED else "refused"
    if status is Status.PASSED:
        return "accepted"
    return "caught" if status in exhibit.expected else "confused"


def _ratio(evaluation: Evaluation) -> Interval | None:
    """The speedup over eager, if it passed."""
    found = evaluation.timing and evaluation.timing.against("eager")
    return found.ratio if found else None


def _skipped(exhibit: Exhibit, why: str) -> Finding:
    reason = f"its kernels are for `{exhibit.backend}`, which needs a GPU: {why}"
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
