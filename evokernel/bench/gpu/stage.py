"""Owns `GpuStage`: what timed calls on a GPU need beside their workers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuStage:
    """Workers on a GPU write their own inputs and empty the caches in the stream that is timed.

    No other process could: caches are emptied between two kernels of the same stream.
    """

    gpu: int
    """Number of the GPU."""
    flush_bytes: int
    """What is written so that nothing useful stays in the second-level cache."""
    is_reachable: bool = False
    """Nothing is written into workers, or read out of them, from outside."""
