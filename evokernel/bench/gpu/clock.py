"""Owns the timed repetition inside a worker on a GPU: device time between events of our own.

A call is queued behind a pause, so that the device never waits for the host between the two events;
the host's own time from launch to end is taken of another call. What takes less than some tens of
microseconds is recorded many times in one graph, each time with fresh values, empty caches and a
pair of events, and replayed at once; what cannot be captured is queued as often by the host.

Events, streams and graphs are the driver's (see `driver`), made before the candidate is imported.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from resource import RUSAGE_SELF, getrusage, struct_rusage
from time import perf_counter_ns
from typing import Any

import torch

from evokernel.bench.clock import told
from evokernel.bench.gpu.driver import EXTERNAL, Driver, DriverError
from evokernel.bench.gpu.sameness import are_same, tensors
from evokernel.bench.inputs import InputSet
from evokernel.bench.messages import CAPTURED, Repetition, TimePlan, Variant, Way

MOST = 64
"""Pairs of events: the most variants of one plan."""
PAUSE_NS, MOST_PAUSE_NS = 20_000, 2_000_000
"""What a pause lasts beyond twice the time that launching took, and at most."""
PLACES = 4
"""Places that outputs of short calls take in turn: where memory lies decides about percents."""
CYCLES_PER_NS = 3
"""Faster than any GPU's clock, so that a pause lasts long enough on each."""

Call = Callable[..., Any]


class CudaClock:
    """Times calls of one module on one GPU; keeps the outputs of the last repetition.

    Args:
        index: The GPU, as torch numbers it in this process.

    Raises:
        DeviceMissing: The driver cannot be used.
    """

    def __init__(self, index: int) -> None:
        self.kept: Any = None
        """What the last timed call returned."""
        self.kept_from: tuple[InputSet, int] | None = None
        """The input set and slot of that call."""
        self.alive: list[torch.Tensor] = []
        """What must live until the parent has read it."""
        torch.cuda.set_device(index)
        self._device = torch.device("cuda", index)
        self._sum = torch.zeros((), device=self._device)  # makes the context
        self._buffer = torch.zeros(0, device=self._device)
        self._driver = Driver()
        self._context = self._driver.context
        with contextlib.suppress(DriverError):  # a GPU without such lines
            self._driver.forbid_persisting()
        self._persisting = self._driver.persisting_bytes
        self._starts = [self._driver.event() for _ in range(MOST)]
        self._ends = [self._driver.event() for _ in range(MOST)]
        self._after = self._driver.event()
        self._stream = self._driver.stream()
        external: Any = torch.cuda.ExternalStream
        self._side: torch.cuda.Stream = external(self._stream, device=self._device)
        self._pause: Callable[[int], None] = torch.cuda._sleep
        self._launch_ns = PAUSE_NS
        self._flush_bytes = 0
        self._can_capture: bool | None = None
        self._next: tuple[Call, tuple[Any, ...], InputSet, int] | None = None
        self._grow(self._buffer.itemsize)
        self._between_events(_nothing, (), 1, self._buffer.itemsize)  # loads what it launches
        self.forget()

    @property
    def where(self) -> tuple[InputSet, int]:
        """The input set and slot of the last timed call."""
        if self.kept_from is None:
            raise RuntimeError("nothing was timed since the last request")
        return self.kept_from

    def forget(self) -> None:
        """Free what was kept; the allocator keeps the memory for the next output."""
        self.kept = self.kept_from = None
        self.alive = []

    def time(self, call: Call, inputs: InputSet, plan: TimePlan) -> list[Repetition]:
        """Carry out a plan: one repetition per variant, of at most `MOST`.

        Raises:
            DriverError: A kernel failed.
        """
        self._enter()
        self._grow(plan.flush_bytes)
        with _without_collector():
            self._warm_up(call, inputs, plan)
            wall_ns = self._wall(call, inputs, plan)
            way: Way = "batch" if plan.way == "graph" else plan.way
            if plan.way == "graph" and self._is_capturable(call, inputs, plan):
                way, found = "graph", self._replayed(call, inputs, plan)
            else:
                found = [self._shot(call, inputs, plan, variant) for variant in plan.variants]
        return [each.model_copy(update={"way": way, "wall_ns": wall_ns}) for each in found]

    def batch(self, call: Call, inputs: InputSet, calls: int, slot: int) -> None:
        """Call without looking at any clock, on the values that the slot has, and wait."""
        self._enter()
        arguments = inputs.present(slot)
        output = None
        for _ in range(calls):
            output = call(*arguments)
        self._driver.synchronize()
        self.kept, self.kept_from = output, (inputs, slot)

    def replay(self, call: Call, inputs: InputSet, calls: int, slot: int) -> Way:
        """The same out of a graph, in steps of `CAPTURED`; where a plan's graph failed, a batch."""
        if not self._can_capture or not self._leaves_cache_alone:
            self.batch(call, inputs, calls, slot)
            return "batch"
        self._enter()
        arguments = inputs.present(slot)
        outputs: list[Any] = []

        def work() -> None:
            for _ in range(CAPTURED):
                outputs.clear()
                outputs.append(call(*arguments))

        with self._graph(work) as graph:
            for _ in range(0, calls, CAPTURED):
                self._driver.launch(graph, self._stream)
            self._driver.synchronize()
        self.kept, self.kept_from = outputs[0], (inputs, slot)
        return "graph"

    def ready(self, call: Call, inputs: InputSet, slot: int) -> None:
        """Make the arguments of the next `go`; their values may still change."""
        self._enter()
        gc.collect(0)
        self._next = call, inputs.present(slot), inputs, slot

    def flush(self, size: int) -> None:
        """Have the caches emptied before the next `go` by going through so many bytes."""
        self._grow(size)
        self._flush_bytes = size

    def go(self) -> dict[str, Any]:
        """The call that `ready` prepared, timed; the fields of a `Repetition`."""
        if self._next is None:
            raise RuntimeError("no call was prepared")
        (call, arguments, inputs, slot), self._next = self._next, None
        with _without_collector():
            found = self._between_events(call, arguments, 1, self._flush_bytes)
        self.kept_from = inputs, slot
        return found.model_dump()

    def _enter(self) -> None:
        """Start anew: in our context, whatever the candidate made current."""
        self.forget()
        self._driver.enter(self._context)

    def _grow(self, size: int) -> None:
        numbers = size // self._buffer.itemsize
        if numbers > self._buffer.numel():
            self._buffer = torch.zeros(numbers, device=self._device)

    def _empty_caches(self, size: int) -> None:
        """Queue the reading of so many bytes: lines that were written go to memory, too.

        Reading leaves nothing behind that the timed call would have to write back.
        """
        if size:
            torch.sum(self._buffer, dim=0, out=self._sum)

    def _settle(self) -> None:
        """Wait for everything, and let no line of the cache outlive what is read next."""
        self._driver.synchronize()
        self._driver.forget_persisting()

    def _warm_up(self, call: Call, inputs: InputSet, plan: TimePlan) -> None:
        if plan.warmups:
            first = plan.variants[0]
            arguments = inputs.arguments(first.slot, first)
            for _ in range(plan.warmups):
                call(*arguments)
            self._driver.synchronize()

    def _wall(self, call: Call, inputs: InputSet, plan: TimePlan) -> int | None:
        """Host time of one call from launch to end, on values of its own."""
        if plan.wall is None:
            return None
        arguments = inputs.arguments(plan.wall.slot, plan.wall)
        self._settle()
        self._empty_caches(plan.flush_bytes)
        self._driver.synchronize()
        start = perf_counter_ns()
        self.kept = call(*arguments)
        launched = perf_counter_ns()
        self._driver.synchronize()
        end = perf_counter_ns()
        self._launch_ns = launched - start
        return end - start

    def _shot(self, call: Call, inputs: InputSet, plan: TimePlan, variant: Variant) -> Repetition:
        self.forget()
        arguments = inputs.arguments(variant.slot, variant)
        found = self._between_events(call, arguments, plan.calls, plan.flush_bytes)
        self.kept_from = inputs, variant.slot
        return found

    def _between_events(
        self, call: Call, arguments: tuple[Any, ...], calls: int, flush_bytes: int
    ) -> Repetition:
        """Calls queued behind a pause, between two events on torch's current stream."""
        stream = torch.cuda.current_stream(self._device).cuda_stream
        start, end = self._starts[0], self._ends[0]
        self._settle()
        self._empty_caches(flush_bytes)
        usage = getrusage(RUSAGE_SELF)
        self._pause(CYCLES_PER_NS * min(2 * self._launch_ns + PAUSE_NS, MOST_PAUSE_NS))
        self._driver.record(start, stream)
        output = None
        for _ in range(calls):
            output = call(*arguments)
        self._driver.record(end, stream)
        late_ns = self._finish(end)
        self.kept = output
        return self._between(start, end, calls, usage, late_ns)

    def _finish(self, end: int) -> int:
        """Wait for all streams; device time for which they went on after an event."""
        driver = self._driver
        if driver.sees_all_streams:
            driver.record_all(self._after, self._context)
            driver.synchronize()
            return max(0, driver.elapsed_ns(end, self._after))
        driver.wait(end)
        seen = perf_counter_ns()
        driver.synchronize()
        return perf_counter_ns() - seen

    def _between(
        self, start: int, end: int, calls: int, usage: struct_rusage, late_ns: int
    ) -> Repetition:
        took = self._driver.elapsed_ns(start, end)
        return Repetition.model_validate({**told(took, calls, usage), "late_ns": late_ns})

    @property
    def _leaves_cache_alone(self) -> bool:
        """Whether nobody set aside cache for lines that the flush within a graph leaves there."""
        return self._driver.persisting_bytes <= self._persisting

    def _is_capturable(self, call: Call, inputs: InputSet, plan: TimePlan) -> bool:
        if self._can_capture is None:
            self._can_capture = self._try_capture(call, inputs, plan)
        return self._can_capture and self._leaves_cache_alone

    def _try_capture(self, call: Call, inputs: InputSet, plan: TimePlan) -> bool:
        """Whether a graph of one call can be made, and gives what the call itself gives.

        What runs beside the capture, on a stream that it does not see, is missing in the graph.
        """
        variant = plan.variants[-1]
        alone = plan.model_copy(update={"variants": (variant,)})
        with torch.cuda.stream(self._side):  # so that this stream has memory
            call(*inputs.arguments(variant.slot, _other(variant)))
        try:
            self._replayed(call, inputs, alone)
        except Exception:  # whatever it is, only the capture is known to fail
            with contextlib.suppress(RuntimeError):
                self._sum.zero_()  # takes away an error that waits for the next launch
            self._driver.synchronize()
            return False
        replayed = [tensor.clone() for tensor in tensors(self.kept)]
        output = call(*inputs.arguments(variant.slot, variant))
        self._driver.synchronize()
        return are_same(replayed, tensors(output))

    def _replayed(self, call: Call, inputs: InputSet, plan: TimePlan) -> list[Repetition]:
        """All variants in one graph, each with its values, empty caches and pair of events."""
        self.forget()
        outputs: list[Any] = []

        def work() -> None:
            for number, variant in enumerate(plan.variants):
                arguments = inputs.arguments(variant.slot, variant)
                self._empty_caches(plan.flush_bytes)
                del outputs[: 1 - PLACES]
                self._driver.record(self._starts[number], self._stream, EXTERNAL)
                outputs.append(call(*arguments))
                self._driver.record(self._ends[number], self._stream, EXTERNAL)

        count = len(plan.variants)
        with self._graph(work) as graph:
            self._settle()
            usage = getrusage(RUSAGE_SELF)
            self._driver.launch(graph, self._stream)
            late_ns = self._finish(self._ends[count - 1])
        self.kept, self.kept_from = outputs[-1], (inputs, plan.variants[-1].slot)
        pairs = zip(self._starts[:count], self._ends[:count], strict=True)
        return [self._between(start, end, 1, usage, late_ns) for start, end in pairs]

    @contextlib.contextmanager
    def _graph(self, work: Callable[[], None]) -> Iterator[int]:
        """What `work` launches, captured; torch's current stream is the captured one meanwhile."""
        self._driver.synchronize()  # what the values come from was launched on another stream
        with torch.cuda.stream(self._side):
            graph = self._driver.captured(self._stream, work)
        try:
            yield graph
        finally:
            self._driver.drop(graph)


def _nothing() -> None:
    return


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Let the collector of cycles rest."""
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _other(variant: Variant) -> Variant:
    """Values that differ from a variant's."""
    return variant.model_copy(update={"scale": 0.5 * variant.scale})
