"""Owns `Window`: device memory that the parent and one worker share, for tensors to pass through.

Inputs and outputs take turns in it; nothing stays. Whoever receives copies at once, so that what
the other side writes later changes nothing, and the truth never lies in it.
"""

from __future__ import annotations

import os
from typing import Self

import torch

from evokernel.bench.gpu import sharing


class Window:
    """A block of device memory that another process can map.

    Args:
        index: The GPU.
        address: Where it is mapped.
        size: Bytes.
        file: Descriptor that stands for it; None where it was received.
    """

    def __init__(self, index: int, address: int, size: int, file: int | None) -> None:
        self.size = size
        self.file = file
        self._address = address
        self.flat: torch.Tensor = torch.as_tensor(
            _Block(address, size), device=torch.device("cuda", index)
        )
        """Its bytes."""

    @classmethod
    def made(cls, index: int, least: int) -> Self:
        """A new one, in the trusted parent.

        Args:
            index: The GPU.
            least: Bytes that it has to hold.

        Raises:
            sharing.Refused: This system does not share device memory so.
        """
        torch.cuda.set_device(index)
        torch.empty(1, device=torch.device("cuda", index))  # a context has to be there
        grain = sharing.granularity(index)
        size = max(1, -(-least // grain)) * grain
        handle = sharing.create(index, size)
        file = sharing.to_file(handle)
        try:
            return cls(index, sharing.map_in(index, handle, size), size, file)
        except BaseException:
            os.close(file)
            raise

    @classmethod
    def received(cls, index: int, size: int, file: int) -> Self:
        """One that the parent gave, in a worker; the file is closed.

        Raises:
            sharing.Refused: It cannot be mapped.
        """
        try:
            handle = sharing.from_file(file)
        finally:
            os.close(file)
        return cls(index, sharing.map_in(index, handle, size), size, None)

    def close(self) -> None:
        """Give the memory up. Idempotent.

        Raises:
            sharing.Refused: The driver keeps it.
        """
        if not self.size:
            return
        torch.cuda.synchronize(self.flat.device)
        size, self.size = self.size, 0
        self.flat = self.flat[:0].clone()
        if self.file is not None:
            os.close(self.file)
        sharing.unmap(self._address, size)


class _Block:
    """Memory at an address, in the form that torch takes without copying."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }
