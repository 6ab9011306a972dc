"""Owns what a kernel file may import: `cpp_module`, and how its kernels are built and loaded."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.binding import Function, Launch, Strided, bind, faults, launches, macros
from evokernel.compilers.diagnostics import rendered
from evokernel.compilers.loading import FloatStateChanged, load
from evokernel.config import BenchConfig
from evokernel.evaluation import Diagnostic

__all__ = ["BuildError", "CppModule", "Launch", "cpp_module", "launches", "strided", "use_broker"]

Broker = Callable[[KernelSource], Artefact | BuildFailure]
"""Builds for a process that may not run a compiler itself."""

_SHOWN = 3


class BuildError(Exception):
    """A kernel cannot be built, loaded or called from Python: the fault of its author.

    It stands outside `evokernel.errors`, which is for faults of ours and of the set-up: it is
    raised in the candidate's process, and becomes `Status.COMPILE_ERROR` or `COMPILE_TIMEOUT`.
    """

    def __init__(
        self, name: str, diagnostics: Sequence[Diagnostic], timed_out: bool = False
    ) -> None:
        self.name = name
        """The kernel's name, e.g. `kernel_0.cpp`."""
        self.diagnostics = tuple(diagnostics)
        """Errors first; at least one."""
        self.timed_out = timed_out
        """The compiler was stopped at its time or memory limit."""
        shown = "\n".join(f"  {rendered(d)}" for d in self.diagnostics[:_SHOWN])
        super().__init__(f"`{name}` does not build:\n{shown}")


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


_broker: Broker | None = None
_modules: dict[tuple[str, tuple[str, ...]], CppModule] = {}


def use_broker(broker: Broker | None) -> None:
    """Let `broker` build every later kernel of this process; None builds here again."""
    global _broker
    _broker = broker
    _modules.clear()


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
    known = (source, (*flags, *macros(defines)))
    if known not in _modules:
        kernel = KernelSource(
            backend="cpp",
            source=source,
            flags=known[1],
            name=name or f"kernel_{len(_modules)}.cpp",
        )
        _modules[known] = _loaded(kernel)
    return _modules[known]


def strided(tensor: Any) -> Strided:
    """Let a kernel have a tensor that is not contiguous; pass the strides as arguments too."""
    return Strided(tensor)


def _loaded(kernel: KernelSource) -> CppModule:
    built = (_broker or _build_here)(kernel)
    if isinstance(built, BuildFailure):
        raise BuildError(kernel.name, built.diagnostics, built.timed_out)
    try:
        library = load(built.path)
    except (OSError, FloatStateChanged) as error:
        message = f"the built library cannot be used: {error}"
        diagnostic = Diagnostic(severity="error", message=message, file=kernel.name)
        raise BuildError(kernel.name, (diagnostic,)) from error
    if found := faults(kernel):
        raise BuildError(kernel.name, found)
    return CppModule(kernel.name, bind(library, kernel))


def _build_here(kernel: KernelSource) -> Artefact | BuildFailure:
    config = BenchConfig()
    return _own_compiler(config.cache, config.compile_s)(kernel)


@cache
def _own_compiler(folder: Path, seconds: float) -> Broker:
    from evokernel.compilers.cpp import CppCompiler

    return CppCompiler(folder, timeout_s=seconds).build
