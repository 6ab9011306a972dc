"""Owns the state of memory before a call: poisoned, flushed from the caches, or given back.

Freed memory stays with the process (see the allocator settings of `warm`), so what a call allocates
is what was freed before it: that is why poison shows, and why output memory is as warm as the last
use left it.
"""

import contextlib
import ctypes
import gc

import torch

_MAX_BLOCKS = 64
_MAX_POISON = 1 << 30  # bytes


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *(f"unused_{i}" for i in range(9)))]


_libc = ctypes.CDLL(None)
_has_mallinfo = hasattr(_libc, "mallinfo2")
if _has_mallinfo:
    _libc.mallinfo2.restype = _Mallinfo2


def poison(sizes: tuple[int, ...]) -> None:
    """Fill the free memory that allocations of these sizes (bytes) would get with 0xFF.

    0xFF is NaN in every float type and -1 in every signed integer. At least two blocks of each
    size are taken, and more until the heap has to grow: then no free block keeps other contents.
    """
    for size in sorted(set(sizes), reverse=True):
        if size > 0:
            _fill_free_blocks(size)


def flush(buffer: torch.Tensor) -> None:
    """Evict the caches by reading and writing a buffer that is larger than they are."""
    buffer.add_(1)


def give_back() -> None:
    """Return free memory to the system."""
    gc.collect()
    _libc.malloc_trim(ctypes.c_size_t(0))


def _fill_free_blocks(size: int) -> None:
    blocks: list[torch.Tensor] = []
    start = _heap_bytes()
    has_grown = False
    with contextlib.suppress(RuntimeError):  # at the memory limit nothing more can be free
        while len(blocks) < 2 or not (has_grown or _is_enough(blocks)):
            blocks.append(torch.empty(size, dtype=torch.uint8).fill_(0xFF))
            has_grown = _heap_bytes() > start
    blocks.clear()


def _is_enough(blocks: list[torch.Tensor]) -> bool:
    filled = len(blocks) * blocks[0].numel()
    return len(blocks) >= _MAX_BLOCKS or filled >= _MAX_POISON or not _has_mallinfo


def _heap_bytes() -> int:
    return int(_libc.mallinfo2().arena) if _has_mallinfo else 0
