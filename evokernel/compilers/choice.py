"""Owns which compiler builds for which backend, and one that builds for all of them."""

import threading
from pathlib import Path

from evokernel.attempt import Backend
from evokernel.compilers import Artefact, BuildFailure, Compiler, KernelSource
from evokernel.compilers.cache import ArtefactCache
from evokernel.compilers.cpp import CppCompiler
from evokernel.errors import CompilerMissing, ConfigError
from evokernel.evaluation import Diagnostic


def compiler_for(backend: Backend, cache: Path, timeout_s: float, arch: str = "") -> Compiler:
    """The compiler of one backend.

    Args:
        backend: The language of its kernels.
        cache: Folder of caches.
        timeout_s: Wall limit of one build, seconds.
        arch: GPU architecture for kernels that name none; empty is this machine's GPU.

    Raises:
        CompilerMissing: it is not installed.
        ConfigError: `arch` is no architecture.
    """
    if backend == "cuda":
        from evokernel.compilers.cuda import CudaCompiler

        return CudaCompiler(cache, timeout_s, arch=arch)
    if backend == "triton":
        from evokernel.compilers.triton import TritonCompiler

        return TritonCompiler(cache, timeout_s, arch=arch)
    return CppCompiler(cache, timeout_s=timeout_s)


class EveryCompiler:
    """Builds whatever backend a kernel is for; each compiler is made when it is first needed.

    Args:
        cache: Folder of caches.
        timeout_s: Wall limit of one build, seconds.
        arch: GPU architecture for kernels that name none; empty is this machine's GPU.
        first: The backend that is worked in: its compiler gives the identity, and has to be there.
            What other kernels lack on this machine is a fault of theirs.
    """

    def __init__(
        self, cache: Path, timeout_s: float = 120.0, arch: str = "", first: Backend = "cpp"
    ) -> None:
        self._settings = (cache, timeout_s, arch)
        self._first: Backend = first
        self.cache = ArtefactCache(cache / "kernels")
        self._made: dict[Backend, Compiler] = {}
        self._lock = threading.Lock()

    def build(self, kernel: KernelSource) -> Artefact | BuildFailure:
        """Build a kernel, or answer from the cache; see `Compiler.build`.

        Raises:
            CompilerMissing: no compiler for the first backend answers.
            ConfigError: the cache cannot be written, or no GPU is there to build for (likewise).
        """
        try:
            return self._compiler(kernel.backend).build(kernel)
        except (CompilerMissing, ConfigError) as error:
            if kernel.backend == self._first:
                raise
            fault = Diagnostic(severity="error", message=str(error), file=kernel.name)
            return BuildFailure(key="", diagnostics=(fault,))

    def identity(self) -> str:
        """Identity of the first backend's compiler.

        Raises:
            CompilerMissing: it is not installed.
        """
        return self._compiler(self._first).identity()

    def _compiler(self, backend: Backend) -> Compiler:
        with self._lock:
            if backend not in self._made:
                self._made[backend] = compiler_for(backend, *self._settings)
            return self._made[backend]
