"""Owns the public fakes: a proposer, an evaluator and a clock that do as they are told.

They serve tests, demonstrations and people who build on EvoKernel. A fake kernel says in its own
comments how it will be judged, so a test reads from top to bottom:

    # median_ms: 2.5           time of one call; 1.0 if it does not say
    # doubt: 0.3               half width of its speedups' intervals, relative; 0.01 without
    # status: wrong_values     any `Status`; `passed` if it does not say
    # bound_by: memory         what its profile will say
    # techniques: a b          what its proposal will say
    # spoiled: 2               so many evaluations are spoiled by the machine first
    # promotes: no             its claims do not hold in fresh processes; `spoiled`: no answer

One that declares `TUNE` may say `# median_ms at BLOCK=64: 2.0` and `# status at BLOCK=8: crashed`.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

from evokernel import __version__
from evokernel.attempt import Candidate, Fault, Proposal, Stage
from evokernel.bench import Baseline, Claim, Facts, Heard, nobody
from evokernel.bench.messages import Protections
from evokernel.evaluation import Evaluation, Promotion, Status
from evokernel.opgraph import OpGraph
from evokernel.profile import Profile
from evokernel.proposers import Exhausted, Request
from evokernel.task import Task
from evokernel.testing.chat import ChatAnswer, ChatServer
from evokernel.testing.kernels import (
    COMPILE_MS,
    EAGER_MS,
    fake_evaluation,
    fake_graph,
    fake_kernel,
    fake_promotion,
    fake_task,
    fake_tuning,
    marker,
)
from evokernel.tuning import Tuning

__all__ = [
    "COMPILE_MS",
    "EAGER_MS",
    "TECHNIQUES",
    "CallLog",
    "ChatAnswer",
    "ChatServer",
    "FakeClock",
    "FakeEvaluator",
    "Script",
    "ScriptedProposer",
    "fake_evaluation",
    "fake_graph",
    "fake_kernel",
    "fake_promotion",
    "fake_task",
    "wander",
]


class CallLog:
    """Who was called with what, how often; with a file it outlives a killed process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lines: list[str] = []

    def add(self, call: str, what: str = "") -> None:
        """Note one finished call."""
        line = f"{call} {what}".strip()
        if self._path is None:
            self._lines.append(line)
        else:
            with self._path.open("a") as file:
                file.write(f"{line}\n")

    def lines(self) -> list[str]:
        """The calls in order, e.g. `verify 0123456789abcdef`."""
        if self._path is None:
            return list(self._lines)
        return self._path.read_text().splitlines() if self._path.exists() else []

    def counts(self) -> Counter[str]:
        """How often each line was noted."""
        return Counter(self.lines())

    def number(self, call: str) -> int:
        """How often one kind of call was made."""
        return sum(line.split()[0] == call for line in self.lines())


class FakeClock:
    """A clock that stands still until told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        """Seconds since 1970."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


class FakeEvaluator:
    """Judges a candidate by its own comments, and notes every finished call.

    Args:
        task: What the candidates are for.
        log: Notes `try`, `compile`, `verify`, `profile` and `promote` (once a claim) with the hash.
        clock: Advanced by `seconds` with every verdict.
        seconds: What a verdict takes.
        before: Told of each call before it begins, e.g. `verify`; may raise or kill the process.
    """

    def __init__(
        self,
        task: Task,
        log: CallLog | None = None,
        clock: FakeClock | None = None,
        seconds: float = 0.0,
        before: Callable[[str], None] | None = None,
    ) -> None:
        self.log = log or CallLog()
        self.is_open = False
        self._task = task
        self._clock = clock
        self._seconds = seconds
        self._before = before
        self._spoiled: Counter[str] = Counter()

    def baselines(self) -> tuple[Baseline, ...]:
        """Two opponents of fixed speed."""
        self._begin("baselines")
        self.log.add("baselines")
        return (
            Baseline(name="eager", median_ms=EAGER_MS, seconds=0.1),
            Baseline(name="compile", median_ms=COMPILE_MS, seconds=0.2),
        )

    def tune(self, candidate: Candidate, heard: Heard = nobody) -> Tuning | None:
        """Try every combination of declared values; the log notes each as `try` with its hash."""
        tuning = fake_tuning(candidate)
        for found in tuning.tries if tuning else ():
            self._begin("try")
            self.log.add("try", found.candidate)
            heard(found)
        return tuning

    def compile(self, candidate: Candidate) -> Evaluation | None:
        """Fail if the candidate says so, else leave the verdict open."""
        self._begin("compile")
        self.log.add("compile", candidate.sha)
        evaluation = fake_evaluation(candidate, self._task)
        return None if evaluation.compiles else evaluation

    def verify(self, candidate: Candidate) -> Evaluation:
        """Give the verdict that the candidate asks for."""
        self._begin("verify")
        if self._clock:
            self._clock.advance(self._seconds)
        if self._spoiled[candidate.sha] < int(marker(candidate, "spoiled") or 0):
            self._spoiled[candidate.sha] += 1
            self.log.add("spoiled", candidate.sha)
            return Evaluation(
                candidate=candidate.sha,
                task=self._task.sha,
                status=Status.INFRASTRUCTURE,
                reason="the machine was busy",
            )
        self.log.add("verify", candidate.sha)
        return fake_evaluation(candidate, self._task)

    def quick(self) -> Self:
        """The same: nothing is measured anyway."""
        return self

    def profile(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """Add the profile that the candidate asks for."""
        self._begin("profile")
        self.log.add("profile", candidate.sha)
        bound_by = marker(candidate, "bound_by") or "memory"
        digest = Profile.model_validate({"bound_by": bound_by, "roofline_share": 0.5})
        return evaluation.model_copy(update={"profile": digest})

    def promote(self, claims: tuple[Claim, ...]) -> tuple[Promotion, ...]:
        """Confirm every claim whose candidate does not forbid it."""
        self._begin("promote")
        answered = [c for c in claims if marker(c.candidate, "promotes") != "spoiled"]
        for claim in answered:
            self.log.add("promote", f"{claim.kind} {claim.candidate.sha}")
        return tuple(fake_promotion(claim) for claim in answered)

    def facts(self) -> Facts:
        """A machine that is not there."""
        return Facts(
            harness=f"evokernel {__version__}, fake",
            device="fake",
            peaks="no machine at all",
            system="none",
            python="none",
            torch="none",
            compiler="none",
            threads=1,
            protections=Protections().model_dump(mode="json"),
            cache_gbytes_per_s=0.02,
            memory_gbytes_per_s=0.002048,  # the graph's bytes in half a millisecond
            peak_gflops=0.005,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing is limited."""
        return ()

    def _begin(self, call: str) -> None:
        if self._before:
            self._before(call)

    def __enter__(self) -> Self:
        self.is_open = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.is_open = False


Script = Callable[[Request], str | Fault | None]
"""Writes the source for one step, or gives a reply without one; None has nothing new to propose."""


class ScriptedProposer:
    """Proposes what a function writes, and notes every finished proposal.

    Args:
        script: Called once a step.
        log: Notes `propose` with the step's number.
        before: Told of each step before it begins; may raise or kill the process.
    """

    name = "scripted"

    def __init__(
        self,
        script: Script | None = None,
        log: CallLog | None = None,
        before: Callable[[str], None] | None = None,
    ) -> None:
        self.log = log or CallLog()
        self.requests: list[Request] = []
        """What was asked, in order."""
        self._script = script or wander
        self._before = before

    def check(self, task: Task, graph: OpGraph | None, backend: str) -> None:
        """Serve every task."""

    def propose(self, request: Request) -> Proposal:
        """Write one candidate.

        Raises:
            Exhausted: the script says None.
        """
        if self._before:
            self._before("propose")
        self.requests.append(request)
        written = self._script(request)
        self.log.add("propose", request.step.rpartition("/")[2])
        if written is None:
            raise Exhausted("the script has come to its end")
        fault = written if isinstance(written, Fault) else None
        source = f"# no candidate in {request.step}\n" if isinstance(written, Fault) else written
        candidate = Candidate(source=source, backend=request.backend)
        techniques = tuple(marker(candidate, "techniques").split())
        return Proposal(
            candidate=candidate,
            stage=request.stage,
            parents=tuple(parent.proposal.candidate.sha for parent in request.parents),
            techniques=techniques,
            changed=_changed(request, techniques),
            used=tuple(experience.id for experience in request.shown),
            rationale=f"the script's answer to a {request.stage}",
            fault=fault,
        )


def _changed(request: Request, techniques: tuple[str, ...]) -> tuple[str, ...]:
    before = request.parents[0].proposal.techniques if request.parents else ()
    return tuple(sorted(set(before) ^ set(techniques)))


TECHNIQUES = ("vectorized-loads", "unrolling", "blocking", "threads", "fusion")
"""What the kernels of `wander` are made of."""


def wander(request: Request) -> str:
    """A script without an end: drafts around 5 ms, and refinements that change one technique.

    A technique always gains or costs the same share of the time, so there is something to learn;
    every eighth kernel or so is wrong. The same seed gives the same kernels.
    """
    chance = random.Random(request.seed)
    techniques = set(request.parents[0].proposal.techniques if request.parents else ())
    if request.stage is Stage.REFINE:
        techniques ^= {chance.choice(TECHNIQUES)}
    gain = sum(0.3 - 0.1 * TECHNIQUES.index(technique) for technique in techniques)
    median_ms = round(5.0 * (1 - gain) + chance.uniform(-0.05, 0.05), 4)
    status = Status.WRONG_VALUES if chance.random() < 0.125 else Status.PASSED
    return fake_kernel(median_ms, status, tuple(sorted(techniques)), note=str(request.seed))
