"""Owns the case of a GPU kernel: what is known of it, and what follows from that by arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from evokernel.bench.gpu.counters import Counters
from evokernel.bench.gpu.occupancy import Occupancy, possible
from evokernel.bench.gpu.trace import Trace, Traced
from evokernel.compilers.architecture import Capability
from evokernel.compilers.resources import Resources
from evokernel.frozen import Frozen


class Floors(Frozen):
    """What the task takes at least on this device, and what that rests on; None if unknown."""

    memory_ms: float | None = None
    """Moving the bytes that nobody avoids, at the best measured rate."""
    compute_ms: float | None = None
    """The operations, at the best measured rate for the task's precision."""
    min_bytes: int | None = None
    flops: int | None = None
    peaks: str = "this device"
    """Device and measured peaks, in words."""
    has_products: bool = False
    """Most of the operations are a contraction's, which tensor cores could do."""


class Evidence(Frozen):
    """What replays and the compiler say about a candidate's kernels."""

    trace: Trace
    counters: tuple[Counters, ...] = ()
    """Of one call's launches; empty where counters may not be read."""
    resources: tuple[Resources, ...] = ()
    """The compiler's report of own kernels."""
    capability: Capability = (0, 0)
    """Compute capability of the device."""
    multiprocessors: int = 0
    refusal: str = ""
    """Why there are no counters."""


@dataclass(frozen=True)
class Case:
    """What a verdict rests on."""

    median_ms: float
    floors: Floors
    found: Evidence

    @cached_property
    def memory(self) -> float | None:
        """Share of the memory roof."""
        return _over(self.floors.memory_ms, self.median_ms)

    @cached_property
    def compute(self) -> float | None:
        """Share of the arithmetic roof."""
        return _over(self.floors.compute_ms, self.median_ms)

    @property
    def roof(self) -> float | None:
        """Share of the nearer of the two."""
        known = [share for share in (self.memory, self.compute) if share is not None]
        return max(known, default=None)

    @cached_property
    def overhead(self) -> float | None:
        """Share of calls back to back in which no kernel runs; None without a trace."""
        trace = self.found.trace
        if not trace.kernels or not trace.call_s:
            return None
        return max(0.0, min(1.0, 1.0 - trace.device_s / trace.call_s))

    @cached_property
    def longest(self) -> Traced | None:
        """The kernel that takes most of the time."""
        return self.found.trace.kernels[0] if self.found.trace.kernels else None

    @cached_property
    def counted(self) -> Counters | None:
        """Counters of the longest kernel."""
        return max(self.found.counters, key=lambda launch: launch.seconds, default=None)

    @cached_property
    def resources(self) -> Resources | None:
        """The compiler's report of the longest kernel, or of the one that spills most."""
        own = self.found.resources
        name = self.counted.kernel if self.counted else self.longest.kernel if self.longest else ""
        mine = [resources for resources in own if resources.kernel in name]
        return max(mine or own, key=lambda one: one.spill_stores + one.spill_loads, default=None)

    @cached_property
    def room(self) -> Occupancy | None:
        """How full a multiprocessor can be of the longest kernel."""
        told = self.counted or self.longest
        if told is None:
            return None
        sizes = (told.threads, told.registers, told.shared_bytes)
        return possible(self.found.capability, *sizes)

    @cached_property
    def waves(self) -> float | None:
        """How often the longest kernel's grid fills the device."""
        if self.counted and self.counted.waves is not None:
            return self.counted.waves
        if not self.room or not self.longest or not self.found.multiprocessors:
            return None
        return self.longest.blocks / max(self.room.blocks * self.found.multiprocessors, 1)

    @property
    def occupancy_limit(self) -> float | None:
        """Share of the places for warps that the longest kernel can fill."""
        if self.counted and self.counted.occupancy_limit is not None:
            return self.counted.occupancy_limit
        return self.room.share if self.room else None

    @property
    def limited_by(self) -> str:
        """What allows no more; empty where nothing does, or nothing is known."""
        if self.counted and self.counted.occupancy_limit is not None:
            return self.counted.limited_by
        return self.room.limited_by if self.room else ""

    @cached_property
    def traffic_ratio(self) -> float | None:
        """Bytes moved in a call over the least; None where not every launch was counted."""
        known = [one.dram_bytes for one in self.found.counters if one.dram_bytes is not None]
        if not known or len(known) < self.found.trace.launches:
            return None
        return _over(sum(known), self.floors.min_bytes)

    def mean(self, name: str) -> float | None:
        """A figure of all launches, weighted by their time."""
        pairs = [(one.seconds, getattr(one, name)) for one in self.found.counters]
        known = [(seconds, value) for seconds, value in pairs if value is not None]
        total = sum(seconds for seconds, _ in known)
        return sum(seconds * value for seconds, value in known) / total if total else None

    def waiting(self, *reasons: str) -> float:
        """Share of the longest kernel's stalls that have one of these reasons."""
        stalls = self.counted.stalls if self.counted else ()
        return sum(stall.share for stall in stalls if stall.reason in reasons)


def _over(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
