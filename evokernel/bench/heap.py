"""Owns the state of memory before a call: poisoned, flushed from the caches, or given back.

Freed memory stays with the process (see the allocator settings of `warm`), so what a call allocates
is what was freed before it: that is why poison shows, and why output memory is as warm as the last
use left it.
"""

import contextlib
import ctypes
import gc
from collections.abc import Iterator

import torch

_SMALL = 1 << 16  # bytes
_MAX_BLOCKS = 256  # of one size
_MAX_POISON = 1 << 30  # bytes of one size


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *(f"unused_{i}" for i in range(9)))]


_libc = ctypes.CDLL(None)
_M_PERTURB = -6  # see mallopt(3)
_has_mallinfo = hasattr(_libc, "mallinfo2")
if _has_mallinfo:
    _libc.mallinfo2.restype = _Mallinfo2


@contextlib.contextmanager
def poisoned(sizes: tuple[int, ...]) -> Iterator[None]:
    """Let allocations of these sizes (bytes) within the block start with contents that show.

    Free memory is filled with 0xFF, NaN in every float type and -1 in every signed integer: at
    least two blocks of each size, more until the heap has to grow, for then no free block keeps
    other contents. Small blocks come from too many places for that: if there are any, the allocator
    fills all that it hands out with 0x7F, 3.4e38 in float32, 2139062143 in int32.
    """
    for size in sorted(set(sizes), reverse=True):
        if size >= _SMALL:
            _fill_free_blocks(size)
    has_small = any(0 < size < _SMALL for size in sizes)
    if has_small:
        _libc.mallopt(_M_PERTURB, 0x7F ^ 0xFF)  # allocated memory gets the complement
    try:
        yield
    finally:
        if has_small:
            _libc.mallopt(_M_PERTURB, 0)


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
