"""Owns the launch of a CUDA kernel: its grid, its shared memory, its stream."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from evokernel.compilers.binding import Launch, kept_log
from evokernel.compilers.resources import STATIC_SHARED_BYTES
from evokernel.compilers.signatures import Signature
from evokernel.jit import device
from evokernel.jit.arguments import Arguments

Dimensions = tuple[int, int, int]

_KEPT = 256
_GRID_MOST = (2**31 - 1, 65535, 65535)
_BLOCK_MOST = (1024, 1024, 64)
"""Limits of every architecture (CUDA C++ Programming Guide, "Compute Capabilities")."""


class Kernel:
    """A function of a CUDA module: `kernel[grid, block](...)` launches it.

    Args:
        signature: Its parameters.
        handle_on: Gives the driver's handle of it on a GPU, loading the module there if need be.
    """

    def __init__(self, signature: Signature, handle_on: Callable[[int], int]) -> None:
        self.signature = signature
        self.arguments = Arguments(signature)
        self._handle_on = handle_on
        self._functions: dict[int, Function] = {}
        self._launchers: dict[Any, Launcher] = {}

    def __getitem__(self, configuration: Any) -> "Launcher":
        """Fix `[grid, block]` or `[grid, block, shared_bytes]`; can be kept and called often.

        Raises:
            TypeError: another form.
            ValueError: a size that no GPU allows.
        """
        try:
            found = self._launchers.get(configuration)
        except TypeError:  # a list for a tuple: it is no key
            return self._launcher(configuration)
        if found is None:
            found = self._launcher(configuration)
            if len(self._launchers) == _KEPT:  # sizes that never come again
                self._launchers.clear()
            self._launchers[configuration] = found
        return found

    def __call__(self, *arguments: Any) -> None:
        """Refuse a call without a grid.

        Raises:
            TypeError: always; it says how a launch is written.
        """
        raise TypeError(
            f"`{self.signature.name}` is a CUDA kernel: launch it with a grid and a block, "
            f"`{self.signature.name}[grid, block](...)`"
        )

    def __repr__(self) -> str:
        """Its signature in C-like text."""
        return f"<CUDA kernel {self.signature}>"

    def on(self, index: int) -> "Function":
        """The kernel on one GPU, loaded at the first call."""
        if index not in self._functions:
            handle = self._handle_on(index)
            self._functions[index] = Function(self.signature.name, handle, index)
        return self._functions[index]

    def _launcher(self, configuration: Any) -> "Launcher":
        name = self.signature.name
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 3:
            raise TypeError(
                f"`{name}` takes `[grid, block]` or `[grid, block, shared_bytes]`, "
                f"got [{configuration!r}]"
            )
        grid = _dimensions(f"`{name}`: the grid", configuration[0], _GRID_MOST)
        block = _dimensions(f"`{name}`: the block", configuration[1], _BLOCK_MOST)
        shared = configuration[2] if len(configuration) == 3 else 0
        if not isinstance(shared, int) or isinstance(shared, bool) or shared < 0:
            raise TypeError(f"`{name}`: shared_bytes must be a count of bytes, got {shared!r}")
        return Launcher(self, grid, block, shared)


class Function:
    """A kernel loaded into one GPU, and what it may take of it."""

    def __init__(self, name: str, handle: int, index: int) -> None:
        from cupy.cuda import driver

        self.handle = handle
        self._name = name
        self._gpu = device.gpu(index)
        self._static = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, handle)
        self._threads = driver.funcGetAttribute(
            driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, handle
        )
        self._allowed = STATIC_SHARED_BYTES - self._static
        """Shared memory that a launch may ask for as things stand, bytes."""

    def admit(self, threads: int, shared: int) -> None:
        """See that a block of this size can run; large shared memory is asked for.

        Raises:
            ValueError: it cannot; the message names what was asked for and what there is.
        """
        if threads > self._threads:
            raise ValueError(
                f"`{self._name}`: a block of {threads} threads was asked for; this kernel can have "
                f"{self._threads} (its registers or its `__launch_bounds__` allow no more)"
            )
        if shared <= self._allowed:
            return
        total = self._static + shared
        if total > self._gpu.shared_bytes:
            of_fixed_size = f" ({self._static} of fixed size + {shared})" if self._static else ""
            raise ValueError(
                f"`{self._name}`: {total} bytes of shared memory a block were asked for"
                f"{of_fixed_size}; {self._gpu} has {self._gpu.shared_bytes}"
            )
        from cupy.cuda import driver

        which = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.funcSetAttribute(self.handle, which, shared)
        self._allowed = shared


class Launcher:
    """A kernel with its grid, its block and its shared memory fixed."""

    def __init__(self, kernel: Kernel, grid: Dimensions, block: Dimensions, shared: int) -> None:
        self._kernel = kernel
        self._arguments = kernel.arguments
        self._sizes = (*grid, *block, shared)
        self._threads = block[0] * block[1] * block[2]
        self._admitted: dict[int, int] = {}
        """Handles by GPU, where block and shared memory were found to fit."""

    def __call__(self, *values: Any) -> None:
        """Launch on torch's current stream; comes back before the kernel has run.

        Raises:
            TypeError: wrong number of arguments, or one that does not fit; the message names it.
            OverflowError: a number that does not fit the parameter's type.
            ValueError: more threads or shared memory than the kernel or the GPU has.
            RuntimeError: the driver refuses the launch, or reports what an earlier kernel did.
            DeviceMissing: there is no GPU that runs it.
        """
        arguments = self._arguments
        converted = arguments.converted(values)
        import torch

        index = arguments.device(values)
        if index is None:
            index = device.current().index
        if index != torch.cuda.current_device():
            with torch.cuda.device(index):
                self._launch(converted, index)
        else:
            self._launch(converted, index)

    def _launch(self, converted: list[Any], index: int) -> None:
        import torch
        from cupy.cuda import driver

        handle = self._admitted.get(index)
        if handle is None:
            handle = self._admit(index)
        stream = torch.cuda.current_stream(index).cuda_stream
        log = kept_log()
        began = perf_counter()
        try:
            with self._arguments.lock:
                self._arguments.pack(converted)
                driver.launchKernel(handle, *self._sizes, stream, self._arguments.address, 0)
        except driver.CUDADriverError as error:
            raise RuntimeError(
                f"`{self._kernel.signature.name}` cannot be launched: {error} (it may be the error "
                "of an earlier kernel, which shows only now)"
            ) from error
        if log is not None:
            log.append(Launch(self._kernel.signature.name, perf_counter() - began))

    def _admit(self, index: int) -> int:
        function = self._kernel.on(index)
        function.admit(self._threads, self._sizes[-1])
        self._admitted[index] = function.handle
        return function.handle


def _dimensions(what: str, given: Any, most: Dimensions) -> Dimensions:
    sizes = (given,) if isinstance(given, int) else tuple(given) if _is_listing(given) else ()
    if not 1 <= len(sizes) <= 3 or not all(type(size) is int for size in sizes):
        raise TypeError(f"{what} must be a count or up to three counts, got {given!r}")
    x, y, z = (*sizes, 1, 1)[:3]
    for axis, size, limit in zip("xyz", (x, y, z), most, strict=True):
        if not 1 <= size <= limit:
            raise ValueError(f"{what} must have 1..{limit} along {axis}, got {size}")
    return x, y, z


def _is_listing(given: Any) -> bool:
    return isinstance(given, tuple | list)
