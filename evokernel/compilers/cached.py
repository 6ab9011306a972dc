"""Owns the build of kernels within limits and through the cache, whatever compiles them."""

import hashlib
import json
import os
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evokernel.attempt import Backend
from evokernel.compilers import Artefact, BuildFailure, KernelSource, architecture
from evokernel.compilers.cache import FORMAT, ArtefactCache, Entry
from evokernel.compilers.diagnostics import located
from evokernel.compilers.process import Limits, Outcome, run
from evokernel.config import compiler_environment
from evokernel.errors import CompilerMissing, ConfigError
from evokernel.evaluation import Diagnostic

_LOG_CHARS = 8000
_OUT_OF_MEMORY = re.compile(
    r"error: out of memory|^MemoryError|std::bad_alloc|NVRTC_ERROR_OUT_OF_MEMORY", re.MULTILINE
)
_PROGRAM = "program.py"
_JOB = "job.json"


class UnknownArchitecture(ConfigError):
    """The compiler does not build for the architecture that was named."""


class _Made(NamedTuple):
    """What one call of the compiler gave."""

    entry: Entry
    is_lasting: bool
    """It says something about the source; what others did to the compiler does not."""

    @property
    def is_built(self) -> bool:
        return not any(d.severity == "error" for d in self.entry.diagnostics)


class CachedCompiler(ABC):
    """Builds one artefact per source, flags and target, in a process of its own.

    Args:
        cache: Folder of caches; the kernels lie in `kernels` below it.
        timeout_s: Wall limit of one build, seconds.
        memory_bytes: Memory limit of one build, address space.
        arch: What is built where a source names nothing, e.g. `sm_90a`; empty is what is here.

    Raises:
        ConfigError: `arch` is no architecture.
    """

    KERNEL: str
    """Name under which every kernel is compiled, so that equal sources give equal results."""
    BUILT: str
    """Name of what is made of it."""
    FLAGS: tuple[str, ...] = ()
    """What every kernel is built with; the author's flags come after it."""
    PROBE: str
    """The simplest kernel, and the only source whose failure speaks about the compiler."""
    PROBED: str = "kernel"
    """What messages call it."""
    INSTALL: str
    """What to do where the compiler is missing or does not work."""

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
        self._is_proven = False
        self._proving = threading.Lock()
        # More compilers than cores only make each other run into their limits.
        self._slots = threading.BoundedSemaphore(len(os.sched_getaffinity(0)))

    @abstractmethod
    def identity(self) -> str:
        """Everything that decides what the compiler makes of a source, but target and flags."""

    @abstractmethod
    def title(self) -> str:
        """What messages call the compiler."""

    @abstractmethod
    def refusals(self, kernel: KernelSource) -> tuple[Diagnostic, ...]:
        """What is wrong with a source before it is compiled."""

    @abstractmethod
    def start(self, folder: Path, kernel: KernelSource, arch: str, is_fenced: bool) -> Outcome:
        """Run the compiler in `folder`, where the source lies."""

    @abstractmethod
    def read(self, folder: Path, kernel: KernelSource, arch: str, outcome: Outcome) -> Entry:
        """Say what became of a source; an entry with an error is a failure.

        Key and library are filled in later.

        Raises:
            UnknownArchitecture: the compiler does not know it.
        """

    def build(self, kernel: KernelSource) -> Artefact | BuildFailure:
        """Build a kernel, or answer from the cache.

        Raises:
            CompilerMissing: no compiler is found, or it does not build the simplest kernel.
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
        job: Mapping[str, Any],
        is_fenced: bool,
        readable: Iterable[str],
        settings: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run a Python program on a job, with the limits; both are written into `folder`.

        Args:
            folder: Private folder of this build.
            program: Text of the program. Its arguments are `build` and the name of a file with
                the job, as JSON.
            job: What it does.
            is_fenced: Whether it can read nothing but what it is given and the system's own.
            readable: Files and folders that it is given: of libraries, headers, packages.
            settings: More of its environment.
        """
        self.cache.write_source(folder / _PROGRAM, program)
        self.cache.write_source(folder / _JOB, json.dumps(job))
        environment = compiler_environment() | dict(settings or {})
        command = [sys.executable, "-I", "-S", _PROGRAM, "build", _JOB]
        return run(command, folder, environment, self.limits, is_fenced, tuple(readable))

    def is_out_of_memory(self, output: str) -> bool:
        """Whether the compiler says that it gave up for lack of memory."""
        return _OUT_OF_MEMORY.search(output) is not None

    def is_killed(self, outcome: Outcome) -> bool:
        """Whether somebody else ended it."""
        return outcome.code < 0

    def limit_hit(self, outcome: Outcome) -> str:
        """Why a build was stopped from outside; empty where it was not."""
        gigabytes = f"{self.limits.memory_bytes / 2**30:.3g} GiB"
        if outcome.timed_out:
            return f"the compiler was stopped at its limit of {self.limits.seconds:g} s"
        if outcome.code != 0 and self.is_out_of_memory(outcome.output):
            return f"the compiler ran out of its {gigabytes} of memory"
        if self.is_killed(outcome):
            return f"the compiler was killed from outside, perhaps for lack of memory ({gigabytes})"
        return ""

    def _key(self, kernel: KernelSource, arch: str) -> str:
        parts = [FORMAT, kernel.backend, self.identity(), arch, self.FLAGS]
        parts += [kernel.flags, kernel.source]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def _still_holds(self, entry: Entry) -> bool:
        """A failure at a limit says nothing about a larger limit."""
        is_larger = (
            self.limits.seconds > entry.timeout_s or self.limits.memory_bytes > entry.memory_bytes
        )
        return not (entry.timed_out and is_larger)

    def _compile(self, key: str, kernel: KernelSource, arch: str) -> Entry:
        is_fenced = self.is_fenced
        with self.cache.workspace() as folder:
            made = self._made(folder, kernel, arch, is_fenced)
            entry = made.entry.model_copy(update={"key": key})
            if made.is_built:
                self._is_proven = True
                return self.cache.keep(entry, folder / self.BUILT)
        self.cache.check_space()
        if not entry.timed_out:
            self._prove(kernel.backend, arch)
            if self.is_fenced is not is_fenced:
                return self._compile(key, kernel, arch)
        return self.cache.keep(entry) if made.is_lasting else entry

    def _made(self, folder: Path, kernel: KernelSource, arch: str, is_fenced: bool) -> _Made:
        self.cache.write_source(folder / self.KERNEL, kernel.source)
        outcome = self.start(folder, kernel, arch, is_fenced)
        common = {"seconds": outcome.seconds, "log": outcome.output[:_LOG_CHARS]}
        if limit := self.limit_hit(outcome):
            entry = Entry(
                key="",
                library=None,
                diagnostics=(located(self.KERNEL, "error", limit),),
                timed_out=True,
                timeout_s=self.limits.seconds,
                memory_bytes=self.limits.memory_bytes,
            )
        else:
            entry = self.read(folder, kernel, arch, outcome)
        is_ours = outcome.timed_out or not self.is_killed(outcome)
        return _Made(entry.model_copy(update=common), is_ours)

    def _prove(self, backend: Backend, arch: str) -> None:
        """Blame a source only after the compiler has built something; only `PROBE` is trusted.

        Where the simplest kernel needs what the fence does not know of, the fence is taken down.

        Raises:
            CompilerMissing: the compiler cannot build the simplest kernel.
            UnknownArchitecture: the compiler does not know it.
        """
        with self._proving:
            if self._is_proven:
                return
            fault = self._fault(backend, arch, self.is_fenced)
            if fault and self.is_fenced:
                fault = self._fault(backend, arch, is_fenced=False)
                self.is_fenced = bool(fault)
            if fault:
                raise CompilerMissing(
                    f"{self.title()} does not build the simplest {self.PROBED} ({fault}); "
                    f"{self.INSTALL}"
                )
            self._is_proven = True

    def _fault(self, backend: Backend, arch: str, is_fenced: bool) -> str:
        """Why the simplest kernel is not built; empty where it is."""
        probe = KernelSource(backend=backend, source=self.PROBE, name=self.KERNEL)
        with self.cache.workspace() as folder:
            made = self._made(folder, probe, arch, is_fenced)
        return "" if made.is_built else made.entry.diagnostics[0].message

    def _answer(
        self, entry: Entry, name: str, arch: str, is_cached: bool
    ) -> Artefact | BuildFailure:
        diagnostics = _named(entry.diagnostics, self.KERNEL, name)
        log = entry.log.replace(self.KERNEL, name)[:_LOG_CHARS]
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


def last_words(output: str) -> str:
    """The end of what a compiler wrote, in one line."""
    return " / ".join(output.strip().splitlines()[-3:]) or "no message"


def _named(diagnostics: Iterable[Diagnostic], kernel: str, name: str) -> tuple[Diagnostic, ...]:
    """Call the kernel what its author calls it."""
    return tuple(
        d.model_copy(update={"file": name}) if d.file == kernel else d for d in diagnostics
    )
