"""Owns the walk over large tensors, a piece at a time, so that copies stay small."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 17
"""Elements handled at a time: their float64 copies about fit into a second-level cache."""
CHUNK_ON_GPU = 1 << 24
"""The same on a GPU, where many small pieces would be all launches."""
SHORT_ROW = 64
"""Rows shorter than this do not have a scale of their own."""


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as (rows, width) in which a row shares one scale; contiguous, complex as pairs."""
    import torch

    flat = tensor.detach()
    if flat.is_complex():
        flat = torch.view_as_real(flat.contiguous())
    width = flat.shape[-1] if flat.dim() else 1
    if width < SHORT_ROW:
        width = max(flat.numel(), 1)
    return flat.contiguous().reshape(-1, width) if flat.numel() else flat.reshape(0, width)


def chunks(tensor: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    """Pieces of a (count, width) tensor, small enough for where it lies, as slices of both."""
    count, width = tensor.shape
    most = CHUNK_ON_GPU if tensor.is_cuda else CHUNK
    tall = max(1, most // max(width, 1))
    for top in range(0, count, tall):
        for left in range(0, width, most):
            yield slice(top, top + tall), slice(left, left + most)


@contextmanager
def calm_threads() -> Iterator[None]:
    """Let torch use one thread for a block of many small operators where the machine is busy.

    There, threads that wait for each other after every operator cost ten times as much as they
    save.
    """
    import torch

    before = torch.get_num_threads()
    if os.getloadavg()[0] > len(os.sched_getaffinity(0)):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
