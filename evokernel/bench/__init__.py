"""Owns the contract of the trusted measurement: `Evaluator`, and the records it answers with."""

from collections.abc import Callable
from typing import Any, Protocol, Self, runtime_checkable

from evokernel import __version__
from evokernel.attempt import Candidate
from evokernel.evaluation import Evaluation, Promotion
from evokernel.frozen import Frozen
from evokernel.tuning import Try, Tuning

Say = Callable[[str], None]
"""Told in a few words what takes time now, e.g. `preparing torch.compile`."""


def silent(text: str) -> None:
    """Tell nobody."""


Heard = Callable[[Try], None]
"""Told of each combination of values that was tried."""


def nobody(found: Try) -> None:
    """Hear nothing."""


class Baseline(Frozen):
    """The time to beat."""

    name: str
    """`eager` or `compile`."""
    median_ms: float
    """Median of one call, milliseconds: wall time; on a GPU device time."""
    seconds: float
    """Wall seconds that preparing it took, compilation included."""
    peak_bytes: int | None = None
    """Peak extra memory of one call, bytes; None if unknown."""
    wall_ms: float | None = None
    """On a GPU, median wall time of one call from launch to end, milliseconds."""


class Claim(Frozen):
    """A result that memory wants to believe, with the source that it compares."""

    candidate: Candidate
    """What claims to be fast."""
    parent: Candidate | None
    """What it was made from, measured beside it."""
    kind: str
    """`kernel`, `edit` or `fix` as in `Promotion.claim`."""


class Facts(Frozen):
    """What the verdicts of an evaluator rest on, for the run's record."""

    harness: str
    """Version of the harness and of its measurement."""
    device: str
    """Fingerprint of the device."""
    peaks: str
    """Its name and measured peaks, in words."""
    system: str
    """Operating system and kernel."""
    python: str
    """Version of Python."""
    torch: str
    """Version of torch."""
    compiler: str
    """Identity of the compiler."""
    threads: int
    """CPU threads that both sides of a comparison get."""
    protections: dict[str, Any]
    """Which protections hold for workers, and why one is missing."""
    cache_gbytes_per_s: float | None = None
    """Best measured rate inside the caches, GB/s (1e9 bytes)."""
    memory_gbytes_per_s: float | None = None
    """Best measured rate from memory, GB/s."""
    peak_gflops: float | None = None
    """Rate of arithmetic that the roofline rests on, GFLOP/s."""


HARNESS = f"evokernel {__version__}, measurement 1"
"""Version of the harness; the number grows when verdicts or times change their meaning."""
TOGETHER = 4
"""Kernels that one round of `Evaluator.promote` measures side by side: more would wait longer
between two of their repetitions, and hold more memory."""


class Evaluator(Protocol):
    """Judges candidates of one task on one device.

    A context manager that leaves no process behind.
    """

    def baselines(self) -> tuple[Baseline, ...]:
        """Prepare and time the baselines once; later calls answer from the cache."""

    def tune(self, candidate: Candidate, heard: Heard = nobody) -> Tuning | None:
        """Choose among the values that a candidate declares (`TUNE`), within the budget for it.

        Returns:
            The search and its choice, whose `frozen` source is what has to be judged; None where
            there is nothing to choose. Its quick timings are no verdict on anything else.
        """

    def compile(self, candidate: Candidate) -> Evaluation | None:
        """Import it in a worker and build every kernel.

        Returns:
            The failed evaluation that ends the attempt, or None when all is well so far.
        """

    def verify(self, candidate: Candidate) -> Evaluation:
        """Judge it completely: build, correctness, contract, paired timing; stop at a failure."""

    def profile(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """Add a `Profile` to the evaluation of a passed candidate."""

    def promote(self, claims: tuple[Claim, ...]) -> tuple[Promotion, ...]:
        """Look again at each claim in at least three fresh processes.

        Returns:
            An answer for each claim, except for those that the machine spoiled: they stay open.
        """

    def facts(self) -> Facts:
        """Machine, versions and protections that the verdicts rest on."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing or limited for this task, in words."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class HasQuick(Protocol):
    """An evaluator that can also judge roughly, for tries that are no attempts."""

    def quick(self) -> Evaluator:
        """The same for the quick profile, against eager alone; it lives as long as this one."""
