"""Owns who builds the kernels of this process, and that each is built and loaded once."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from evokernel.attempt import Backend
from evokernel.compilers import Artefact, BuildFailure, Compiler, KernelSource
from evokernel.compilers.diagnostics import rendered
from evokernel.config import BenchConfig
from evokernel.evaluation import Diagnostic

Broker = Callable[[KernelSource], Artefact | BuildFailure]
"""Builds for a process that may not run a compiler itself."""

M = TypeVar("M")

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


_broker: Broker | None = None
_modules: dict[tuple[str, str, tuple[str, ...]], Any] = {}


def use_broker(broker: Broker | None) -> None:
    """Let `broker` build every later kernel of this process; None builds here again."""
    global _broker
    _broker = broker
    _modules.clear()


def is_brokered() -> bool:
    """Whether another process builds for this one."""
    return _broker is not None


def once(backend: Backend, source: str, flags: tuple[str, ...], make: Callable[[int], M]) -> M:
    """What `make` returned for this source and these flags; it is called with a running number."""
    known = (backend, source, flags)
    if known not in _modules:
        _modules[known] = make(len(_modules))
    module: M = _modules[known]
    return module


def built(kernel: KernelSource) -> Artefact:
    """Have a kernel built.

    Raises:
        BuildError: it does not compile.
        CompilerMissing: there is no working compiler (only where no broker builds).
        ConfigError: the cache cannot be written, or no GPU is there to build for (likewise).
    """
    answer = (_broker or _build_here)(kernel)
    if isinstance(answer, BuildFailure):
        raise BuildError(kernel.name, answer.diagnostics, answer.timed_out)
    return answer


def _build_here(kernel: KernelSource) -> Artefact | BuildFailure:
    config = BenchConfig()
    return _own_compiler(kernel.backend, config.cache, config.compile_s).build(kernel)


@cache
def _own_compiler(backend: Backend, folder: Path, seconds: float) -> Compiler:
    from evokernel.compilers.choice import compiler_for

    return compiler_for(backend, folder, seconds)
