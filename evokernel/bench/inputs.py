"""Owns an input set inside a worker: the pristine bytes, and buffers that calls may spoil."""

from typing import Any

import torch

from evokernel.bench.messages import Variant
from evokernel.bench.tensors import ALIGNMENT, Package, same_bytes, vary

_PAGE = 4096
_GPU_SHIFT = _PAGE + 512  # torch's allocator aligns to 512 bytes, and kernels may count on it


class InputSet:
    """Arguments of `forward` with one or more sets of buffers at different addresses.

    Args:
        package: The arguments as the parent sent them.
        slots: Number of buffer sets.
        output_bytes: Bytes of each expected output, for poisoning.
    """

    def __init__(self, package: Package, slots: int, output_bytes: tuple[int, ...]) -> None:
        self._package = package
        self._pristine = package.flats()
        self._slots = [[_buffer(flat, slot) for flat in self._pristine] for slot in range(slots)]
        self.output_bytes = output_bytes
        # Calls may come that write no values before: indices must never be what memory holds.
        for slot in range(slots):
            self.arguments(slot)

    def arguments(self, slot: int, variant: Variant | None = None) -> tuple[Any, ...]:
        """Write fresh values into a slot; the arguments are new views of it each time."""
        buffers = self.buffers(slot)
        for index, (pristine, buffer) in enumerate(zip(self._pristine, buffers, strict=True)):
            if variant is None:
                buffer.copy_(pristine)
            else:
                vary(index, pristine, buffer, variant)
        return self.present(slot)

    @property
    def addresses(self) -> list[list[int]]:
        """Where the buffers of each slot lie."""
        return [[buffer.data_ptr() for buffer in slot] for slot in self._slots]

    def present(self, slot: int) -> tuple[Any, ...]:
        """The arguments with whatever values the slot has now."""
        return tuple(self._package.value(self.buffers(slot)))

    def changed(self, slot: int) -> list[int]:
        """Numbers of the tensors whose bytes in the slot are no longer the pristine ones."""
        pairs = zip(self._pristine, self.buffers(slot), strict=True)
        return [i for i, (a, b) in enumerate(pairs) if not same_bytes(a, b)]

    def overwrite(self, slot: int) -> None:
        """Fill a slot with 0xFF, which is NaN in every float type."""
        for buffer in self.buffers(slot):
            _bytes(buffer).fill_(0xFF)

    def owner(self, tensor: torch.Tensor, slot: int) -> int | None:
        """Number of the input in a slot whose memory a tensor shares."""
        address = tensor.untyped_storage().data_ptr()
        for number, buffer in enumerate(self.buffers(slot)):
            storage = buffer.untyped_storage()
            if storage.nbytes() and 0 <= address - storage.data_ptr() < storage.nbytes():
                return number
        return None

    def buffers(self, slot: int) -> list[torch.Tensor]:
        """The buffers of a slot, as 1-D tensors."""
        return self._slots[slot % len(self._slots)]

    def close(self) -> None:
        """Give up the shared memory."""
        self._package.close()


def _buffer(flat: torch.Tensor, slot: int) -> torch.Tensor:
    """A buffer of the same length, whose place within a page depends on the slot."""
    shift = slot * (_GPU_SHIFT if flat.is_cuda else _PAGE + 3 * ALIGNMENT)
    size = flat.numel() * flat.dtype.itemsize
    room = torch.empty(shift + size, dtype=torch.uint8, device=flat.device)
    return room[shift:].view(flat.dtype)


def _bytes(flat: torch.Tensor) -> torch.Tensor:
    return flat.view(torch.uint8)
