"""Owns the parent's side of the measuring processes: warm servers, and workers with deadlines.

    with WorkerPool(cache=config.cache) as pool:
        with pool.fork(WorkerSpec(role="candidate", source=text, threads=2), build) as worker:
            worker.load(init_args, init_kwargs, seed=7, state=None)
            worker.put("normal", args, output_bytes=(4096,))
            outcome = worker.run("normal")

Every call on a worker either returns its record or raises `Faulted`, which carries the typed `Fault`
of the candidate. `WorkerError` means that our own processes failed. Records: `evokernel.bench.messages`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from evokernel.bench.messages import (
    Batch,
    Loaded,
    Outcome,
    Protections,
    Repetition,
    TimePlan,
    Usage,
    WorkerSpec,
)
from evokernel.bench.tensors import Package
from evokernel.compilers import Artefact, BuildFailure, KernelSource

Build = Callable[[KernelSource], Artefact | BuildFailure]
"""The trusted compiler: called in the parent when a worker's code asks for a kernel."""


class WorkerPool:
    """Keeps one warm server per (threads, kind) and forks workers from it; a context manager.

    Leaving the context kills every worker and server and verifies that nothing is left. Not safe for
    use by several threads at once; the device lock serialises timed sections anyway.

    Args:
        cache: Folder of compiled kernels (workers may read it) and of torch.compile's own cache
            (`cache/inductor`, writable for the role `compile` alone).
        isolation: `full` takes every namespace that the system permits, `basic` none of them (limits,
            capabilities and Landlock stay); `basic` is what unprivileged containers get anyway.
        preload: Modules that servers import beside torch, e.g. `cupy`; they must not start threads
            or run operators.
        path: Folders added to the servers' module search path.
    """

    def __init__(
        self,
        cache: Path,
        isolation: str = "full",
        preload: tuple[str, ...] = (),
        path: tuple[Path, ...] = (),
    ) -> None: ...

    def warm(self, threads: int, role: str = "candidate") -> None:
        """Start the server for `role` ahead of need (imports torch, some seconds); returns at once."""

    def fork(self, spec: WorkerSpec, build: Build) -> "Worker":
        """A fresh worker, ready for `load`.

        Raises:
            WorkerError: A server cannot start, or refuses to fork because it has more than one thread
                or has run an operator.
        """

    def close(self) -> None:
        """Kill all workers and servers. Idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class Worker:
    """One fresh process that runs one module; a context manager that kills it and verifies so.

    Every call takes `deadline_s`; None is the spec's `run_s` (plus `build_s` for `load` and `run` of
    the role `compile`). When it passes, the whole worker is killed and `Faulted` raised with TIMEOUT.
    """

    spec: WorkerSpec
    protections: Protections

    def load(
        self,
        init_args: Sequence[Any],
        init_kwargs: Mapping[str, Any],
        seed: int,
        state: "Mapping[str, Any] | Package | None" = None,
        deadline_s: float | None = None,
    ) -> Loaded:
        """Import the module, seed, construct the class, take over `state`, switch to eval mode.

        `state` is the reference's `state_dict` (tensors); it is loaded when names and shapes match.
        Statuses: INVALID_SOURCE (syntax, no class, constructor takes other arguments), COMPILE_ERROR,
        COMPILE_TIMEOUT, RUNTIME_ERROR, CRASHED, TIMEOUT, OUT_OF_MEMORY, OUTPUT_LIMIT.
        """

    def put(
        self,
        name: str,
        args: "Sequence[Any] | Package",
        slots: int = 1,
        output_bytes: Sequence[int] = (),
        deadline_s: float | None = None,
    ) -> None:
        """Keep an input set in the worker under `name`, replacing one of the same name.

        Args:
            name: Any text.
            args: Positional arguments of `forward`: nested lists, tuples, dicts of tensors and plain
                values. A `Package` (see `tensors.pack`) may be put into several workers.
            slots: Buffer sets at different addresses, for timing.
            output_bytes: Bytes of each output tensor, so that the first `run` can be poisoned.

        Raises:
            WorkerError: An argument that is neither a dense tensor nor a plain value; it is named.
        """

    def drop(self, name: str) -> None:
        """Free an input set."""

    def run(
        self,
        name: str,
        *,
        poison: bool = True,
        instrument: bool = False,
        overwrite_inputs: bool = False,
        deadline_s: float | None = None,
    ) -> Outcome:
        """One `forward` on a private copy of the put inputs.

        Args:
            name: A put input set.
            poison: Fill free memory of output size with 0xFF (NaN in every float type) before, so that
                elements which are never written show.
            instrument: Log dispatched operators and kernel launches (slower; not for timing).
            overwrite_inputs: Fill the private inputs with 0xFF after the call and before outputs
                are read: an output that is a view of an input, or computed late, shows.
            deadline_s: Wall limit, seconds.
        """

    def time(
        self, name: str, plan: TimePlan, deadline_s: float | None = None
    ) -> tuple[Repetition, ...]:
        """Timed repetitions, one per variant of the plan."""

    def kept(self, deadline_s: float | None = None) -> Outcome:
        """Outputs of the last timed repetition (or batch), for the checks chosen after the fact."""

    def batch(
        self, name: str, calls: int, slot: int = 0, deadline_s: float | None = None
    ) -> Batch:
        """`calls` forwards on one slot's present inputs, timed by the parent around the message."""

    def null_batch(self, calls: int, deadline_s: float | None = None) -> Batch:
        """The same with a call that does nothing: what to subtract."""

    def peak_bytes(self, name: str, deadline_s: float | None = None) -> int:
        """Extra resident memory at the peak of one call, free memory having been given back before.

        Resolution is a huge page (2 MiB). Leaves output memory cold: warm up again before timing.
        """

    def usage(self) -> Usage:
        """What /proc says of it now; asked without the worker's help."""

    @property
    def log(self) -> str:
        """Tail of its standard streams so far."""

    @property
    def is_alive(self) -> bool:
        """Whether its main process still lives."""

    def kill(self) -> None:
        """Kill it with all descendants, verify that they and the scratch folder are gone. Idempotent.

        Raises:
            WorkerError: A process or file survived.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
