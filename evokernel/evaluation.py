"""Owns the verdict on a candidate: `Status`, its evidence, and which mixtures are impossible."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import model_validator

from evokernel.frozen import Frozen
from evokernel.profile import Profile


class Status(StrEnum):
    """What became of a candidate; everything except `infrastructure` is the candidate's doing."""

    PASSED = "passed"
    """Compiles, is numerically right and keeps the contract; its times are valid."""
    INVALID_SOURCE = "invalid_source"
    """Not Python, no `ModelNew`, or a constructor that does not take the task's arguments."""
    COMPILE_ERROR = "compile_error"
    """The compiler refused a kernel; the diagnostics name file, line and message."""
    COMPILE_TIMEOUT = "compile_timeout"
    """The compiler was killed at its time or memory limit."""
    RUNTIME_ERROR = "runtime_error"
    """Raised a Python exception on import, in the constructor or in `forward`."""
    CRASHED = "crashed"
    """The worker died by a signal or left by itself."""
    TIMEOUT = "timeout"
    """Killed at the wall-clock limit."""
    OUT_OF_MEMORY = "out_of_memory"
    """Went beyond the memory limit."""
    OUTPUT_LIMIT = "output_limit"
    """Wrote more to its standard streams or scratch folder than allowed."""
    WRONG_STRUCTURE = "wrong_structure"
    """Other number, nesting, type or shape of outputs than the reference."""
    WRONG_DTYPE = "wrong_dtype"
    """An output has another dtype or device than the reference's."""
    WRONG_VALUES = "wrong_values"
    """An output differs from the fp64 reference by more than the tolerance."""
    INPUT_MODIFIED = "input_modified"
    """An input was overwritten that the reference leaves alone."""
    NONDETERMINISTIC = "nondeterministic"
    """Two runs on the same bits gave different bits, beyond what the reference shows."""
    CONTRACT = "contract"
    """Right, but not by its own kernels where the task demands them."""
    INFRASTRUCTURE = "infrastructure"
    """Not evaluated: a disturbed machine or our processes failed; never charged or rewarded."""

    @property
    def is_feasible(self) -> bool:
        """Whether a kernel with this status may be used."""
        return self is Status.PASSED

    @property
    def is_charged(self) -> bool:
        """Whether an attempt with this status counts against the budget and earns a reward."""
        return self is not Status.INFRASTRUCTURE


class Diagnostic(Frozen):
    """One message of a compiler, the interpreter or our checks."""

    severity: Literal["error", "warning", "note"]
    """How bad it is."""
    message: str
    """The message without its position."""
    file: str | None = None
    """File name as the candidate's author knows it, e.g. `candidate.py` or `kernel_0.cpp`."""
    line: int | None = None
    """One-based line in `file`."""
    column: int | None = None
    """One-based column in `file`."""
    excerpt: str | None = None
    """The source line at fault."""


class Mismatch(Frozen):
    """Where and how an output differs from the expected values."""

    workload: str
    """Name of the workload."""
    family: str
    """Input family, e.g. `normal`, `large`, `nan`."""
    output: str
    """Path of the output in the returned structure, e.g. `0` or `1.hidden`."""
    detail: str
    """One sentence: what is wrong, in numbers."""
    wrong: int = 0
    """Number of elements outside the tolerance."""
    total: int = 0
    """Number of elements compared."""
    worst_index: tuple[int, ...] | None = None
    """Index of the worst element."""
    got: float | None = None
    """The candidate's value there."""
    expected: float | None = None
    """The fp64 reference's value there."""


class Correctness(Frozen):
    """Whether the numbers are right, and how that was judged."""

    is_right: bool
    """Every comparison of every family and workload was within tolerance."""
    families: tuple[str, ...]
    """Input families that were compared, in order."""
    workloads: tuple[str, ...]
    """Workloads that were compared."""
    comparisons: int
    """Number of output tensors compared."""
    worst_ratio: float
    """Largest error as a share of its tolerance; above 1 is wrong. Dimensionless."""
    tolerance: str
    """The rule in words, with its constants."""
    mismatches: tuple[Mismatch, ...] = ()
    """First few differences."""
    notes: tuple[str, ...] = ()
    """What limits the check, e.g. a reduced workload for the fp64 reference."""


class KernelOrigin(Frozen):
    """One kernel that `forward` launched, and the source that it was built from."""

    kernel: str
    """Name of the function."""
    file: str
    """What the author calls its source, e.g. `kernel_0.cpp`."""
    key: str
    """Hash of source, flags and compiler: the library that ran."""
    is_needed: bool | None = None
    """Whether the result changes without it; None where that was not tried."""


class LibraryTime(Frozen):
    """Processor time of a call inside one mapped file, as sampled from outside the process."""

    library: str
    """Name of the file."""
    owner: Literal["own", "library", "runtime", "interpreter", "made"]
    """`own`: built by us from the candidate's source; `library`: installed code that may compute;
    `runtime`: the C and OpenMP runtimes that kernels call; `interpreter`: Python and the way into
    torch; `made`: machine code that came from elsewhere."""
    share: float
    """Share of the samples of all threads, 0..1."""
    ms: float
    """Milliseconds of all threads a call."""


class Contract(Frozen):
    """Whether the candidate did the work by itself."""

    policy: Literal["own_kernels_only", "library_allowed"]
    """Which contract held."""
    is_kept: bool
    """Whether it was kept."""
    library_calls: tuple[str, ...] = ()
    """Computing library operators that `forward` dispatched."""
    own_kernels: tuple[str, ...] = ()
    """Kernels of its own that `forward` launched."""
    coverage: float | None = None
    """Share of device time spent in its own kernels, 0..1; None where it cannot be measured."""
    coverage_from: Literal["samples", "launches", "trace"] | None = None
    """`samples`: taken by the system, from outside the process; `launches`: the process's own log,
    where sampling is not permitted; `trace`: what CUPTI told the process of its GPU."""
    origins: tuple[KernelOrigin, ...] = ()
    """Which source built the kernels that were launched."""
    libraries: tuple[LibraryTime, ...] = ()
    """Where the processor time of a call went; empty where sampling is not permitted."""
    is_needed: bool | None = None
    """Whether the result changes when all its kernels are deleted; None where not tried."""
    breaches: tuple[str, ...] = ()
    """What breaks it, a sentence each, the most telling first."""
    notes: tuple[str, ...] = ()
    """What limits the evidence, and what does not count as own work."""
    hints: tuple[Diagnostic, ...] = ()
    """Lines of the source that are worth a look; they decide nothing."""


class Interval(Frozen):
    """A point estimate with its two-sided 95 % confidence interval."""

    value: float
    """Point estimate."""
    low: float
    """Lower bound."""
    high: float
    """Upper bound."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"interval out of order: {self.low} <= {self.value} <= {self.high}")
        return self


class Speedup(Frozen):
    """How much faster the candidate is than one opponent, measured alternately with it."""

    against: str
    """`eager`, `compile`, `parent` or the hash of another candidate."""
    ratio: Interval
    """Opponent's time divided by the candidate's; above 1 is faster. Dimensionless."""
    opponent_ms: float
    """Median time of the opponent in the same session, milliseconds."""
    opponent_wall_ms: float | None = None
    """On a GPU, its wall time from launch to end; `opponent_ms` is device time."""
    is_faster: bool
    """The lower bound exceeds 1 + margin."""
    is_slower: bool = False
    """The upper bound lies below 1 - margin."""


class Timing(Frozen):
    """How long one call takes, and against whom that was measured."""

    median_ms: float
    """Median time of one `forward`, milliseconds: wall time; on a GPU device time."""
    spread: float
    """Interquartile range divided by the median. Dimensionless."""
    samples: int
    """Clean repetitions that entered."""
    dropped: int
    """Repetitions dropped as disturbed."""
    processes: int
    """Fresh candidate processes the samples come from."""
    speedups: tuple[Speedup, ...]
    """One per opponent."""
    wall_ms: float | None = None
    """On a GPU, median wall time of one `forward` from launch to end, milliseconds."""
    way: Literal["single", "batch", "graph"] | None = None
    """How a GPU timed it: each call by itself, many short ones in a row, or out of a graph."""
    roofline_share: float | None = None
    """Roofline floor time divided by the median, 0..1 and a little above; None if unknown."""
    peak_bytes: int | None = None
    """Peak extra memory of one call, bytes."""
    baseline_bytes: dict[str, int] = {}
    """The same of each baseline, by name, where it is known."""
    cache_state: Literal["cold", "warm"] = "cold"
    """Whether the last-level cache was flushed before each repetition."""
    threads: int = 1
    """CPU threads both sides may use."""
    notes: tuple[str, ...] = ()
    """What to know before believing it, e.g. that it is faster than the measured peaks."""

    def against(self, opponent: str) -> Speedup | None:
        """The speedup over `opponent`, or None where it was not measured."""
        return next((s for s in self.speedups if s.against == opponent), None)


Outcome = Literal["not judged", "compile failed", "wrong", "against the contract", "slow", "fast"]
"""What became of a candidate, in six words that never stand for each other."""
_OUTCOMES: dict[Status, Outcome] = {
    Status.INFRASTRUCTURE: "not judged",
    Status.INVALID_SOURCE: "compile failed",
    Status.COMPILE_ERROR: "compile failed",
    Status.COMPILE_TIMEOUT: "compile failed",
    Status.CONTRACT: "against the contract",
}


class Evaluation(Frozen):
    """The verdict on one candidate: five separate answers and their evidence, never one number.

    Compiles (`compiles`), numerically right (`correctness`), contract kept (`contract`), faster
    (`timing`), coverage (`contract.coverage`).
    """

    candidate: str
    """Content hash of the candidate."""
    task: str
    """Content hash of the task."""
    status: Status
    """The summary of the answers."""
    reason: str = ""
    """One sentence in words; empty when passed."""
    compiles: bool | None = None
    """Every kernel was built; None if that was never tried."""
    correctness: Correctness | None = None
    """Whether the numbers are right; None where it did not get that far."""
    contract: Contract | None = None
    """Whether it is its own work."""
    timing: Timing | None = None
    """How long a call takes, and how that compares."""
    profile: Profile | None = None
    """What bounds it."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What the compiler says."""
    log: str = ""
    """Tail of the candidate's standard streams, capped."""
    harness: str = ""
    """Version of the harness that judged."""
    device: str = ""
    """Fingerprint of the device it ran on."""
    measurement: Literal["standard", "quick"] = "standard"
    """Measurement profile."""
    seconds: dict[str, float] = {}
    """Wall seconds per phase: compile, verify, time, profile."""

    @property
    def outcome(self) -> Outcome:
        """What it comes to, in the words in which people ask."""
        if self.status is not Status.PASSED:
            return _OUTCOMES.get(self.status, "wrong")
        speedup = self.timing.against("eager") if self.timing else None
        return "fast" if speedup and speedup.is_faster else "slow"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.timing is not None and self.status is not Status.PASSED:
            raise ValueError(f"a candidate that is {self.status} has no valid time")
        if self.status is Status.PASSED:
            self._refuse_half_passed()
        if self.status in {Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT} and self.compiles:
            raise ValueError("a compile failure cannot have compiled")
        return self

    def _refuse_half_passed(self) -> None:
        if self.compiles is not True:
            raise ValueError("passed without having compiled")
        if self.correctness is None or not self.correctness.is_right:
            raise ValueError("passed without being right")
        if self.contract is None or not self.contract.is_kept:
            raise ValueError("passed without keeping the contract")


class Promotion(Frozen):
    """The second look that a claim needs before memory believes it."""

    candidate: str
    """Content hash of the child."""
    parent: str | None
    """Content hash of the parent, or None where the claim names no parent."""
    claim: Literal["kernel", "edit", "fix"]
    """What is claimed."""
    holds: bool
    """Whether the claim was confirmed."""
    ratio: Interval | None = None
    """Parent's (or eager's) time over the child's, from fresh processes; None for a fix."""
    processes: int = 0
    """Fresh processes it was measured in."""
    reason: str = ""
    """Why it does not hold; empty when it does."""
    log: str = ""
    """What compute-sanitizer printed of a GPU kernel's faults, capped."""
    notes: tuple[str, ...] = ()
    """What was not looked at, and why."""
    measurement: Literal["standard", "quick"] = "standard"
    """Measurement profile of the ratio."""

    @property
    def is_undecided(self) -> bool:
        """Whether it was measured so roughly that it may be a gain as well as a loss."""
        ratio = self.ratio
        return self.measurement == "quick" and ratio is not None and ratio.low <= 1 <= ratio.high
