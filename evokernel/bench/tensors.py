"""Owns how tensors travel between processes: raw bytes in sealed shared memory, never pickled."""

from typing import Any

from evokernel.bench.messages import Variant


class Package:
    """Arguments in shared memory, ready to be put into any number of workers; close it when done."""


def pack(values: Any) -> Package:
    """Copy nested lists, tuples and dicts of tensors and plain values into shared memory.

    Raises:
        WorkerError: An object that cannot travel; it is named.
    """


def vary(index: int, flat: Any, out: Any, variant: Variant) -> None:
    """Write the variant of tensor `index` into `out` (both 1-D, same dtype and length)."""
