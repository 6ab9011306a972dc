"""Owns what to do next about a GPU kernel, by what bounds it and what costs it time."""

from evokernel.profile import Bound, Limit

_NEXT: dict[Bound | Limit, str] = {
    "memory": "move fewer bytes (fuse neighbours, read once and keep it in registers or shared "
    "memory, narrower types); less arithmetic will not help",
    "compute": "do less arithmetic (cheaper approximations, fewer conversions and divisions) or "
    "more of it at a time (tensor cores, packed half-precision, multiply-adds)",
    "latency": "neither memory nor arithmetic is busy, warps wait: keep more loads in flight "
    "(16-byte accesses, several independent ones a thread), and more warps or blocks",
    "launch": "the way to the kernels takes longer than their work: fuse them into fewer, or "
    "capture the call in a CUDA graph (with inputs copied in), and do less in Python",
    "many-launches": "it launches many kernels a call: fuse them, or loop inside one kernel",
    "call-overhead": "much of a call is spent outside its kernels: allocate once, call less "
    "Python, launch less",
    "few-blocks": "its grid does not fill the device: split rows or the reduction over more "
    "blocks, or take smaller blocks",
    "partial-wave": "its last wave of blocks leaves much of the device idle: take a persistent "
    "grid, or another size of blocks",
    "low-occupancy": "few warps hide the waiting: use fewer registers (`__launch_bounds__`, "
    "smaller tiles) or less shared memory, or keep more independent loads in flight in each thread",
    "spills": "registers spill into local memory: take smaller tiles, unroll less, index arrays "
    "with constants only, or allow more registers a thread",
    "uncoalesced": "it uses a part of what it fetches: have the threads of a warp access "
    "neighbouring addresses, aligned to 16 bytes, or go through shared memory",
    "barriers": "warps wait at barriers: synchronise less often or smaller groups (a warp's "
    "shuffles need none), and overlap loading with computing",
    "shared-memory": "warps wait for shared memory: avoid bank conflicts (padding or swizzling), "
    "access it 16 bytes wide, keep more in registers",
    "no-tensor-cores": "the products do not run on the tensor cores: use `tl.dot`, `mma.sync` or "
    "WMMA, at a precision that the task allows",
    "atomics": "atomic operations serialise: reduce in registers and in the block first",
    "extra-traffic": "it moves more than the task needs: merge passes over the data, keep what is "
    "read twice on the chip",
}
"""A sentence each; those of a bound go without its name, which stands beside."""


def advice(bound_by: Bound, limits: tuple[Limit, ...]) -> tuple[str, ...]:
    """What to do next, a sentence each."""
    return tuple(_NEXT[name] for name in dict.fromkeys((bound_by, *limits)) if name in _NEXT)
