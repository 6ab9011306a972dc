"""Owns the digest of what bounds a GPU kernel: the same few figures as of one for the processor."""

from typing import Any

from evokernel.bench.gpu.advice import advice
from evokernel.bench.gpu.case import Case, Evidence, Floors
from evokernel.bench.gpu.figures import STALLS, TENSOR_SHARE, figures
from evokernel.bench.gpu.trace import Trace
from evokernel.profile import Bound, Limit, Profile

# The constants are ours; the planted kernels of `tests/test_gpu_profile.py` lie far on either side.
BOUND_SHARE = 0.6
"""Share of a rate from which on it counts as what bounds a kernel; tuned kernels reach 0.9."""
NEAR_SHARE = 0.4
"""The same where only the measured time is known: it includes launches and cold caches."""
LAUNCH_SHARE, OVERHEAD_SHARE = 0.5, 0.2
"""Share of a call outside kernels that makes it bound by launches, and that is worth a remark."""
MANY_LAUNCHES = 8
SHORT_S = 5e-6
"""A kernel that takes less is over before the next can be sent: its launch is what it costs."""
FULL_WAVE, FEW_WAVES, IDLE_SHARE = 1.0, 4.0, 0.25
"""Below so many waves, a last one that leaves such a share of the device idle is worth a remark."""
LOW_OCCUPANCY = 0.4
BARRIER_SHARE, SHARED_SHARE = 0.25, 0.3
"""Shares of stalls that are worth a remark."""
SECTOR_USE = 0.5
LOCAL_SHARE = 0.05
"""Local memory's traffic as a share of all, from which on spills are worth a remark."""
EXTRA = 1.5
"""Traffic over the least from which on it is worth a remark."""
_SHARED_STALLS = frozenset({"short scoreboard", "mio throttle"})


def digest(median_ms: float, floors: Floors, evidence: Evidence | None = None) -> Profile:
    """Place one candidate under the roofline, and say what keeps it from the roof.

    Args:
        median_ms: Time of one call on the device with cold caches, milliseconds.
        floors: Least times.
        evidence: None where it could not be replayed.
    """
    case = Case(median_ms, floors, evidence or Evidence(trace=Trace(calls=1, call_s=0.0)))
    limits = tuple(name for name, holds in _checks(case) if holds)
    bound_by = _bound_by(case)
    if bound_by != "latency":  # hiding what nobody waits for would not help
        limits = tuple(name for name in limits if name != "low-occupancy")
    return Profile(
        bound_by=bound_by,
        roofline_share=case.roof,
        gbytes_per_s=_rate(floors.min_bytes, median_ms),
        gflops=_rate(floors.flops, median_ms),
        limits=limits,
        notes=(*advice(bound_by, limits), *figures(case)),
        **_measured(case),
    )


def _rate(amount: int | None, milliseconds: float) -> float | None:
    """In 1e9 a second."""
    return None if amount is None else 1e-6 * amount / milliseconds


def _checks(case: Case) -> tuple[tuple[Limit, bool], ...]:
    """What costs time, the most expensive first."""
    launches, overhead = case.found.trace.launches, case.overhead or 0.0
    return (
        ("many-launches", launches >= MANY_LAUNCHES and _is_short(case)),
        ("call-overhead", overhead >= OVERHEAD_SHARE),
        ("few-blocks", case.waves is not None and _fills_less(case)),
        ("spills", _has_spills(case)),
        ("uncoalesced", 0 < ((case.counted and case.counted.sector_use) or 0.0) < SECTOR_USE),
        ("extra-traffic", (case.traffic_ratio or 0.0) >= EXTRA),
        ("no-tensor-cores", _lacks_tensor_cores(case)),
        ("barriers", case.waiting("barrier") >= BARRIER_SHARE),
        ("shared-memory", case.waiting(*_SHARED_STALLS) >= SHARED_SHARE),
        ("low-occupancy", (case.occupancy_limit or 1.0) < LOW_OCCUPANCY),
        ("partial-wave", _leaves_idle(case)),
    )


def _is_short(case: Case) -> bool:
    """Its launches cost as much as its kernels."""
    trace = case.found.trace
    return (case.overhead or 0.0) >= OVERHEAD_SHARE or trace.device_s < SHORT_S * trace.launches


def _fills_less(case: Case) -> bool:
    """Fewer blocks than multiprocessors, or than half of what they can hold at a time."""
    told = case.counted or case.longest
    blocks = told.blocks if told else 0
    return blocks < case.found.multiprocessors or (case.waves or 0.0) < FULL_WAVE / 2


def _leaves_idle(case: Case) -> bool:
    if case.waves is None or not FULL_WAVE < case.waves < FEW_WAVES:
        return False
    whole = -(-case.waves // 1)
    return 1 - case.waves / whole >= IDLE_SHARE


def _has_spills(case: Case) -> bool:
    """Spilled by the compiler, and no trifle where the traffic is known."""
    resources, counted = case.resources, case.counted
    spilled = resources.spill_stores + resources.spill_loads if resources else 0
    if counted is None or counted.local_bytes is None:
        return spilled > 0
    everything = (counted.dram_bytes or 0.0) + counted.local_bytes
    return counted.local_bytes > LOCAL_SHARE * everything


def _lacks_tensor_cores(case: Case) -> bool:
    floors, share = case.floors, case.mean("tensor_share")
    is_arithmetic = (floors.compute_ms or 0.0) > (floors.memory_ms or 0.0)
    return floors.has_products and is_arithmetic and share is not None and share < TENSOR_SHARE


def _bound_by(case: Case) -> Bound:
    if (case.overhead or 0.0) >= LAUNCH_SHARE:
        return "launch"
    memory, compute = case.mean("memory_share") or 0.0, case.mean("compute_share") or 0.0
    if max(memory, compute) >= BOUND_SHARE:
        return "memory" if memory >= compute else "compute"
    if (case.roof or 0.0) >= NEAR_SHARE:
        return "memory" if (case.memory or 0.0) >= (case.compute or 0.0) else "compute"
    return "unknown" if case.roof is None and not case.found.counters else "latency"


def _measured(case: Case) -> dict[str, Any]:
    counted, told, resources = case.counted, case.counted or case.longest, case.resources
    registers = told.registers if told else resources.registers if resources else 0
    return {
        "overhead_share": _rounded(case.overhead),
        "launches": case.found.trace.launches if case.longest else None,
        "registers": registers or None,
        "spills": resources.spill_stores + resources.spill_loads if resources else None,
        "occupancy": _rounded(case.mean("occupancy")),
        "occupancy_limit": _rounded(case.occupancy_limit),
        "occupancy_limited_by": case.limited_by,
        "traffic_ratio": _rounded(case.traffic_ratio),
        "tensor_share": _rounded(case.mean("tensor_share")),
        "stalls": counted.stalls[:STALLS] if counted else (),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
