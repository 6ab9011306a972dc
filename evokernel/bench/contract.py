"""Owns the question who did the work: the candidate's own kernels, or the library's operators.

What counts is what `forward` dispatched and launched while it ran, not what its text says.
"""

from typing import Literal

from evokernel.bench.messages import Outcome
from evokernel.evaluation import Contract

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
    """The dispatched operators that compute, sorted; views, allocation and movement left out."""
    return tuple(sorted(name for name in operators if not _is_harmless(name)))


def moving(operators: dict[str, int]) -> tuple[str, ...]:
    """The dispatched operators that only move data, sorted."""
    return tuple(sorted(name for name in operators if _base(name) in MOVEMENT))


def judge(policy: Policy, outcome: Outcome) -> Contract:
    """Judge one instrumented call.

    Coverage is the time inside the candidate's own kernels over the time of the call. Where neither
    a kernel of its own nor an operator of the library was seen, as with extensions that were built
    by other means, it is unknown.
    """
    calls = computing(outcome.operators)
    own = tuple(sorted({launch.kernel for launch in outcome.launches}))
    inside = sum(launch.seconds for launch in outcome.launches)
    is_seen = bool(own or calls)
    coverage = min(1.0, inside / outcome.seconds) if is_seen and outcome.seconds > 0 else None
    return Contract(
        policy=policy,
        is_kept=policy == "library_allowed" or (bool(own) and not calls),
        library_calls=calls,
        own_kernels=own,
        coverage=coverage,
    )


def breach(contract: Contract) -> str:
    """Say in words why a contract is not kept."""
    if contract.library_calls:
        shown = ", ".join(f"`{name}`" for name in contract.library_calls[:5])
        return f"`forward` let the library compute ({shown}); the task allows own kernels only"
    return "`forward` launched no kernel of its own; the task allows own kernels only"


FLUSHES = (
    "loading it switched the process to flushing denormal numbers to zero, which changes the "
    "results of everything that runs beside it (a fast-math flag does that)"
)
"""Why a library that changes the whole process is refused."""


def _is_harmless(name: str) -> bool:
    base = _base(name)
    return base in ALLOCATION | MOVEMENT | METADATA | RESHAPING or _is_view(name)


def _base(name: str) -> str:
    """`aten.add.Tensor` is `add`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else name


def _is_view(name: str) -> bool:
    """Whether an operator returns its argument's memory without writing to it."""
    import torch

    found: object = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    schema = getattr(found, "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    aliases = [result.alias_info for result in schema.returns]
    return bool(aliases) and all(alias is not None for alias in aliases)
