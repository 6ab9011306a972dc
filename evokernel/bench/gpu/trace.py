"""Owns the trace of some calls: which kernels they launched on the GPU, and for how long.

It is what torch's profiler (Kineto, through CUPTI's records of activity) writes in Chrome's format;
these records need none of the rights that counters need.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from evokernel.frozen import Frozen


class Traced(Frozen):
    """One kernel over some calls."""

    kernel: str
    """Name of the function, mangled or with its arguments where its author is C++."""
    count: int
    """Launches."""
    seconds: float
    """On the device, all launches together."""
    blocks: int = 0
    """Blocks of the longest launch's grid."""
    threads: int = 0
    """Threads of its blocks."""
    registers: int = 0
    """32-bit registers of a thread."""
    shared_bytes: int = 0
    """Shared memory of a block."""


class Trace(Frozen):
    """Calls back to back."""

    calls: int
    call_s: float
    """Wall seconds of one call, without a profiler."""
    kernels: tuple[Traced, ...] = ()
    """By time, the longest first; empty where activity may not be recorded."""
    note: str = ""
    """Why that is so."""

    @property
    def device_s(self) -> float:
        """Seconds of kernels a call."""
        return sum(kernel.seconds for kernel in self.kernels) / self.calls

    @property
    def launches(self) -> float:
        """Kernels a call."""
        return sum(kernel.count for kernel in self.kernels) / self.calls


def read(text: str) -> tuple[Traced, ...]:
    """The kernels of a trace in Chrome's format, the longest first; none where it is damaged."""
    try:
        events = json.loads(text)["traceEvents"]
    except (ValueError, KeyError, TypeError):
        return ()
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        if event.get("cat") == "kernel":
            by_name.setdefault(event["name"], []).append(event)
    found = (_traced(name, launches) for name, launches in by_name.items())
    return tuple(sorted(found, key=lambda kernel: -kernel.seconds))


def _traced(name: str, launches: list[Mapping[str, Any]]) -> Traced:
    longest = max(launches, key=lambda launch: float(launch["dur"]))
    told = longest.get("args", {})
    return Traced(
        kernel=name,
        count=len(launches),
        seconds=1e-6 * sum(float(launch["dur"]) for launch in launches),  # microseconds
        blocks=_product(told.get("grid", ())),
        threads=_product(told.get("block", ())),
        registers=int(told.get("registers per thread", 0)),
        shared_bytes=int(told.get("shared memory", 0)),
    )


def _product(sizes: Iterable[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
