"""Owns the profile of a candidate that passed on a GPU, made of what its session knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from evokernel.bench.gpu.case import Evidence, Floors
from evokernel.bench.gpu.digest import digest
from evokernel.bench.gpu.look import Lookout
from evokernel.bench.gpu.parcel import Parcel
from evokernel.bench.gpu.player import Job
from evokernel.bench.gpu.replay import ReplayFailed, bundle
from evokernel.bench.messages import Faulted
from evokernel.bench.roofline import Roofline
from evokernel.bench.tensors import Package, pack
from evokernel.errors import WorkerError
from evokernel.opgraph import OpGraph
from evokernel.profile import Profile
from evokernel.program import CASTS

if TYPE_CHECKING:
    from evokernel.attempt import Candidate
    from evokernel.bench.oracle import Case
    from evokernel.bench.session import Session

_PRODUCTS = frozenset({"contraction", "convolution", "attention", "recurrent"})


def profile(session: Session, lookout: Lookout, candidate: Candidate, median_ms: float) -> Profile:
    """The digest of a candidate that passed; where it fails now, by its time alone.

    Args:
        session: Where it was judged.
        lookout: Replays it.
        candidate: It passed.
        median_ms: Time of one call on the device with cold caches, milliseconds.
    """
    least = floors(session.graph, session.device, session.task.options.precision)
    evidence: Evidence | None = None
    trouble: tuple[str, ...] = ()
    try:
        with job(session, candidate, session.oracle.timed_cases()[:1]) as what:
            report = tuple(r for _, artefact in what.kernels for r in artefact.resources)
            evidence = lookout.examine(what, report)
    except (Faulted, ReplayFailed, WorkerError) as error:
        # It passed: what goes wrong now costs the evidence, not the verdict.
        trouble = (f"it could not be replayed: {error}",)
    found = digest(median_ms, least, evidence)
    return found.model_copy(update={"notes": (*found.notes, *trouble)})


@contextmanager
def job(session: Session, candidate: Candidate, cases: Sequence[Case]) -> Iterator[Job]:
    """What a replay of a candidate is told; valid inside the block.

    Args:
        session: Where it was judged.
        candidate: What is replayed.
        cases: Whose inputs it is called on, one after the other.

    Raises:
        Faulted: It cannot be loaded any more.
    """
    oracle, options = session.oracle, session.task.options
    state = oracle.reference.state
    making = (list(oracle.init_args), dict(oracle.init_kwargs), state and dict(state))
    with ExitStack() as stack:
        hosted = [_hosted(oracle.package(case), stack) for case in cases]
        yield Job(
            source=candidate.source,
            mode=options.mode,
            dtype=CASTS.get(options.precision),
            seed=oracle.reference.weights_seed,
            device=session.gpu or 0,
            is_tf32=options.precision == "tf32",
            making=bundle(stack.enter_context(pack(making))),
            inputs=tuple(map(bundle, hosted)),
            kernels=tuple((one.kernel, one.artefact) for one in session.built(candidate)),
        )


def floors(graph: OpGraph | None, device: Roofline, precision: str) -> Floors:
    """The least times of a task on a device; unknown where its reference could not be captured.

    Args:
        graph: Work and least traffic of the reference.
        device: Measured peaks, at the task's precision.
        precision: The task's; at `fp32` tensor cores are no choice.
    """
    if graph is None:
        return Floors(peaks=device.in_words())
    return Floors(
        memory_ms=device.memory_floor_ms(graph.min_bytes),
        compute_ms=device.compute_floor_ms(graph.flops),
        min_bytes=graph.min_bytes,
        flops=graph.flops,
        peaks=device.in_words(),
        has_products=graph.family in _PRODUCTS and precision != "fp32",
    )


def _hosted(package: Package, stack: ExitStack) -> Package:
    """The same in memory of the host, which every process of ours can open."""
    return stack.enter_context(package.hosted()) if isinstance(package, Parcel) else package
