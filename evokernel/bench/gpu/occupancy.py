"""Owns what a multiprocessor can hold of a kernel: how many warps, and what allows no more."""

from evokernel.compilers.architecture import Capability
from evokernel.frozen import Frozen

WARP = 32
"""Threads of a warp, on every device."""
_REGISTERS = 65536
"""32-bit registers of a multiprocessor."""
_REGISTER_UNIT = 256
"""Registers are given to a warp in units of so many."""
_RESERVED = 1024
"""Bytes of shared memory that the system takes of each block, from compute capability 8.0 on."""
_WITHOUT_RESERVE = 8

# Warps, blocks, and KiB of shared memory of a multiprocessor by compute capability, from the CUDA
# C++ Programming Guide, "Compute Capabilities".
_LIMITS: dict[Capability, tuple[int, int, int]] = {
    **{(7, 5): (32, 16, 64), (8, 0): (64, 32, 164), (8, 6): (48, 16, 100), (8, 7): (48, 16, 164)},
    **{(8, 9): (48, 24, 100), (9, 0): (64, 32, 228), (10, 0): (64, 32, 228)},
    **{(10, 3): (64, 32, 228), (11, 0): (48, 24, 228), (12, 0): (48, 24, 100)},
    **{(12, 1): (48, 24, 100)},
}


class Occupancy(Frozen):
    """How full a multiprocessor can be of one kernel."""

    blocks: int
    """Blocks that it holds at a time."""
    share: float
    """Share of its places for warps that they fill, 0..1."""
    limited_by: str
    """What allows no more; empty where nothing does."""


def possible(
    capability: Capability, threads: int, registers: int, shared_bytes: int
) -> Occupancy | None:
    """How full a multiprocessor can be.

    Args:
        capability: Compute capability of the device.
        threads: Of a block.
        registers: Of a thread.
        shared_bytes: Of a block.

    Returns:
        None for a device that is not in our table, or a block without threads.
    """
    if capability not in _LIMITS or threads < 1:
        return None
    most_warps, most_blocks, kibibytes = _LIMITS[capability]
    warps = -(-threads // WARP)
    reserved = _RESERVED if capability[0] >= _WITHOUT_RESERVE else 0
    allowed = {
        "the number of blocks": most_blocks,
        "the size of its blocks": most_warps // warps,
        "registers": _by_registers(registers, warps),
        "shared memory": kibibytes * 1024 // (shared_bytes + reserved or 1),
    }
    limiter = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limiter]
    is_full = blocks * warps == most_warps
    return Occupancy(
        blocks=blocks,
        share=round(blocks * warps / most_warps, 4),
        limited_by="" if is_full else limiter,
    )


def _by_registers(registers: int, warps: int) -> int:
    """Blocks whose warps get registers; each warp gets whole units."""
    of_a_warp = -(-max(registers, 1) * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    return _REGISTERS // of_a_warp // warps
