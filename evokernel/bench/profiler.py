"""Owns the digest of what bounds a kernel: a few figures, not a dump."""

from pathlib import Path
from typing import Literal

from evokernel.bench.device import DeviceFacts
from evokernel.evaluation import Profile
from evokernel.opgraph import OpGraph

Bound = Literal["memory", "compute", "latency", "launch"]

BOUND_SHARE = 0.35
"""Share of a roof from which on a kernel counts as bound by it; ours, half of what tuned kernels
reach on shared machines."""
LAUNCH_MS = 0.05
"""Calls shorter than this spend much of their time in Python and in waking threads."""

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


def digest(median_ms: float, graph: OpGraph | None, device: DeviceFacts) -> Profile:
    """Place one kernel under the roofline.

    Args:
        median_ms: Time of one call.
        graph: Work and least traffic of the reference; None leaves both unknown.
        device: Measured peaks.
    """
    if graph is None:
        return Profile(bound_by="unknown", roofline_share=None, notes=(_NO_GRAPH,))
    memory = device.memory_floor_ms(graph.min_bytes) / median_ms if graph.min_bytes else 0.0
    compute = device.compute_floor_ms(graph.flops) / median_ms
    return Profile(
        bound_by=_bound_by(median_ms, memory, compute),
        roofline_share=max(memory, compute),
        gbytes_per_s=1e-6 * graph.min_bytes / median_ms,
        gflops=1e-6 * graph.flops / median_ms,
        notes=(_roofs(memory, compute, device), _counters()),
    )


_NO_GRAPH = "the reference could not be captured, so that its work and traffic are unknown"


def _bound_by(median_ms: float, memory: float, compute: float) -> Bound:
    if max(memory, compute) >= BOUND_SHARE:
        return "memory" if memory >= compute else "compute"
    return "launch" if median_ms < LAUNCH_MS else "latency"


def _roofs(memory: float, compute: float, device: DeviceFacts) -> str:
    return (
        f"{memory:.0%} of the memory roof and {compute:.0%} of the float32 arithmetic roof of "
        f"{device.in_words()}"
    )


def _counters() -> str:
    """Say why there are no hardware counters; the figures are measured times over known work."""
    try:
        level = int(_PARANOID.read_text())
    except (OSError, ValueError):
        return "hardware counters are not available here"
    return f"from times and known work; hardware counters were not read (perf level {level})"
