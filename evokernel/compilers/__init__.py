"""Owns the contract of the way from source to artefact: one file per backend implements it."""

from typing import Protocol

from pydantic import Field

from evokernel.attempt import Backend
from evokernel.compilers.resources import Resources
from evokernel.evaluation import Diagnostic
from evokernel.frozen import Frozen


class KernelSource(Frozen):
    """One kernel file as its author wrote it."""

    backend: Backend
    """The language it is written in."""
    source: str
    """The complete text; it includes nothing but the language's own headers."""
    flags: tuple[str, ...] = ()
    """The author's compiler flags, added after ours."""
    name: str = "kernel_0.cpp"
    """What the author calls it; messages use it as the file name. Not part of the cache key."""
    arch: str = Field(default="", pattern=r"^(sm_\d{2,3}[af]?)?$")
    """GPU architecture to build for, e.g. `sm_90a`; empty is the compiler's own choice."""


class Artefact(Frozen):
    """A kernel that was built and can be loaded."""

    path: str
    """Absolute path, inside the cache: a shared library, a cubin, an archive of Triton's cubins."""
    key: str
    """Cache key: a hash of everything that decides what the library does."""
    seconds: float
    """Wall seconds the compiler took when it built this."""
    cached: bool
    """It was built earlier; nothing was compiled now."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """The compiler's warnings, capped in number and length."""
    log: str = ""
    """What the compiler wrote, capped."""
    arch: str = ""
    """GPU architecture that it runs on; empty for the host's processor."""
    resources: tuple[Resources, ...] = ()
    """What each kernel takes of a GPU; empty for the host's processor."""
    notes: tuple[str, ...] = ()
    """What a reader should know of how it was built, e.g. that fast-math is on."""


class BuildFailure(Frozen):
    """A kernel that cannot be built; that is the author's doing."""

    key: str
    """Cache key: the same source fails again without being compiled again."""
    diagnostics: tuple[Diagnostic, ...]
    """At least one error; errors first, capped in number and length."""
    timed_out: bool = False
    """The compiler was stopped at its time or memory limit."""
    seconds: float = 0.0
    """Wall seconds the compiler took before it gave up; 0 where it was not started."""
    log: str = ""
    """What the compiler wrote, capped."""
    cached: bool = False
    """It failed earlier; nothing was compiled now."""


class Compiler(Protocol):
    """Turns sources of one backend into artefacts; safe to call from several threads."""

    def build(self, kernel: KernelSource) -> Artefact | BuildFailure:
        """Compile a kernel, or answer from the cache.

        Raises:
            CompilerMissing: no compiler answers, or it cannot build the simplest kernel.
            ConfigError: the cache cannot be written.
        """

    def identity(self) -> str:
        """Everything about compiler and machine that decides what it makes of a source."""
