"""Owns the question who did the work: the candidate's own kernels, or the library's operators.

What counts is what ran: what `forward` dispatched and launched by the worker's log, and what the
parent saw from outside. What the text says counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from evokernel.bench.evidence import Evidence
from evokernel.bench.gpu import traced
from evokernel.bench.messages import Outcome
from evokernel.evaluation import Contract, KernelOrigin

Policy = Literal["own_kernels_only", "library_allowed"]

ALLOCATION = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"),
        *("new_empty_strided", "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones"),
        *("full", "full_like", "new_full", "scalar_tensor", "lift_fresh", "lift_fresh_copy"),
        *("resize_", "set_", "_efficientzerotensor"),
    }
)
"""Operators that make memory, filled with a constant at most."""
MOVEMENT = frozenset(
    {"clone", "contiguous", "copy", "copy_", "_copy_from", "_to_copy", "to", "fill_", "zero_"}
)
"""Operators that move data and compute nothing; allowed, but noted."""
METADATA = frozenset(
    {
        *("size", "stride", "storage_offset", "numel", "dim", "sym_size", "sym_stride"),
        *("sym_numel", "sym_storage_offset", "is_contiguous", "is_same_size", "is_pinned"),
        *("_local_scalar_dense", "item", "_has_same_storage_numel"),
    }
)
"""Operators that look at a tensor's description, or at one number."""
RESHAPING = frozenset({"_reshape_alias", "_unsafe_view", "reshape", "_reshape_copy"})
"""Views that their schema does not show as such."""


def computing(operators: dict[str, int]) -> tuple[str, ...]:
    """The dispatched operators that compute, sorted; views, allocation and movement left out.

    Those that it registered itself are no library's: what they dispatch stands beside them.
    """
    return tuple(sorted(n for n in operators if not (_is_harmless(n) or _found(n) is None)))


def moving(operators: dict[str, int]) -> tuple[str, ...]:
    """The dispatched operators that only move data, sorted."""
    return tuple(sorted(name for name in operators if _base(name) in MOVEMENT))


def judge(policy: Policy, outcome: Outcome, evidence: Evidence) -> Contract:
    """Judge one instrumented call, and what was seen of the worker from outside.

    Args:
        policy: Who may compute.
        outcome: The call whose operators and launches were logged.
        evidence: What the parent saw.
    """
    calls = computing(outcome.operators)
    launched = tuple(sorted({launch.kernel for launch in outcome.launches}))
    origins = tuple(_origin(name, evidence) for name in launched if name in evidence.offered)
    own = tuple(o.kernel for o in origins if o.is_needed is not False) + evidence.extensions
    own += tuple(name for name in launched if name in evidence.declared)
    broken = (*evidence.tampering, *_breaches(policy, outcome, calls, own, evidence))
    coverage, source = _coverage(outcome, calls, own, evidence)
    return Contract(
        policy=policy,
        is_kept=not broken,
        library_calls=calls,
        own_kernels=own,
        coverage=coverage,
        coverage_from=source,
        origins=origins,
        libraries=evidence.samples.times() if evidence.samples else (),
        is_needed=evidence.is_needed,
        breaches=broken,
        notes=(*evidence.notes, *_unaccounted(launched, evidence)),
        hints=evidence.hints,
    )


def breach(contract: Contract) -> str:
    """Say in words why a contract is not kept."""
    return contract.breaches[0] if contract.breaches else ""


FLUSHES = (
    "loading it switched the process to flushing denormal numbers to zero, which changes the "
    "results of everything that runs beside it (a fast-math flag does that)"
)
"""Why a library that changes the whole process is refused."""


def _breaches(
    policy: Policy,
    outcome: Outcome,
    calls: tuple[str, ...],
    own: tuple[str, ...],
    evidence: Evidence,
) -> Iterator[str]:
    if policy == "library_allowed":
        return
    if calls:
        shown = ", ".join(f"`{name}`" for name in calls[:5])
        yield f"`forward` let the library compute ({shown}); the task allows own kernels only"
    if evidence.is_needed is False:
        yield (
            "its kernels can be deleted without changing the result: they did not do the work; the "
            "task allows own kernels only"
        )
    yield from evidence.foreign_code
    yield from evidence.foreign_time(
        sum(outcome.operators.values()), bool(moving(outcome.operators))
    )
    yield from evidence.foreign_imports
    yield from _foreign_kernels(evidence, own)
    if not own:
        yield "`forward` launched no kernel of its own; the task allows own kernels only"


def _foreign_kernels(evidence: Evidence, own: tuple[str, ...]) -> Iterator[str]:
    """What the trace of its GPU shows of kernels that are not its own."""
    if evidence.trace is None or (found := traced.foreign(evidence.trace, own)) is None:
        return
    name, share = found
    yield (
        f"{share:.0%} of its time on the GPU passes in kernels that were not built from its "
        f"source, most of it in `{name:.80}`; the task allows own kernels only"
    )


def _coverage(
    outcome: Outcome, calls: tuple[str, ...], own: tuple[str, ...], evidence: Evidence
) -> tuple[float | None, Literal["samples", "launches", "trace"] | None]:
    """Share of the call inside the candidate's own kernels, and who says so.

    By the log it is unknown where neither a kernel of its own nor an operator of the library was
    seen, as with extensions that were built by other means.
    """
    if evidence.samples is not None and (seen := evidence.coverage(own)) is not None:
        return seen, "samples"
    if evidence.trace is not None:
        return traced.coverage(evidence.trace, own), "trace"
    if evidence.is_on_gpu:
        # The log says when the host launched, not how long a kernel ran; where all are its own and
        # nothing else was dispatched, the time is theirs.
        is_alone = bool(own) and not calls and not moving(outcome.operators)
        return (1.0, "launches") if is_alone else (None, None)
    counted = [launch.seconds for launch in outcome.launches if launch.kernel in own]
    if not (counted or calls) or outcome.seconds <= 0:
        return None, None
    return min(1.0, sum(counted) / outcome.seconds), "launches"


def _origin(name: str, evidence: Evidence) -> KernelOrigin:
    handed = evidence.offered[name]
    is_needed = evidence.needed.get(name)
    return KernelOrigin(
        kernel=name, file=handed.kernel.name, key=handed.artefact.key, is_needed=is_needed
    )


def _unaccounted(launched: tuple[str, ...], evidence: Evidence) -> Iterator[str]:
    known = {*evidence.offered, *evidence.declared}
    if strangers := [name for name in launched if name not in known]:
        shown = ", ".join(f"`{name}`" for name in strangers[:5])
        yield f"its log names kernels that no built source offers ({shown}); they count for nothing"
    if idle := [name for name in launched if evidence.needed.get(name) is False]:
        shown = ", ".join(f"`{name}`" for name in idle[:5])
        yield f"deleting {shown} changes no bit of the result; such kernels are not counted as own"


def _is_harmless(name: str) -> bool:
    base = _base(name)
    return base in ALLOCATION | MOVEMENT | METADATA | RESHAPING or _is_view(name)


def _base(name: str) -> str:
    """`aten.add.Tensor` is `add`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else name


def _is_view(name: str) -> bool:
    """Whether an operator returns its argument's memory without writing to it."""
    schema = getattr(_found(name), "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    aliases = [result.alias_info for result in schema.returns]
    return bool(aliases) and all(alias is not None for alias in aliases)


def _found(name: str) -> object | None:
    """The operator, as this process knows it, into which no candidate was ever imported."""
    import torch

    found: object | None = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
