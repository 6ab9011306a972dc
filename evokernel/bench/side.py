"""Owns what differs between kinds of device inside a worker; here what holds for the processor.

`gpu.side.GpuSide` has the same methods for a GPU.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from evokernel.bench import heap
from evokernel.bench.clock import Clock
from evokernel.bench.inputs import InputSet
from evokernel.bench.messages import Repetition, TimePlan
from evokernel.bench.tensors import Package, ship
from evokernel.bench.wire import Message


class Times(Protocol):
    """What a worker's clock does, see `clock.Clock`."""

    kept: Any
    """What the last timed call returned."""
    alive: list[torch.Tensor]
    """What must live until the parent has read it."""

    @property
    def where(self) -> tuple[InputSet, int]:
        """The input set and slot of the last timed call."""

    def forget(self) -> None:
        """Free what was kept."""

    def time(
        self, call: Callable[..., Any], inputs: InputSet, plan: TimePlan
    ) -> Sequence[Repetition]:
        """Carry out a plan."""

    def batch(self, call: Callable[..., Any], inputs: InputSet, calls: int, slot: int) -> None:
        """Call without looking at any clock, on the values that the slot has."""

    def ready(self, call: Callable[..., Any], inputs: InputSet, slot: int) -> None:
        """Make the arguments of the next `go`."""

    def go(self) -> Mapping[str, Any]:
        """The call that `ready` prepared, timed; the fields of a `Repetition`."""

    def flush(self, size: int) -> None:
        """Empty the caches by going through so many bytes."""


class Side(Protocol):
    """Where a worker's module and its tensors live."""

    device: str
    is_reachable: bool
    """Whether the parent may find outputs in the memory of this process."""

    @property
    def clock(self) -> Times:
        """There when the device is ready."""

    def begin(self, message: Message) -> None:
        """Make the device ready, before the module is there."""

    def opened(self, message: Message, files: tuple[int, ...]) -> Package:
        """Tensors that the parent sent."""

    def kept(self, package: Package) -> Package:
        """The same where the module can use them."""

    def poisoned(self, sizes: tuple[int, ...]) -> AbstractContextManager[None]:
        """Let allocations of these sizes (bytes) begin with contents that show."""

    def logging(self, log: list[Any]) -> AbstractContextManager[None]:
        """Add launches to the log that `jit` does not see."""

    def traced(self, call: Callable[..., Any], inputs: InputSet) -> list[Message]:
        """What the device did for one call, see `messages.Traced`; empty where that is unknown."""

    def replay(self, call: Callable[..., Any], inputs: InputSet, calls: int, slot: int) -> str:
        """Calls out of a graph, and how they were made: see `messages.Way`."""

    def wait(self) -> None:
        """Until what a call has begun, where its results are looked for, has ended."""

    def readable(self, tensor: torch.Tensor) -> torch.Tensor:
        """Its plain elements, where they can be shipped."""

    def shipped(self, tree: Any, tensors: list[torch.Tensor]) -> tuple[Message, Package | None]:
        """Send tensors off: what to say of them, and the package where there is one."""

    def settle(self) -> None:
        """Return free memory, so that a call's own can be seen from outside."""

    def peak(self, call: Callable[..., Any], inputs: InputSet) -> int | None:
        """Bytes that a call takes at its peak; None where the parent sees them better."""

    def rest(self) -> None:
        """Leave nothing at work when a request has been answered."""


class HostSide:
    """Modules on the processor."""

    device = "cpu"
    is_reachable = True

    def __init__(self) -> None:
        self.clock: Times = Clock()

    def begin(self, message: Message) -> None:
        """Nothing: memory is there."""

    def opened(self, message: Message, files: tuple[int, ...]) -> Package:
        """Shared memory."""
        return Package.receive(message["package"], files, sys.maxsize)

    def kept(self, package: Package) -> Package:
        """It is there already."""
        return package

    def poisoned(self, sizes: tuple[int, ...]) -> AbstractContextManager[None]:
        """See `heap`."""
        return heap.poisoned(sizes)

    def logging(self, log: list[Any]) -> AbstractContextManager[None]:
        """There are no others."""
        return nullcontext()

    def traced(self, call: Callable[..., Any], inputs: InputSet) -> list[Message]:
        """See `sampling`."""
        return []

    def replay(self, call: Callable[..., Any], inputs: InputSet, calls: int, slot: int) -> str:
        """A batch: the processor has no graphs."""
        self.clock.batch(call, inputs, calls, slot)
        return "batch"

    def wait(self) -> None:
        """Nothing: a call that has returned has ended."""

    def readable(self, tensor: torch.Tensor) -> torch.Tensor:
        """Contiguous, in memory of this process."""
        return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()

    def shipped(self, tree: Any, tensors: list[torch.Tensor]) -> tuple[Message, Package | None]:
        """In shared memory of their own."""
        package = ship(tree, tensors)
        return {"package": package.message}, package

    def settle(self) -> None:
        """See `heap`."""
        heap.give_back()

    def peak(self, call: Callable[..., Any], inputs: InputSet) -> int | None:
        """The parent sees it in /proc."""
        return None

    def rest(self) -> None:
        """Nothing."""
