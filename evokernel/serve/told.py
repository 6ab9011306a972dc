"""Owns what the tools answer; their schemas are what a client sees. Numbers are always finite."""

import math
from typing import Literal

from pydantic import ConfigDict

from evokernel.answers import Answer
from evokernel.attempt import Stage
from evokernel.evaluation import Interval, Outcome, Status
from evokernel.frozen import Frozen
from evokernel.memory.experience import ExperienceStatus, Kind


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
    """`fast`, `slow` (right, but not faster than eager), `wrong`, `compile failed` or `against the
    contract`. What the machine spoiled is no answer but an error."""
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


class RunStanding(Told):
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
