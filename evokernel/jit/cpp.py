"""Owns `cpp_module`: C++ kernels of a candidate, built and loaded into this process."""

from collections.abc import Mapping, Sequence
from typing import Any

from evokernel.compilers import KernelSource
from evokernel.compilers.binding import Function, Strided, bind, faults, macros
from evokernel.compilers.loading import FloatStateChanged, load
from evokernel.evaluation import Diagnostic
from evokernel.jit.building import BuildError, built, once


class CppModule:
    """The functions of one built kernel file, each an attribute that can be called."""

    def __init__(self, name: str, functions: dict[str, Function]) -> None:
        self._name = name
        self._functions = functions
        self.__dict__.update(functions)

    def __getattr__(self, attribute: str) -> Function:
        """Reached only for what the kernel file does not have."""
        known = ", ".join(f"`{function}`" for function in self._functions)
        raise AttributeError(
            f'`{self._name}` has no extern "C" function `{attribute}`; it has {known}'
        )

    def __repr__(self) -> str:
        """The kernel's name and its signatures."""
        return f"<{self._name}: {'; '.join(str(f.signature) for f in self._functions.values())}>"


def cpp_module(
    source: str,
    flags: Sequence[str] = (),
    name: str | None = None,
    defines: Mapping[str, bool | int | float | str] | None = None,
) -> CppModule:
    """Build a C++17/OpenMP source and load it.

    Args:
        source: the whole file. Functions to call are `extern "C"`, take pointers to numbers,
            integers, floats and bools, and return nothing, a number, or an `int` status.
        flags: compiler flags added to ours, e.g. `("-funroll-loops",)`.
        name: what messages call the file; numbered `kernel_<n>.cpp` by default.
        defines: macros of the source by name, e.g. `{"BLOCK": 64}`: numbers and text are put there
            as they are, True and False as 1 and 0.

    Returns:
        An object with one callable per function. Pointers take contiguous CPU tensors of the
        matching dtype, or None; `uint16_t*` takes float16 and bfloat16.

    Raises:
        BuildError: it does not compile, or a function cannot be called from Python.
        CompilerMissing: there is no working compiler (only where no broker builds).
        ConfigError: the cache cannot be written (only where no broker builds).
    """
    every = (*flags, *macros(defines))

    def make(number: int) -> CppModule:
        called = name or f"kernel_{number}.cpp"
        return _loaded(KernelSource(backend="cpp", source=source, flags=every, name=called))

    return once("cpp", source, every, make)


def strided(tensor: Any) -> Strided:
    """Let a kernel have a tensor that is not contiguous; pass the strides as arguments too."""
    return Strided(tensor)


def _loaded(kernel: KernelSource) -> CppModule:
    artefact = built(kernel)
    try:
        library = load(artefact.path)
    except (OSError, FloatStateChanged) as error:
        message = f"the built library cannot be used: {error}"
        diagnostic = Diagnostic(severity="error", message=message, file=kernel.name)
        raise BuildError(kernel.name, (diagnostic,)) from error
    if found := faults(kernel):
        raise BuildError(kernel.name, found)
    return CppModule(kernel.name, bind(library, kernel))
