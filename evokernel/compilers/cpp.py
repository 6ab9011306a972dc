"""Owns the building of C++17/OpenMP kernels with the host's compiler."""

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.cache import FORMAT, ArtefactCache, Entry
from evokernel.compilers.diagnostics import (
    KERNEL,
    failure,
    parse,
    ran_out_of_memory,
    was_killed,
)
from evokernel.compilers.flags import refusals
from evokernel.compilers.process import Limits, Outcome, run
from evokernel.compilers.signatures import Parameter, Signature, signatures
from evokernel.config import compiler_environment, host_compiler
from evokernel.errors import CompilerMissing
from evokernel.evaluation import Diagnostic
from evokernel.wording import plain

__all__ = ["FLAGS", "CppCompiler", "Parameter", "Signature", "signatures"]

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-fno-plt",
    # These three change no value that IEEE 754 prescribes, except that a*b+c may be rounded once.
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    # A kernel calls its own functions, also where the process has others of the same name.
    "-fno-semantic-interposition",
    "-Wl,-Bsymbolic",
    # Missing functions are found now, by name, not when the library is loaded.
    "-Wl,-z,defs",
)
"""What every kernel is built with; the author's flags come after it."""
_MESSAGES = ("-fdiagnostics-color=never", "-fmax-errors=20")
_LIBRARY = "kernel.so"
_LOG_CHARS = 8000
_VERSION_S = 10.0
_PROBE = '#include <omp.h>\nextern "C" int probe() { return omp_get_max_threads() > 0; }\n'
_INSTALL = (
    "install g++ (Debian and Ubuntu: `apt install g++`, Fedora: `dnf install gcc-c++`, conda: "
    "`conda install gxx`) or set `$CXX` to a C++17 compiler with OpenMP"
)


class CppCompiler:
    """Builds one shared library per source, flags and machine, within limits.

    Raises:
        CompilerMissing: neither `$CXX` nor `g++` nor `clang++` can be run.
    """

    def __init__(
        self, cache: Path, timeout_s: float = 120.0, memory_bytes: int = 4 * 2**30
    ) -> None:
        self.cache = ArtefactCache(cache / "kernels")
        self.limits = Limits(seconds=timeout_s, memory_bytes=memory_bytes)
        self._command = _find_compiler()
        self.is_fenced = True
        """Whether it can read nothing but its own parts and the system's."""
        self._is_proven = False
        # More compilers than cores only make each other run into their limits.
        self._slots = threading.BoundedSemaphore(len(os.sched_getaffinity(0)))

    def identity(self) -> str:
        """Compiler, its version, and the processor and C library that it builds for."""
        return self._identity

    def build(self, kernel: KernelSource) -> Artefact | BuildFailure:
        """Build a kernel, or answer from the cache; see `Compiler.build`."""
        key = self._key(kernel)
        if refused := refusals(kernel.flags):
            diagnostics = _named(map(failure, refused), kernel.name)
            return BuildFailure(key=key, diagnostics=diagnostics)
        entry = self.cache.find(key)
        is_known = entry is not None and self._still_holds(entry)
        if entry is None or not is_known:
            with self._slots:
                entry = self._compile(key, kernel)
        return self._answer(entry, kernel.name, cached=is_known)

    @cached_property
    def _identity(self) -> str:
        command = " ".join(self._command)
        parts = (command, _version(self._command), _processor(), _c_library(), _search_paths())
        return " | ".join(filter(None, parts))

    def _key(self, kernel: KernelSource) -> str:
        parts = [FORMAT, kernel.backend, self._identity, FLAGS, kernel.flags, kernel.source]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def _still_holds(self, entry: Entry) -> bool:
        """A failure at a limit says nothing about a larger limit."""
        is_larger = (
            self.limits.seconds > entry.timeout_s or self.limits.memory_bytes > entry.memory_bytes
        )
        return not (entry.timed_out and is_larger)

    def _compile(self, key: str, kernel: KernelSource) -> Entry:
        with self.cache.workspace() as folder:
            self.cache.write_source(folder / KERNEL, kernel.source)
            outcome = self._run(kernel.flags, folder)
            library = folder / _LIBRARY
            if outcome.code == 0 and not outcome.timed_out and library.is_file():
                self._is_proven = True
                entry = Entry(
                    key=key,
                    library=None,
                    seconds=outcome.seconds,
                    log=_log(outcome),
                    diagnostics=parse(outcome.output, plain(kernel.source)),
                )
                return self.cache.keep(entry, library)
        was_fenced = self.is_fenced
        entry = self._failed(key, kernel, outcome)
        return entry if self.is_fenced is was_fenced else self._compile(key, kernel)

    def _run(self, flags: tuple[str, ...], folder: Path) -> Outcome:
        line, environment = self._line(flags), compiler_environment()
        return run(line, folder, environment, self.limits, self.is_fenced)

    def _line(self, flags: tuple[str, ...]) -> list[str]:
        libraries = [flag for flag in flags if flag.startswith("-l")]
        others = [flag for flag in flags if not flag.startswith("-l")]
        return [
            *self._command,
            *FLAGS,
            *_MESSAGES,
            *others,
            KERNEL,
            "-o",
            _LIBRARY,
            *libraries,
        ]

    def _failed(self, key: str, kernel: KernelSource, outcome: Outcome) -> Entry:
        self.cache.check_space()
        limit = self._limit_hit(outcome)
        if not limit:
            self._prove_compiler()
        entry = Entry(
            key=key,
            library=None,
            seconds=outcome.seconds,
            log=_log(outcome),
            diagnostics=(failure(limit),) if limit else _reasons(outcome, plain(kernel.source)),
            timed_out=bool(limit),
            timeout_s=self.limits.seconds,
            memory_bytes=self.limits.memory_bytes,
        )
        # What others did to the compiler is no property of the source.
        is_ours = outcome.timed_out or (outcome.code >= 0 and not was_killed(outcome.output))
        return self.cache.keep(entry) if is_ours else entry

    def _limit_hit(self, outcome: Outcome) -> str:
        gigabytes = f"{self.limits.memory_bytes / 2**30:.3g} GiB"
        if outcome.timed_out:
            return f"the compiler was stopped at its limit of {self.limits.seconds:g} s"
        if ran_out_of_memory(outcome.output):
            return f"the compiler ran out of its {gigabytes} of memory"
        if outcome.code < 0 or was_killed(outcome.output):
            return f"the compiler was killed from outside, perhaps for lack of memory ({gigabytes})"
        return ""

    def _prove_compiler(self) -> None:
        """Blame a source only after the compiler has built something.

        Raises:
            CompilerMissing: it cannot build the simplest kernel.
        """
        if self._is_proven:
            return
        with self.cache.workspace() as folder:
            self.cache.write_source(folder / KERNEL, _PROBE)
            outcome = self._run((), folder)
            if outcome.code != 0 and self.is_fenced:
                self.is_fenced = False  # it may need what the fence does not know of
                outcome = self._run((), folder)
        if outcome.code != 0:
            first = _reasons(outcome, _PROBE)[0].message
            raise CompilerMissing(
                f"`{' '.join(self._command)}` does not build the simplest OpenMP kernel "
                f"({first}); {_INSTALL}"
            )
        self._is_proven = True

    def _answer(self, entry: Entry, name: str, cached: bool) -> Artefact | BuildFailure:
        log = entry.log.replace(KERNEL, name)[:_LOG_CHARS]
        diagnostics = _named(entry.diagnostics, name)
        if entry.library:
            return Artefact(
                path=str(self.cache.library_path(entry).absolute()),
                key=entry.key,
                seconds=entry.seconds,
                cached=cached,
                diagnostics=diagnostics,
                log=log,
            )
        return BuildFailure(
            key=entry.key,
            diagnostics=diagnostics,
            timed_out=entry.timed_out,
            seconds=entry.seconds,
            log=log,
            cached=cached,
        )


def _named(diagnostics: Iterable[Diagnostic], name: str) -> tuple[Diagnostic, ...]:
    """Call the kernel what its author calls it."""
    return tuple(
        d.model_copy(update={"file": name}) if d.file == KERNEL else d for d in diagnostics
    )


def _reasons(outcome: Outcome, source: str) -> tuple[Diagnostic, ...]:
    found = parse(outcome.output, source)
    if any(diagnostic.severity == "error" for diagnostic in found):
        return found
    last = " / ".join(outcome.output.strip().splitlines()[-3:])
    return (failure(f"the compiler ended with code {outcome.code}: {last or 'no message'}"), *found)


def _log(outcome: Outcome) -> str:
    return outcome.output[:_LOG_CHARS]


def _find_compiler() -> tuple[str, ...]:
    commands, is_chosen = host_compiler()
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError:  # an unclosed quote
            continue
        if words and (path := shutil.which(words[0])):
            return (path, *words[1:])
    if is_chosen:
        raise CompilerMissing(
            f"`$CXX` is `{commands[0]}`, which cannot be run; unset it, or {_INSTALL}"
        )
    looked = " and ".join(f"`{command}`" for command in commands)
    raise CompilerMissing(f"no C++ compiler: looked for {looked} on the PATH; {_INSTALL}")


def _version(command: tuple[str, ...]) -> str:
    try:
        answer = subprocess.run(
            [*command, "--version"],
            env=compiler_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerMissing(
            f"`{' '.join(command)} --version` does not answer ({error}); {_INSTALL}"
        ) from error
    return " ".join(answer.stdout.split("\n")[0].split())


def _processor() -> str:
    """What `-march=native` stands for here: name and instruction sets, hashed."""
    wanted = re.compile(
        r"(?:vendor_id|cpu family|model|model name|stepping|flags|Features|CPU \w+)\s*:"
    )
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = platform.processor()
    first = text.split("\n\n")[0]
    lines = [line for line in first.splitlines() if wanted.match(line)] or [first]
    return f"{platform.machine()} {hashlib.sha256(repr(lines).encode()).hexdigest()[:12]}"


def _search_paths() -> str:
    """Settings that change which headers and libraries the compiler finds."""
    elsewhere = {"PATH", "HOME", "LD_LIBRARY_PATH"}
    found = sorted(item for item in compiler_environment().items() if item[0] not in elsewhere)
    return " ".join(f"{name}={value}" for name, value in found)


def _c_library() -> str:
    return " ".join(platform.libc_ver())
