"""Owns `cuda_module`: CUDA kernels of a candidate, built to machine code and loaded with CuPy.

CuPy's thin face of the driver does the loading and launching: it shares torch's context, comes in
one wheel for each generation of CUDA, and is installed where people write CUDA kernels in Python.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from evokernel.compilers import Artefact, KernelSource, architecture
from evokernel.compilers.binding import faults, macros
from evokernel.compilers.signatures import KERNELS_ONLY, signatures
from evokernel.jit import device
from evokernel.jit.building import BuildError, built, once
from evokernel.jit.launching import Kernel


class CudaModule:
    """The kernels of one built CUDA file, each an attribute: `module.kernel[grid, block](...)`."""

    def __init__(self, kernel: KernelSource, artefact: Artefact) -> None:
        self._name = kernel.name
        self._arch = artefact.arch
        self._cubin = Path(artefact.path)
        self._lock = threading.Lock()
        self._modules: dict[int, int] = {}
        self._kernels = {
            signature.name: Kernel(signature, partial(self._handle, signature.name))
            for signature in signatures(kernel.source, KERNELS_ONLY["cuda"])
            if not signature.problem
        }
        self.resources = {resource.kernel: resource for resource in artefact.resources}
        """What each kernel takes of the GPU, as the compiler told: registers, spills and so on."""
        self.__dict__.update(self._kernels)

    def __getattr__(self, attribute: str) -> Kernel:
        """Reached only for what the kernel file does not have."""
        known = ", ".join(f"`{name}`" for name in self._kernels)
        raise AttributeError(
            f'`{self._name}` has no extern "C" __global__ function `{attribute}`; it has {known}'
        )

    def __repr__(self) -> str:
        """The kernel's name, its architecture and its signatures."""
        listed = "; ".join(str(kernel.signature) for kernel in self._kernels.values())
        return f"<{self._name} for {self._arch}: {listed}>"

    def _prepare(self) -> None:
        """Load it into torch's current GPU where that can run it: not in a graph's capture."""
        if not device.missing():
            gpu = device.current()
            if architecture.runs_on(self._arch, gpu.capability):
                for kernel in self._kernels.values():
                    kernel.on(gpu.index)

    def _load(self, index: int) -> int:
        """Load it into a GPU, once; the driver's handle of the module.

        Raises:
            DeviceMissing: that GPU cannot run it.
        """
        with self._lock:
            if index not in self._modules:
                cubin = self._cubin.read_bytes()
                self._modules[index] = device.loaded(cubin, self._name, self._arch, index)
            return self._modules[index]

    def _handle(self, name: str, index: int) -> int:
        return device.function(self._load(index), name)


def cuda_module(
    source: str,
    flags: Sequence[str] = (),
    name: str | None = None,
    defines: Mapping[str, bool | int | float | str] | None = None,
) -> CudaModule:
    """Build a CUDA C++17 source with NVRTC, and load it into torch's current GPU.

    Args:
        source: the whole file. Kernels to launch are `extern "C" __global__`, and take pointers to
            numbers, integers, floats and bools. It includes nothing but CUDA's own headers.
        flags: compiler flags added to ours, e.g. `("--maxrregcount=64",)`; fast-math is off unless
            it is named here.
        name: what messages call the file; numbered `kernel_<n>.cu` by default.
        defines: macros of the source by name, e.g. `{"BLOCK": 256}`.

    Returns:
        An object with one kernel per function: `module.kernel[grid, block, shared_bytes](x, n)`.
        Grid and block are counts or tuples of up to three; pointers take contiguous CUDA tensors
        of the matching dtype, or None. It runs on torch's current stream. Where there is no GPU
        but a broker builds, it is loaded at the first launch.

    Raises:
        BuildError: it does not compile, or a kernel cannot be called from Python.
        CompilerMissing: there is no NVRTC (only where no broker builds).
        ConfigError: no GPU is there to build for (only where no broker builds).
        DeviceMissing: the GPU that is there cannot run it.
    """
    every = (*flags, *macros(defines))

    def make(number: int) -> CudaModule:
        called = name or f"kernel_{number}.cu"
        arch = "" if device.missing() else device.current().arch
        kernel = KernelSource(backend="cuda", source=source, flags=every, name=called, arch=arch)
        artefact = built(kernel)
        if found := faults(kernel):
            raise BuildError(kernel.name, found)
        module = CudaModule(kernel, artefact)
        module._prepare()
        return module

    return once("cuda", source, every, make)
