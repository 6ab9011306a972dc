"""Owns `Beforehand`: kernels that are built side by side before they are asked for."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Self

from evokernel.compilers import KernelSource

Build = Callable[[KernelSource], object]
"""Builds a kernel into a cache."""


class Beforehand:
    """Builds kernels in threads; a context manager at whose end all are built.

    What fails is told to whoever asks for the kernel later.

    Args:
        build: Builds one.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._pool = ThreadPoolExecutor()
        self._begun: dict[KernelSource, Future[object]] = {}

    def begin(self, kernels: Iterable[KernelSource]) -> None:
        """Begin with those that were not begun before; returns at once."""
        for kernel in kernels:
            if kernel not in self._begun:
                self._begun[kernel] = self._pool.submit(self._build, kernel)

    def finish(self) -> None:
        """Wait for all that were begun."""
        wait(self._begun.values())

    def __enter__(self) -> Self:
        """Enter a block at whose end nothing is being built any more."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Give up what has not begun, and wait for the rest."""
        self._pool.shutdown(cancel_futures=True)
