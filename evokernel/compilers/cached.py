"""Owns the build of GPU kernels within limits and through the cache, whatever compiles them."""

import hashlib
import json
import os
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evokernel.compilers import Artefact, BuildFailure, KernelSource, architecture
from evokernel.compilers.cache import FORMAT, ArtefactCache, Entry
from evokernel.compilers.process import Limits, Outcome, run
from evokernel.config import compiler_environment
from evokernel.errors import CompilerMissing, ConfigError
from evokernel.evaluation import Diagnostic

_LOG_CHARS = 8000
_OUT_OF_MEMORY = re.compile(r"error: out of memory|^MemoryError|std::bad_alloc", re.MULTILINE)
_PROGRAM = "program.py"
_JOB = "job.json"


class UnknownArchitecture(ConfigError):
    """The compiler does not build for the architecture that was named."""


class CachedCompiler(ABC):
    """Builds machine code of one architecture per source and flags, in a process of its own.

    Args:
        cache: Folder of caches; the kernels lie in `kernels` below it.
        timeout_s: Wall limit of one build, seconds.
        memory_bytes: Memory limit of one build, address space.
        arch: What is built where a source names nothing, e.g. `sm_90a`; empty is what is here.

    Raises:
        ConfigError: `arch` is no architecture.
    """

    KERNEL: str
    """Name under which every kernel is compiled."""
    BUILT: str
    """Name of what is made of it."""

    def __init__(
        self,
        cache: Path,
        timeout_s: float = 120.0,
        memory_bytes: int = 4 * 2**30,
        arch: str = "",
    ) -> None:
        self.cache = ArtefactCache(cache / "kernels")
        self.limits = Limits(seconds=timeout_s, memory_bytes=memory_bytes)
        self.arch = architecture.checked(arch) if arch else ""
        self.is_fenced = True
        """Whether a build can read nothing but what it is given and the system's own."""
        self._slots = threading.BoundedSemaphore(len(os.sched_getaffinity(0)))

    @abstractmethod
    def identity(self) -> str:
        """Everything that decides what the compiler makes of a source, but architecture, flags."""

    @abstractmethod
    def refusals(self, kernel: KernelSource) -> tuple[Diagnostic, ...]:
        """What is wrong with a source before it is compiled."""

    @abstractmethod
    def make(self, folder: Path, kernel: KernelSource, arch: str) -> Entry:
        """Compile in `folder`, where the source lies; the entry's key and library are filled in.

        Raises:
            CompilerMissing: it is the compiler that does not work.
            UnknownArchitecture: the compiler does not know it.
        """

    def build(self, kernel: KernelSource) -> Artefact | BuildFailure:
        """Build a kernel, or answer from the cache.

        Raises:
            CompilerMissing: no compiler is found, or it does not work.
            ConfigError: no architecture is named and no GPU is here; or the cache cannot be
                written.
        """
        arch = self.architecture(kernel)
        key = self._key(kernel, arch)
        if refused := self.refusals(kernel):
            return BuildFailure(key=key, diagnostics=_named(refused, self.KERNEL, kernel.name))
        entry = self.cache.find(key)
        is_known = entry is not None and self._still_holds(entry)
        if entry is None or not is_known:
            try:
                with self._slots:
                    entry = self._compile(key, kernel, arch)
            except UnknownArchitecture as error:
                if not kernel.arch:
                    raise
                fault = Diagnostic(severity="error", message=str(error), file=kernel.name)
                return BuildFailure(key=key, diagnostics=(fault,))
        return self._answer(entry, kernel.name, arch, is_known)

    def architecture(self, kernel: KernelSource) -> str:
        """What a kernel is built for: what it names, else ours, else this machine's GPU.

        Raises:
            ConfigError: none of these.
        """
        if kernel.arch:
            return architecture.checked(kernel.arch)
        if found := self.arch or architecture.present():
            return found
        raise ConfigError(
            f"no GPU is here that `{kernel.name}` could be built for; name one, e.g. `evokernel "
            "compile FILE --arch sm_90a`, or use kernels in C++ (`--backend cpp`)"
        )

    def run_program(
        self,
        folder: Path,
        program: str,
        verb: str,
        job: Mapping[str, Any],
        paths: Iterable[str],
        settings: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run a Python program on a job, with the limits; both are written into `folder`.

        Args:
            folder: Private folder of this build.
            program: Text of the program; it imports the standard library, and what `paths` hold.
            verb: Its first argument.
            job: Its second argument is the name of a file with this, as JSON.
            paths: Folders that it reads: of libraries, headers, packages.
            settings: More of its environment.
        """
        self.cache.write_source(folder / _PROGRAM, program)
        self.cache.write_source(folder / _JOB, json.dumps(job))
        places = os.pathsep.join(paths)
        environment = compiler_environment() | dict(settings or {})
        environment |= {"LD_LIBRARY_PATH": places, "CPATH": places}
        command = [sys.executable, "-I", "-S", _PROGRAM, verb, _JOB]
        return run(command, folder, environment, self.limits, self.is_fenced)

    def limit_hit(self, outcome: Outcome) -> str:
        """Why a build was stopped from outside; empty where it was not."""
        if outcome.timed_out:
            return f"the compiler was stopped at its limit of {self.limits.seconds:g} s"
        if outcome.code < 0 or _OUT_OF_MEMORY.search(outcome.output):
            gigabytes = f"{self.limits.memory_bytes / 2**30:.3g} GiB"
            return f"the compiler ran out of its {gigabytes} of memory, or was killed"
        return ""

    def _key(self, kernel: KernelSource, arch: str) -> str:
        parts = [FORMAT, kernel.backend, self.identity(), arch, kernel.flags, kernel.source]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def _still_holds(self, entry: Entry) -> bool:
        """A failure at a limit says nothing about a larger limit."""
        is_larger = (
            self.limits.seconds > entry.timeout_s or self.limits.memory_bytes > entry.memory_bytes
        )
        return not (entry.timed_out and is_larger)

    def _compile(self, key: str, kernel: KernelSource, arch: str) -> Entry:
        with self.cache.workspace() as folder:
            self.cache.write_source(folder / self.KERNEL, kernel.source)
            made = self._made(folder, kernel, arch)
            update: dict[str, Any] = {"key": key, "log": made.log[:_LOG_CHARS]}
            if made.timed_out:
                update["timeout_s"] = self.limits.seconds
                update["memory_bytes"] = self.limits.memory_bytes
            built = folder / self.BUILT
            is_built = not any(d.severity == "error" for d in made.diagnostics)
            if not is_built:
                self.cache.check_space()
            return self.cache.keep(made.model_copy(update=update), built if is_built else None)

    def _made(self, folder: Path, kernel: KernelSource, arch: str) -> Entry:
        try:
            return self.make(folder, kernel, arch)
        except CompilerMissing:
            if not self.is_fenced:
                raise
            self.is_fenced = False  # it may need what the fence does not know of
            return self.make(folder, kernel, arch)

    def _answer(
        self, entry: Entry, name: str, arch: str, is_cached: bool
    ) -> Artefact | BuildFailure:
        diagnostics = _named(entry.diagnostics, self.KERNEL, name)
        log = entry.log.replace(self.KERNEL, name)
        if entry.library is None:
            return BuildFailure(
                key=entry.key,
                diagnostics=diagnostics,
                timed_out=entry.timed_out,
                seconds=entry.seconds,
                log=log,
                cached=is_cached,
            )
        return Artefact(
            path=str(self.cache.library_path(entry).absolute()),
            key=entry.key,
            seconds=entry.seconds,
            cached=is_cached,
            diagnostics=diagnostics,
            log=log,
            arch=arch,
            resources=entry.resources,
            notes=entry.notes,
        )


def _named(diagnostics: Iterable[Diagnostic], kernel: str, name: str) -> tuple[Diagnostic, ...]:
    """Call the kernel what its author calls it."""
    return tuple(
        d.model_copy(update={"file": name}) if d.file == kernel else d for d in diagnostics
    )
