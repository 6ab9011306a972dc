"""Owns what the tools answer; their schemas are what a client sees. Numbers are always finite."""

import math
from typing import Literal

from pydantic import ConfigDict

from evokernel.answers import Answer
from evokernel.attempt import Attempt, Stage
from evokernel.evaluation import Evaluation, Interval, Outcome, Promotion, Status
from evokernel.external import Judged
from evokernel.frozen import Frozen
from evokernel.memory.experience import Entry, Experience, ExperienceStatus, Kind

SHOWN = 10
"""Diagnostics and mismatches that an answer carries (ours)."""
LOG_TAIL = 4000
"""Characters of a candidate's output that an answer carries (ours)."""


class Told(Frozen):
    """The answer of one tool."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Ratio(Told):
    """How many times as fast as an opponent, with a two-sided 95 % interval."""

    value: float
    low: float
    high: float
    opponent_ms: float | None = None
    """Median of the opponent in the same session, milliseconds."""
    is_faster: bool
    """The lower bound exceeds 1 and the margin."""

    @classmethod
    def of(cls, ratio: Interval, opponent_ms: float | None, is_faster: bool) -> "Ratio | None":
        """None where a bound is not finite."""
        numbers = (ratio.value, ratio.low, ratio.high)
        if not all(map(math.isfinite, numbers)):
            return None
        return cls(
            value=ratio.value,
            low=ratio.low,
            high=ratio.high,
            opponent_ms=opponent_ms,
            is_faster=is_faster,
        )


class Message(Told):
    """One message of a compiler or of our checks."""

    severity: Literal["error", "warning", "note"]
    message: str
    file: str | None
    line: int | None
    excerpt: str | None
    """The line at fault."""


class Digest(Told):
    """What bounds a kernel."""

    bound_by: str
    """`memory`, `compute`, `latency`, `launch`, `contention` or `unknown`."""
    roofline_share: float | None
    """Share of what this machine can do, 0..1."""
    limits: tuple[str, ...]
    """What else costs time, the most expensive first."""
    gbytes_per_s: float | None
    """Necessary traffic, GB/s."""
    gflops: float | None
    """Necessary arithmetic, GFLOP/s."""
    notes: tuple[str, ...]
    """What it means and what to do next."""


class Kept(Told):
    """One experience that memory holds."""

    id: str
    kind: Kind
    status: ExperienceStatus
    """`quarantine`: shown inside its own run only, until a second look confirms it. `active`: shown
    to every task. `suspect`: not confirmed. `tombstone`: withdrawn."""
    reason: str
    """Why it has this status."""


class Shown(Told):
    """One experience that memory brought back."""

    id: str
    kind: Kind
    task: str
    family: str
    techniques: tuple[str, ...]
    outcome: Literal["success", "failure"]
    summary: str
    speedup: float | None
    """Over eager for a kernel, over its parent for an edit."""
    texts: dict[str, str]
    """`source`, `diff`, `error`, `feedback`, `note`."""


class Recalled(Told):
    """Answer of `recall`."""

    run: str
    """Your run for this task; `evaluate` goes on with it."""
    stage: Stage
    """`draft`: get something right; `refine`: make it faster."""
    brief: str
    """The step in words: task, machine, the times to beat where they are known, the parent with its
    verdict, the experiences. Empty where there is no text for the backend."""
    guide: str
    """How a candidate is written and judged. Given once a session; later it is in the resource
    `evokernel://guide`."""
    experiences: tuple[Shown, ...]
    """Best first; none where memory has nothing that is alike."""


class Evaluated(Told):
    """Answer of `evaluate`."""

    run: str
    """Your run for this task."""
    attempt: int
    """Number of this attempt in it."""
    outcome: Outcome
    """`fast`, `slow` (right, but not faster than eager), `wrong`, `compile failed`, `against the
    contract`, or `not judged`: the machine spoiled it."""
    status: Status
    reason: str
    """Why it did not pass; empty when it did."""
    answers: tuple[Answer, ...]
    """Compiles, right, contract, faster, coverage; each with its evidence."""
    median_ms: float | None
    """Median of one call, milliseconds."""
    speedups: dict[str, Ratio]
    """Over `eager` and `compile` (torch.compile)."""
    diagnostics: tuple[Message, ...]
    mismatches: tuple[str, ...]
    """Where results differ from the reference in fp64."""
    log: str
    """Tail of what the candidate printed, where it did not pass."""
    profile: Digest | None
    """What bounds it, where it passed."""
    parent: int | None
    """The attempt that it counts as made from."""
    repeats: int | None
    """An earlier attempt with the same source, whose verdict this is."""
    tuned_source: str | None
    """What was judged where the candidate declares values to choose from (`TUNE`)."""
    is_best: bool
    """The fastest feasible one of the run so far."""
    reward: float | None
    """What the recalled experiences earned."""
    learned: tuple[Kept, ...]
    """What memory keeps of it."""
    seconds: dict[str, float]
    """Wall seconds per phase."""


class Standing(Told):
    """One attempt in a list."""

    attempt: int
    status: Status
    stage: Stage
    techniques: tuple[str, ...]
    median_ms: float | None
    speedup: float | None
    """Over eager."""


class Status_(Told):
    """Answer of `run_status` and `stop_run`."""

    run: str
    task: str
    author: str
    """`templates`, a model, or `external`: your own evaluations."""
    state: Literal["running", "ended", "stopped", "failed", "open", "gone"]
    """`open`: a run of evaluations, at rest. `gone`: its process died; `evokernel resume` goes
    on with it."""
    reason: str
    """Why it ended, stopped or failed."""
    phase: str
    """What is under way, in words."""
    elapsed_s: float
    budget_attempts: int | None
    """None for a run of evaluations, which has no end of its own."""
    attempts: tuple[Standing, ...]
    """The last ones, newest first."""
    attempts_made: int
    best: Standing | None
    folder: str


class Found(Told):
    """Answer of `best`."""

    run: str
    attempt: int | None
    """None where no attempt has passed."""
    source: str
    """The kernel: a module with `ModelNew`; empty where there is none."""
    file: str
    """Where it lies; empty where there is none."""
    median_ms: float | None
    speedups: dict[str, Ratio]
    confirmed: bool | None
    """Whether a second look in fresh processes confirmed it; None where there was none yet."""
    confirmed_speedup: Ratio | None
    """Over eager, from the second look."""
    answers: tuple[Answer, ...]
    techniques: tuple[str, ...]
    refuted: int
    """Claims of this run that a second look did not confirm."""


class Profiled(Told):
    """Answer of `profile`."""

    run: str
    attempt: int
    median_ms: float
    profile: Digest
    floor_ms: float | None
    """What the device's roof allows at best, milliseconds."""


class Remembered(Told):
    """Answer of `remember`."""

    kept: Kept
    note: str
    """What that status means for it."""


class Checked(Told):
    """Answer of `doctor`."""

    can_run: bool
    findings: tuple["Check", ...]


class Check(Told):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "warning", "missing"]
    found: str
    advice: str
    is_required: bool


def ratios(evaluation: Evaluation) -> dict[str, Ratio]:
    """Speedups by opponent."""
    speedups = evaluation.timing.speedups if evaluation.timing else ()
    found = {s.against: Ratio.of(s.ratio, s.opponent_ms, s.is_faster) for s in speedups}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def digest(evaluation: Evaluation) -> Digest | None:
    """What bounds it, where that was looked at."""
    profile = evaluation.profile
    if profile is None:
        return None
    return Digest(
        bound_by=profile.bound_by,
        roofline_share=_finite(profile.roofline_share),
        limits=profile.limits,
        gbytes_per_s=_finite(profile.gbytes_per_s),
        gflops=_finite(profile.gflops),
        notes=profile.notes,
    )


def messages(evaluation: Evaluation) -> tuple[Message, ...]:
    """The first diagnostics."""
    return tuple(
        Message(
            severity=each.severity,
            message=each.message,
            file=each.file,
            line=each.line,
            excerpt=each.excerpt,
        )
        for each in evaluation.diagnostics[:SHOWN]
    )


def mismatches(evaluation: Evaluation) -> tuple[str, ...]:
    """Where results differ, a sentence each."""
    found = evaluation.correctness.mismatches if evaluation.correctness else ()
    return tuple(
        f"{m.family} inputs, workload {m.workload}, output {m.output}: {m.detail}"
        for m in found[:SHOWN]
    )


def standing(attempt: Attempt) -> Standing:
    """One attempt in a list."""
    eager = ratios(attempt.evaluation).get("eager")
    return Standing(
        attempt=attempt.number,
        status=attempt.evaluation.status,
        stage=attempt.proposal.stage,
        techniques=attempt.proposal.techniques,
        median_ms=attempt.median_ms,
        speedup=eager.value if eager else None,
    )


def kept(entry: Entry) -> Kept:
    """One experience, by its status."""
    found = entry.experience
    return Kept(id=found.id, kind=found.kind, status=entry.status, reason=entry.reason)


def shown(experience: Experience) -> Shown:
    """One experience, as an author is shown it."""
    ratio = experience.measurement.speedup
    return Shown(
        id=experience.id,
        kind=experience.kind,
        task=experience.origin.task,
        family=experience.family,
        techniques=experience.techniques,
        outcome=experience.outcome,
        summary=experience.summary,
        speedup=_finite(ratio.value) if ratio else None,
        texts=experience.payload,
    )


def second_look(promotion: Promotion | None) -> Ratio | None:
    """What fresh processes measured over eager."""
    if promotion is None or promotion.ratio is None:
        return None
    return Ratio.of(promotion.ratio, None, promotion.holds and promotion.ratio.low > 1)


def log_of(judged: Judged) -> str:
    """The tail of what a candidate printed that did not pass."""
    evaluation = judged.attempt.evaluation
    return "" if evaluation.status.is_feasible else evaluation.log[-LOG_TAIL:]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
