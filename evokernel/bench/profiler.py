"""Owns the digest of what bounds a kernel: a few figures and what to do next, not a dump."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evokernel.bench.device import DeviceFacts
from evokernel.bench.probes import ONE_CORE, Evidence
from evokernel.compilers.assembly import Loop
from evokernel.opgraph import OpGraph
from evokernel.profile import Bound, Limit, Profile

# The constants are ours; the kernels of `tests/test_profile.py` lie far on either side of them.
BOUND_SHARE = 0.35
"""Share of a roof from which on a kernel counts as bound by it, half of what tuned kernels reach
on shared machines."""
LAUNCH_MS = 0.05
"""Without evidence: shorter calls spend much of their time in Python and in waking threads."""
LAUNCH_SHARE = 0.5
"""Share of a call outside the kernels' work that makes it bound by launches."""
OVERHEAD_SHARE = 0.2
"""Share that is worth a remark."""
MANY_LAUNCHES = 8
SLOWER_TOGETHER, SLOWER_WHEN_BUSY = 0.85, 0.5
"""Below this ratio of the times with one and with all threads, threads are in each other's way; on
a busy machine others may have been."""
WAITING_SHARE = 0.25
"""Share of the threads' time spent waiting for others that is worth a remark."""
SPILL_SHARE, LEAST_SPILLS = 0.1, 4
"""Share, and number, of a hot loop's instructions that go to the stack."""
BUSY = "the machine was busy meanwhile: what threads do to each other is uncertain"
DENSE = 2.0
"""Arithmetic instructions for each access to memory from which on arithmetic is what takes time."""


def digest(
    median_ms: float, graph: OpGraph | None, device: DeviceFacts, evidence: Evidence | None = None
) -> Profile:
    """Place one kernel under the roofline, and say what keeps it from the roof.

    Args:
        median_ms: Time of one call with cold caches.
        graph: Work and least traffic of the reference; None leaves both unknown.
        device: Measured peaks.
        evidence: What short runs and the built library say; None where there are none.
    """
    roofs = _roofs(median_ms, graph, device, evidence)
    case = _Case(roofs, evidence, _overhead(evidence, device)) if evidence else None
    limits = _limits(case) if case else ()
    bound_by = _bound_by(case, limits) if case else _by_roofs(median_ms, roofs)
    if case and bound_by == "memory" and roofs and roofs.memory < BOUND_SHARE:
        limits = (*limits, "extra-traffic")
    return Profile(
        bound_by=bound_by,
        roofline_share=roofs.best if roofs else None,
        gbytes_per_s=1e-6 * graph.min_bytes / median_ms if graph else None,
        gflops=1e-6 * graph.flops / median_ms if graph else None,
        limits=limits,
        notes=(*advice(bound_by, limits), *_figures(roofs, device, evidence)),
        **(_measured(case) if case else {}),
    )


@dataclass(frozen=True)
class _Roofs:
    """Shares of the two roofs that a kernel reaches."""

    memory: float
    compute: float

    @property
    def best(self) -> float:
        return max(self.memory, self.compute)

    @property
    def is_near(self) -> bool:
        return self.best >= BOUND_SHARE


@dataclass(frozen=True)
class _Case:
    """What a verdict rests on."""

    roofs: _Roofs | None
    found: Evidence
    overhead: float
    """Share of a warm call in Python, in the allocator, and in waking threads."""

    @property
    def is_parallel(self) -> bool:
        """Several threads are at work for long enough to say how well."""
        return self.overhead < LAUNCH_SHARE and self.found.cores >= ONE_CORE


def _roofs(
    median_ms: float, graph: OpGraph | None, device: DeviceFacts, found: Evidence | None
) -> _Roofs | None:
    """The better of cold caches, where all comes from memory, and of warm ones, where it may not.

    The rate is the best one measured at the working set's size, or beyond all caches.
    """
    if graph is None:
        return None
    memory = device.memory_floor_ms(graph.min_bytes) / median_ms
    compute = device.compute_floor_ms(graph.flops) / median_ms
    if found:
        warm_ms, beyond = 1e3 * found.call_s, device.rates[-1].working_set
        cold = device.memory_floor_ms(graph.min_bytes, working_set=beyond) / median_ms
        # Writes may stay in the caches, so that little data can be faster than memory.
        memory = max(min(cold, 1.0), device.memory_floor_ms(graph.min_bytes) / warm_ms)
        compute = max(compute, device.compute_floor_ms(graph.flops) / warm_ms)
    return _Roofs(memory, compute)


def _overhead(found: Evidence, device: DeviceFacts) -> float:
    spent = found.call_s - found.inside_s + found.launches * device.region_s
    return max(0.0, min(1.0, spent / found.call_s))


def _limits(case: _Case) -> tuple[Limit, ...]:
    """What costs time, the most expensive first."""
    found, overhead = case.found, case.overhead
    is_alone = found.threads > 1 and overhead < LAUNCH_SHARE and found.cores < ONE_CORE
    is_alone = is_alone and found.is_calm  # else others may have had its core
    checks: tuple[tuple[Limit, bool], ...] = (
        ("many-launches", overhead >= OVERHEAD_SHARE and found.launches >= MANY_LAUNCHES),
        ("call-overhead", overhead >= OVERHEAD_SHARE),
        ("contention", _is_contended(case)),
        ("one-thread", is_alone),
        ("imbalance", case.is_parallel and (found.waiting or 0.0) >= WAITING_SHARE),
        *_code_limits(found.loop),
    )
    return tuple(name for name, holds in checks if holds)


def _is_contended(case: _Case) -> bool:
    """Slower together than alone; near the memory roof, that may be memory's doing."""
    scaling = case.found.scaling
    if scaling is None or not case.is_parallel or (case.roofs and case.roofs.is_near):
        return False
    return scaling < (SLOWER_TOGETHER if case.found.is_calm else SLOWER_WHEN_BUSY)


def _code_limits(loop: Loop | None) -> tuple[tuple[Limit, bool], ...]:
    """What the hottest loop's instructions say."""
    if loop is None:
        return ()
    has_spills = loop.spills >= max(LEAST_SPILLS, SPILL_SHARE * loop.instructions)
    return (
        ("atomics", loop.atomics > 0),
        ("spills", has_spills),
        ("scalar-calls", bool(loop.calls)),
        ("not-vectorized", loop.scalar > 0 and loop.vector == 0 and not loop.calls),
        ("gathers", loop.gathers > 0),
    )


def _by_roofs(median_ms: float, roofs: _Roofs | None) -> Bound:
    """Without evidence, times alone."""
    if roofs is None:
        return "unknown"
    if roofs.is_near:
        return "memory" if roofs.memory >= roofs.compute else "compute"
    return "launch" if median_ms < LAUNCH_MS else "latency"


def _bound_by(case: _Case, limits: tuple[Limit, ...]) -> Bound:
    if case.overhead >= LAUNCH_SHARE:
        return "launch"
    if "contention" in limits:
        return "contention"
    if case.roofs and case.roofs.is_near:
        return "memory" if case.roofs.memory >= case.roofs.compute else "compute"
    if case.found.loop is None:
        return "latency" if case.roofs else "unknown"
    return _by_code(case.found.loop, limits)


def _by_code(loop: Loop, limits: tuple[Limit, ...]) -> Bound:
    """Far from both roofs, the instructions say what takes the time."""
    if {"atomics", "spills", "not-vectorized", "gathers"} & set(limits):
        return "latency"
    if loop.calls or loop.vector >= DENSE * max(loop.accesses, 1):
        return "compute"  # more arithmetic than the reference's operations tell, as in exp
    return "memory" if loop.accesses >= loop.vector > 0 else "latency"


def _measured(case: _Case) -> dict[str, Any]:
    found, loop = case.found, case.found.loop
    return {
        "overhead_share": round(case.overhead, 4),
        "thread_scaling": _rounded(found.scaling),
        "busy_cores": round(found.cores, 3),
        "waiting_share": _rounded(found.waiting),
        "vector_bits": loop.vector_bits if loop else None,
        "spills": loop.spills if loop else None,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


_NEXT: dict[Bound | Limit, str] = {
    "memory": "move fewer bytes (fuse neighbours, read once, keep blocks in cache, narrower types) "
    "or store past the caches; less arithmetic will not help",
    "compute": "do less arithmetic (cheaper approximations, fewer conversions and divisions) or "
    "more of it at a time (wider vectors, multiply-adds, independent chains)",
    "latency": "instructions wait for each other: unroll with independent accumulators, and give "
    "the processor more loads in flight",
    "launch": "the way to the kernels takes longer than their work: do it in one call, with fewer "
    "parallel regions and less Python",
    "contention": "more threads make it slower: look for false sharing (neighbouring elements "
    "written by several threads), atomics and locks, and give each thread accumulators of its own",
    "many-launches": "it launches many kernels a call: move the loop over them into one kernel",
    "call-overhead": "much of a call is overhead: allocate once, call less Python, use fewer "
    "threads for little work",
    "one-thread": "one thread does all the work: share the outermost loop with `#pragma omp "
    "parallel for`",
    "imbalance": "threads wait for the slowest: share the work in smaller or more even pieces "
    "(`collapse`, `schedule(dynamic)`)",
    "spills": "registers spill in the hottest loop: use fewer accumulators or unroll less",
    "not-vectorized": "the hottest loop is not vectorised: make its accesses contiguous, its "
    "reductions explicit (`omp simd reduction`, several accumulators), its pointers `__restrict`",
    "scalar-calls": "the hottest loop calls a function for each element: inline it, or use a "
    "vectorised form of it",
    "atomics": "the hottest loop has atomic instructions: let each thread reduce by itself first",
    "gathers": "the hottest loop gathers single elements: change layout or loop order so that "
    "vectors are contiguous",
    "extra-traffic": "it moves more than the task needs: merge sweeps, and avoid strides that "
    "waste cache lines",
}
"""What to do next, a sentence each; those of a bound go without its name, which stands beside."""


def advice(bound_by: Bound, limits: tuple[Limit, ...]) -> tuple[str, ...]:
    """What to do next, a sentence each."""
    named = dict.fromkeys((bound_by, *limits))
    return tuple(_NEXT[name] for name in named if name in _NEXT)


def _figures(roofs: _Roofs | None, device: DeviceFacts, found: Evidence | None) -> tuple[str, ...]:
    """What the words rest on."""
    said = [_in_words(roofs, device)]
    if found:
        said += [_calls(found), *_loop(found), _counters(found)]
    return tuple(said)


def _in_words(roofs: _Roofs | None, device: DeviceFacts) -> str:
    if roofs is None:
        return "the reference could not be captured, so that its work and traffic are unknown"
    return (
        f"{roofs.memory:.0%} of the memory roof and {roofs.compute:.0%} of the float32 arithmetic "
        f"roof of {device.in_words()}"
    )


def _calls(found: Evidence) -> str:
    inside = found.inside_s / found.call_s
    said = f"warm, a call takes {1e3 * found.call_s:.4g} ms, {inside:.0%} of it inside its kernels "
    said += f"({found.launches:g} launches), and keeps {found.cores:.1f} of {found.threads} cores"
    said += " busy"
    if found.scaling is not None:
        said += f"; {found.threads} threads are {found.scaling:.2f}x as fast as one"
    if found.waiting is not None:
        said += f"; threads wait for each other {found.waiting:.0%} of the time"
    return said if found.is_calm else f"{said} ({BUSY})"


_NO_LOOP = "the built library has no loop, or cannot be read here: no word on vectors and registers"


def _loop(found: Evidence) -> tuple[str, ...]:
    loop = found.loop
    if loop is None:
        return (_NO_LOOP,)
    share = "" if found.loop_share is None else f" ({found.loop_share:.0%} of the samples)"
    width = f" of {loop.vector_bits} bits" if loop.vector_bits else ""
    calls = f", calls {', '.join(loop.calls)}" if loop.calls else ""
    return (
        f"hottest loop{share}, in `{loop.function}`: {loop.instructions} instructions, "
        f"{loop.vector} vector arithmetic{width}, {loop.scalar} scalar, {loop.accesses} memory, "
        f"{loop.spills} stack{calls}",
    )


def _counters(found: Evidence) -> str:
    counts = dict(found.counts)
    if not counts.get("cycles"):
        return found.refusal
    rate = counts.get("instructions", 0) / counts["cycles"]
    misses = counts.get("cache-misses", 0) / max(counts.get("instructions", 0), 1)
    return f"{rate:.2f} instructions a cycle, {1e3 * misses:.2f} cache misses in a thousand of them"
