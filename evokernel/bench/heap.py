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
_LEAST_BLOCKS, _MAX_BLOCKS = 2, 256  # of one size
_MAX_POISON = 1 << 30  # bytes of one size
_TRIES = 4
_MARGIN = 4096  # bytes that a block takes beside its own, alignment included, at most


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later: its first and its last field are of use."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", *(f"unused_{i}" for i in range(8)), "keepcost")
    ]


_libc = ctypes.CDLL(None)
_M_PERTURB = -6  # see mallopt(3)
_has_mallinfo = hasattr(_libc, "mallinfo2")
if _has_mallinfo:
    _libc.mallinfo2.restype = _Mallinfo2


@contextlib.contextmanager
def poisoned(sizes: tuple[int, ...]) -> Iterator[None]:
    """Let allocations of these sizes (bytes) within the block start with contents that show.

    Free memory is filled with 0xFF, NaN in every float type and -1 in every signed integer: at
    least two blocks of each size, more until no free block keeps other contents. Small blocks come
    from too many places for that: if there are any, the allocator fills all that it hands out with
    0x7F, 3.4e38 in float32, 2139062143 in int32.
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
    """Fill what lies free between used blocks, which is handed out first, then the heap's end.

    The heap is not made to grow: it would by a block with every call.
    """
    blocks: list[torch.Tensor] = []
    with contextlib.suppress(RuntimeError):  # at the memory limit nothing more can be free
        if _has_mallinfo:
            _fill_between(blocks, size)
            _fill_end(blocks, size)
        while len(blocks) < _LEAST_BLOCKS:
            blocks.append(_filled(size))
    blocks.clear()


def _fill_between(blocks: list[torch.Tensor], size: int) -> None:
    """Fill blocks until one comes from the heap's end: there is no other then."""
    before = _heap()
    while len(blocks) < _most(size):
        blocks.append(_filled(size))
        now = _heap()
        if now.arena > before.arena or now.keepcost < before.keepcost:
            return
        before = now


def _fill_end(blocks: list[torch.Tensor], size: int) -> None:
    """Fill blocks from the heap's end, then what is left of it."""
    while (left := int(_heap().keepcost)) > size + _MARGIN and len(blocks) < _most(size):
        blocks.append(_filled(size))
    for _ in range(_TRIES):  # so small a block may come from elsewhere
        if left <= 2 * _MARGIN:
            return
        blocks.append(_filled(min(left - _MARGIN, size)))
        left = int(_heap().keepcost)


def _most(size: int) -> int:
    return min(_MAX_BLOCKS, max(_LEAST_BLOCKS, _MAX_POISON // size))


def _filled(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8).fill_(0xFF)


def _heap() -> _Mallinfo2:
    found: _Mallinfo2 = _libc.mallinfo2()
    return found
