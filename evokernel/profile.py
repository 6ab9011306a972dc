"""Owns `Profile`: what bounds a kernel, in a few figures and words."""

from typing import Literal

from evokernel.frozen import Frozen

Bound = Literal["memory", "compute", "latency", "launch", "contention", "unknown"]
"""What a kernel's time is bound by."""
Limit = Literal[
    "call-overhead",
    "many-launches",
    "contention",
    "one-thread",
    "imbalance",
    "spills",
    "not-vectorized",
    "scalar-calls",
    "atomics",
    "gathers",
    "extra-traffic",
    "few-blocks",
    "partial-wave",
    "low-occupancy",
    "uncoalesced",
    "barriers",
    "shared-memory",
    "no-tensor-cores",
]
"""What costs a kernel time, in the words of the field; from `few-blocks` on, of GPUs only."""


class Stall(Frozen):
    """One thing that the warps of a GPU kernel wait for."""

    reason: str
    """In the words of Nsight Compute, e.g. `long scoreboard`."""
    share: float
    """Share of the warps' time between two instructions, 0..1."""


class Profile(Frozen):
    """A short digest of what bounds the kernel."""

    bound_by: Bound
    """What limits it: a roof of the device (`memory`, `compute`), instructions that wait for each
    other (`latency`), the way to the kernels (`launch`), threads in each other's way
    (`contention`)."""
    roofline_share: float | None
    """Achieved share of the roofline, 0..1."""
    gbytes_per_s: float | None = None
    """Achieved traffic by the task's minimum bytes, GB/s (1e9 bytes)."""
    gflops: float | None = None
    """Achieved arithmetic by the task's operation count, GFLOP/s."""
    limits: tuple[Limit, ...] = ()
    """What else was found that costs time, the most expensive first."""
    overhead_share: float | None = None
    """Share of a call outside its own kernels' work: Python, allocation, launches; 0..1."""
    thread_scaling: float | None = None
    """Time of a call with one thread over that with all; None where they cannot be set."""
    busy_cores: float | None = None
    """Cores that a call keeps busy on average, waiting threads that spin included."""
    waiting_share: float | None = None
    """Share of its threads' time inside kernels that is spent waiting for other threads; None where
    sampling is not permitted."""
    vector_bits: int | None = None
    """Width of the vectors in its hottest loop's arithmetic, 0 for none; None if unknown."""
    spills: int | None = None
    """Instructions of its hottest loop that move values between registers and stack; on a GPU,
    bytes that each thread of its longest kernel stores and loads because registers ran out."""
    launches: float | None = None
    """Kernels of any author that a call launches on a GPU."""
    registers: int | None = None
    """32-bit registers of each thread of its longest kernel on a GPU."""
    occupancy: float | None = None
    """Share of the places for warps that its kernels fill on average, 0..1; None where counters may
    not be read."""
    occupancy_limit: float | None = None
    """The share that registers, shared memory and block size allow at most."""
    occupancy_limited_by: str = ""
    """Which of these; empty where nothing does."""
    traffic_ratio: float | None = None
    """Bytes moved to and from a GPU's memory over the least that the task needs."""
    tensor_share: float | None = None
    """Share of the tensor cores' rate, 0..1."""
    stalls: tuple[Stall, ...] = ()
    """What its warps wait for, the most frequent first."""
    notes: tuple[str, ...] = ()
    """What it means and what to do next, a sentence each; then what the figures rest on."""
