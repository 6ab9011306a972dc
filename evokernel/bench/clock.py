"""Owns the timed repetition inside a worker, the same for candidates and baselines.

Names that are looked up while time is taken are this module's own: to edit the module `time` edits
nothing here. What is edited here is seen from outside (`identity`), and so is the time (`timing`).
"""

import gc
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage, struct_rusage
from time import perf_counter_ns
from typing import Any

import torch

from evokernel.bench import heap
from evokernel.bench.inputs import InputSet
from evokernel.bench.messages import Repetition, TimePlan, Variant


class Clock:
    """Times calls of one module; keeps the outputs of the last repetition."""

    def __init__(self) -> None:
        self.kept: Any = None
        """What the last timed call returned."""
        self.kept_from: tuple[InputSet, int] | None = None
        """The input set and slot of that call."""
        self.alive: list[torch.Tensor] = []
        """What must live until the parent has read it."""
        self._flush_buffer = torch.empty(0, dtype=torch.int64)
        self._next: tuple[Callable[..., Any], tuple[Any, ...], InputSet, int] | None = None

    @property
    def where(self) -> tuple[InputSet, int]:
        """The input set and slot of the last timed call."""
        if self.kept_from is None:
            raise RuntimeError("nothing was timed since the last request")
        return self.kept_from

    def forget(self) -> None:
        """Free what was kept; the allocator keeps the memory, warm, for the next output."""
        self.kept = self.kept_from = None
        self.alive = []

    def time(self, call: Callable[..., Any], inputs: InputSet, plan: TimePlan) -> list[Repetition]:
        """Carry out a plan. The collector of cycles rests meanwhile."""
        self.forget()
        self._prepare(call, inputs, plan)
        gc.collect(0)
        gc.disable()
        try:
            return [self._repeat(call, inputs, plan, variant) for variant in plan.variants]
        finally:
            gc.enable()

    def batch(self, call: Callable[..., Any], inputs: InputSet, calls: int, slot: int) -> None:
        """Call without looking at any clock, on the values that the slot has."""
        self.forget()
        arguments = inputs.present(slot)
        output = None
        for _ in range(calls):
            output = None  # its memory serves the next one, as between calls that are timed alone
            output = call(*arguments)
        self.kept, self.kept_from = output, (inputs, slot)

    def ready(self, call: Callable[..., Any], inputs: InputSet, slot: int) -> None:
        """Make the arguments of the next `go`; their values may still change."""
        self.forget()
        gc.collect(0)
        self._next = call, inputs.present(slot), inputs, slot

    def go(self) -> dict[str, int]:
        """The call that `ready` prepared, timed; the fields of a `Repetition`."""
        if self._next is None:
            raise RuntimeError("no call was prepared")
        (call, arguments, inputs, slot), self._next = self._next, None
        gc.disable()
        try:
            usage = getrusage(RUSAGE_SELF)
            start = perf_counter_ns()
            output = call(*arguments)
            end = perf_counter_ns()
        finally:
            gc.enable()
        self.kept, self.kept_from = output, (inputs, slot)
        return told(end - start, 1, usage)

    def flush(self, size: int) -> None:
        """Empty the caches by going through so many bytes."""
        self._grow(size)
        heap.flush(self._flush_buffer)

    def _grow(self, size: int) -> None:
        words = size // self._flush_buffer.itemsize
        if words > self._flush_buffer.numel():
            self._flush_buffer = torch.zeros(words, dtype=torch.int64)

    def _prepare(self, call: Callable[..., Any], inputs: InputSet, plan: TimePlan) -> None:
        self._grow(plan.flush_bytes)
        if plan.warmups:
            first = plan.variants[0]
            arguments = inputs.arguments(first.slot, first)
            for _ in range(plan.warmups):
                call(*arguments)

    def _repeat(
        self, call: Callable[..., Any], inputs: InputSet, plan: TimePlan, variant: Variant
    ) -> Repetition:
        self.forget()
        arguments = inputs.arguments(variant.slot, variant)
        if plan.flush_bytes:
            heap.flush(self._flush_buffer)
        output = None
        usage = getrusage(RUSAGE_SELF)
        start = perf_counter_ns()
        for _ in range(plan.calls):
            output = call(*arguments)
        end = perf_counter_ns()
        self.kept, self.kept_from = output, (inputs, variant.slot)
        return Repetition.model_validate(told(end - start, plan.calls, usage))


def told(nanoseconds: int, calls: int, usage: struct_rusage) -> dict[str, int]:
    """The fields of a `Repetition` that every clock fills; `usage` is what it was at the start."""
    after = getrusage(RUSAGE_SELF)
    return {
        "nanoseconds": nanoseconds,
        "calls": calls,
        "involuntary": after.ru_nivcsw - usage.ru_nivcsw,
        "faults": after.ru_minflt - usage.ru_minflt,
        "cpu_ns": _cpu_ns(after) - _cpu_ns(usage),
    }


def _cpu_ns(usage: struct_rusage) -> int:
    """CPU time; the CPU clock itself is coarse while a CPU limit is set."""
    return round((usage.ru_utime + usage.ru_stime) * 1e9)
