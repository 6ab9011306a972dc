"""Owns a worker's part that lives on a GPU: its context, the way of tensors, poison, faults.

The context is made here, in the child, before the module is imported: the server must not have one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from evokernel.bench.gpu import launches, placing
from evokernel.bench.gpu.clock import CudaClock
from evokernel.bench.gpu.driver import Driver
from evokernel.bench.gpu.parcel import Parcel, lay, moved, received
from evokernel.bench.gpu.sharing import Refused
from evokernel.bench.gpu.window import Window
from evokernel.bench.inputs import InputSet
from evokernel.bench.tensors import Package, ship
from evokernel.bench.wire import Message

_MOST_BLOCKS = 64
_MOST_POISON = 8 << 30
_SMALL, _FEW_BYTES = 1 << 20, 64 << 20
"""torch's allocator cuts blocks of up to 1 MiB out of common ones of 2 MiB."""


TIMED = (CudaClock, Driver)
"""What takes the time."""


class GpuSide:
    """Modules on one GPU.

    Args:
        device: As torch names it, e.g. `cuda:0`.
    """

    is_reachable = False

    def __init__(self, device: str) -> None:
        self.device = device
        self._device = torch.device(device)
        self._index = self._device.index or 0
        self.clock: CudaClock
        self._window: Window | None = None

    def begin(self, message: Message) -> None:
        """Make the context, and say how much torch may allocate in it."""
        torch.cuda.set_device(self._device)
        placing.allow_tf32(message["is_tf32"])
        torch.zeros(1, device=self._device).add_(1)
        self.clock = CudaClock(self._index)
        if message["device_bytes"]:
            total = torch.cuda.get_device_properties(self._device).total_memory
            share = min(1.0, message["device_bytes"] / total)
            torch.cuda.set_per_process_memory_fraction(share, self._index)
        torch.cuda.synchronize(self._device)

    def opened(self, message: Message, files: tuple[int, ...]) -> Package:
        """What lies in the window, which comes with the first request; else shared memory."""
        if "window" not in message:
            return received(message["package"], files)
        if files:
            self._close_window()
            try:
                self._window = Window.received(self._index, message["window"], files[0])
            except Refused as error:
                raise RuntimeError(f"the window cannot be mapped: {error}") from error
        if self._window is None:
            raise RuntimeError("no window has been opened")
        return Parcel.taken(message["package"], self._window, sys.maxsize)

    def kept(self, package: Package) -> Package:
        """On the GPU, in memory of this process."""
        return moved(package, self._device)

    @contextmanager
    def poisoned(self, sizes: tuple[int, ...]) -> Iterator[None]:
        """Fill torch's free blocks of these sizes with 0xFF until it has to ask for new ones."""
        for size in sorted({size for size in sizes if size}, reverse=True):
            self._fill_free_blocks(size)
        yield

    def logging(self, log: list[Any]) -> AbstractContextManager[None]:
        """Triton's launches."""
        return launches.of_triton(log)

    def traced(self, call: Callable[..., Any], inputs: InputSet) -> list[Message]:
        """See `launches`; nothing where CUPTI is missing or in use.

        What the call itself raises is its own fault, and no reason to go without a trace.
        """
        faults: list[BaseException] = []

        def caught(*arguments: Any) -> None:
            try:
                call(*arguments)
                torch.cuda.synchronize(self._device)
            except BaseException as fault:
                faults.append(fault)

        found: list[Message] = []
        try:
            found = launches.traced(caught, inputs.present(0))
        except (RuntimeError, ImportError, OSError) as error:
            print(f"no trace: {error}", file=sys.stderr)
        if faults:
            raise faults[0]
        return found

    def replay(self, call: Callable[..., Any], inputs: InputSet, calls: int, slot: int) -> str:
        """See `clock`."""
        return self.clock.replay(call, inputs, calls, slot)

    def wait(self) -> None:
        """The current stream only: who works on another has to make this one wait for it."""
        torch.cuda.current_stream(self._device).synchronize()

    def readable(self, tensor: torch.Tensor) -> torch.Tensor:
        """Contiguous, on the GPU."""
        return tensor.detach().to(self._device).resolve_conj().resolve_neg().contiguous()

    def shipped(self, tree: Any, tensors: list[torch.Tensor]) -> tuple[Message, Package | None]:
        """Through the window where they fit, on the current stream; else in shared memory."""
        if self._window is not None and (laid := lay(tree, tensors, self._window)) is not None:
            torch.cuda.synchronize(self._device)
            return {"package": laid, "in_window": True}, None
        package = ship(tree, [tensor.cpu() for tensor in tensors])
        return {"package": package.message}, package

    def settle(self) -> None:
        """Return torch's free blocks to the driver."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()

    def peak(self, call: Callable[..., Any], inputs: InputSet) -> int | None:
        """Bytes of torch's allocator at the peak of one call."""
        arguments = inputs.present(0)
        torch.cuda.synchronize(self._device)
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        output = call(*arguments)
        torch.cuda.synchronize(self._device)
        del output
        return max(0, torch.cuda.max_memory_allocated(self._device) - before)

    def rest(self) -> None:
        """Wait for every stream, so that a fault belongs to the request that caused it."""
        torch.cuda.synchronize(self._device)

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def _fill_free_blocks(self, size: int) -> None:
        """At least two blocks; more until memory grows, for then none kept other contents."""
        most = min(_MOST_POISON, _FEW_BYTES if size < _SMALL else _MOST_POISON)
        blocks: list[torch.Tensor] = []
        start = torch.cuda.memory_reserved(self._device)
        try:
            while len(blocks) < 2 or not (
                torch.cuda.memory_reserved(self._device) > start
                or len(blocks) >= _MOST_BLOCKS
                or len(blocks) * size >= most
            ):
                block = torch.empty(size, dtype=torch.uint8, device=self._device)
                blocks.append(block.fill_(0xFF))
        except torch.OutOfMemoryError:  # then nothing more can be free
            blocks.clear()
