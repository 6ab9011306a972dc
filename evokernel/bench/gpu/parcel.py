"""Owns tensors on their way between device memories: a package whose bytes lie on the GPU."""

from __future__ import annotations

import sys
from typing import Any, Self

import torch

from evokernel.bench import trees
from evokernel.bench.gpu.window import Window
from evokernel.bench.tensors import Package, described, flat_of, is_dense, laid_out, pack
from evokernel.bench.trees import BadTree
from evokernel.bench.wire import Message
from evokernel.errors import WorkerError


class Parcel(Package):
    """A nested value in device memory of this process, in one block.

    Args:
        tree: JSON form of the nested value, see `trees`.
        tensors: Its dense tensors, in order of appearance; they are copied into the block.
        device: The GPU.
    """

    def __init__(self, tree: Any, tensors: list[torch.Tensor], device: torch.device) -> None:
        layouts, size = laid_out(tensors)
        super().__init__(tree, layouts, None, size)
        self.whole = torch.empty(size, dtype=torch.uint8, device=device)
        """The block."""
        _fill(self.whole, self, tensors)

    @classmethod
    def packed(cls, value: Any, device: torch.device) -> Self:
        """Copy nested lists, tuples and dicts of tensors and plain values to the GPU.

        Raises:
            WorkerError: An object that cannot travel; it is named.
        """
        tensors: list[torch.Tensor] = []

        def number(tensor: torch.Tensor) -> int | None:
            if not is_dense(tensor):
                return None
            tensors.append(tensor.detach().to(device).resolve_conj().resolve_neg())
            return len(tensors) - 1

        try:
            tree = trees.encode(value, number, foreign=False)
        except BadTree as error:
            message = f"an argument is {error}; workers take dense tensors and plain values"
            raise WorkerError(message) from error
        return cls(tree, tensors, device)

    @classmethod
    def taken(cls, message: Message, window: Window, limit: int | None = None) -> Self:
        """What lies in a window, copied out of it: the other side can change it no more.

        Args:
            message: Describes it.
            window: Where it lies.
            limit: Bytes that its tensors may unfold to; None is the window's size.

        Raises:
            BadTree: The message describes something else than what may lie there.
        """
        tree, layouts, size = described(message, window.size if limit is None else limit)
        if size > window.size:
            raise BadTree("tensors that lie outside their memory")
        made = cls(tree, [], window.flat.device)
        made.layouts, made.bytes, made.whole = layouts, size, window.flat[:size].clone()
        torch.cuda.synchronize(window.flat.device)
        return made

    def flats(self) -> list[torch.Tensor]:
        """The spans as 1-D tensors within the block."""
        return [flat_of(self.whole, layout) for layout in self.layouts]

    def lay_into(self, window: Window) -> None:
        """Copy it into a window that is large enough, and wait until it is there."""
        window.flat[: self.bytes].copy_(self.whole)
        torch.cuda.synchronize(self.whole.device)

    def hosted(self) -> Package:
        """The same in shared memory of the host, for systems that share no device memory."""
        return pack(self.value([flat.cpu() for flat in self.flats()]))

    def close(self) -> None:
        """Give the memory up; tensors already made of it stay valid. Idempotent."""
        self.whole = self.whole[:0].clone()


def lay(tree: Any, tensors: list[torch.Tensor], window: Window) -> Message | None:
    """Copy dense tensors straight into a window, on the current stream; not waited for.

    Returns:
        What `Parcel.taken` reads; None where they do not fit.
    """
    layouts, size = laid_out(tensors)
    if size > window.size:
        return None
    package = Package(tree, layouts, None, size)
    _fill(window.flat, package, tensors)
    return package.message


def moved(package: Package, device: torch.device) -> Package:
    """The same on the GPU, if it is not there."""
    if isinstance(package, Parcel):
        return package
    with package:
        return Parcel.packed(package.value(), device)


def received(message: Message, files: tuple[int, ...]) -> Package:
    """A package in host memory, of a parent that is trusted."""
    return Package.receive(message, files, sys.maxsize)


def _fill(whole: torch.Tensor, package: Package, tensors: list[torch.Tensor]) -> None:
    for tensor, layout in zip(tensors, package.layouts, strict=True):
        if layout.span:
            source = tensor.as_strided((layout.span,), (1,), tensor.storage_offset())
            flat_of(whole, layout).copy_(source)
