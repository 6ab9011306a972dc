"""Owns the log of what a worker launches on its GPU: Triton's launches, and traces of a call.

The log is the worker's own word, as that of `jit` is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from evokernel.compilers.binding import Launch

_MOST_EVENTS = 10_000


@contextmanager
def of_triton(log: list[Any]) -> Iterator[None]:
    """Add the launches of Triton's kernels to a log, where the module uses Triton."""
    knobs = getattr(sys.modules.get("triton"), "knobs", None)
    if knobs is None:
        yield
        return

    def note(metadata: Any) -> None:
        log.append(Launch(str(metadata.get()["name"]), 0.0))

    with _hooked(knobs.runtime, note):
        yield


def traced(call: Callable[..., Any], arguments: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What the GPU ran for one call, by CUPTI's trace: name, nanoseconds and stream of each."""
    wanted = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=wanted) as trace:
        call(*arguments)
        torch.cuda.synchronize()
    results: Any = trace.profiler
    kinds: Any = torch.autograd
    found = [
        {"name": event.name(), "ns": event.duration_ns(), "stream": event.device_resource_id()}
        for event in results.kineto_results.events()
        if event.device_type() == kinds.DeviceType.CUDA
    ]
    rest = sum(event["ns"] for event in found[_MOST_EVENTS:])
    more = [{"name": "(more launches than are told)", "ns": rest, "stream": 0}] if rest else []
    return found[:_MOST_EVENTS] + more


@contextmanager
def _hooked(runtime: Any, note: Callable[[Any], None]) -> Iterator[None]:
    """Triton keeps a chain of hooks; versions before 3.5 only one."""
    chain = runtime.launch_enter_hook
    if hasattr(chain, "add"):
        chain.add(note)
        try:
            yield
        finally:
            chain.remove(note)
        return
    runtime.launch_enter_hook = note
    try:
        yield
    finally:
        runtime.launch_enter_hook = chain
