"""Owns the timed repetition inside a worker, the same for candidates and baselines."""

import gc
import resource
import time
from collections.abc import Callable
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
        self._flush_buffer = torch.empty(0, dtype=torch.int64)

    def forget(self) -> None:
        """Free what was kept; the allocator keeps the memory, warm, for the next output."""
        self.kept = self.kept_from = None

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
            output = call(*arguments)
        self.kept, self.kept_from = output, (inputs, slot)

    def _prepare(self, call: Callable[..., Any], inputs: InputSet, plan: TimePlan) -> None:
        words = plan.flush_bytes // self._flush_buffer.itemsize
        if words > self._flush_buffer.numel():
            self._flush_buffer = torch.zeros(words, dtype=torch.int64)
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
        usage = resource.getrusage(resource.RUSAGE_SELF)
        start = time.perf_counter_ns()
        for _ in range(plan.calls):
            output = call(*arguments)
        end = time.perf_counter_ns()
        after = resource.getrusage(resource.RUSAGE_SELF)
        self.kept, self.kept_from = output, (inputs, variant.slot)
        return Repetition(
            nanoseconds=end - start,
            calls=plan.calls,
            involuntary=after.ru_nivcsw - usage.ru_nivcsw,
            faults=after.ru_minflt - usage.ru_minflt,
            cpu_ns=_cpu_ns(after) - _cpu_ns(usage),
        )


def _cpu_ns(usage: resource.struct_rusage) -> int:
    """CPU time; the CPU clock itself is coarse while a CPU limit is set."""
    return round((usage.ru_utime + usage.ru_stime) * 1e9)
