"""Owns the building of C++17/OpenMP kernels with the host's compiler."""

import hashlib
import platform
import re
import shlex
import shutil
import subprocess
from functools import cached_property
from pathlib import Path

from evokernel.compilers import KernelSource
from evokernel.compilers.cache import Entry
from evokernel.compilers.cached import CachedCompiler, last_words
from evokernel.compilers.cpp_messages import (
    KERNEL,
    failure,
    parse,
    ran_out_of_memory,
    was_killed,
)
from evokernel.compilers.flags import refusals
from evokernel.compilers.process import Outcome, run
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
_VERSION_S = 10.0
_INSTALL = (
    "install g++ (Debian and Ubuntu: `apt install g++`, Fedora: `dnf install gcc-c++`, conda: "
    "`conda install gxx`) or set `$CXX` to a C++17 compiler with OpenMP"
)


class CppCompiler(CachedCompiler):
    """Builds one shared library per source, flags and machine, within limits.

    Args:
        cache: Folder of caches.
        timeout_s: Wall limit of one build, seconds.
        memory_bytes: Memory limit of one build, address space.

    Raises:
        CompilerMissing: neither `$CXX` nor `g++` nor `clang++` can be run.
    """

    KERNEL = KERNEL
    BUILT = "kernel.so"
    FLAGS = FLAGS
    PROBE = '#include <omp.h>\nextern "C" int probe() { return omp_get_max_threads() > 0; }\n'
    PROBED = "OpenMP kernel"
    INSTALL = _INSTALL

    def __init__(
        self, cache: Path, timeout_s: float = 120.0, memory_bytes: int = 4 * 2**30
    ) -> None:
        super().__init__(cache, timeout_s, memory_bytes)
        self._command = _find_compiler()

    def identity(self) -> str:
        """Compiler, its version, and the processor and C library that it builds for."""
        return self._identity

    def title(self) -> str:
        """Its command."""
        return f"`{' '.join(self._command)}`"

    def architecture(self, kernel: KernelSource) -> str:
        """Empty: it builds for the processor that is here."""
        return ""

    def refusals(self, kernel: KernelSource) -> tuple[Diagnostic, ...]:
        """Say which of the author's flags are not passed on, and why."""
        return tuple(map(failure, refusals(kernel.flags)))

    def start(self, folder: Path, kernel: KernelSource, arch: str, is_fenced: bool) -> Outcome:
        """Run it; see `CachedCompiler.start`."""
        line, environment = self._line(kernel.flags), compiler_environment()
        return run(line, folder, environment, self.limits, is_fenced)

    def read(self, folder: Path, kernel: KernelSource, arch: str, outcome: Outcome) -> Entry:
        """Read its messages; see `CachedCompiler.read`."""
        source = plain(kernel.source)
        if outcome.code == 0 and (folder / self.BUILT).is_file():
            found = parse(outcome.output, source)
        else:
            found = _reasons(outcome, source)
        return Entry(key="", library=None, diagnostics=found)

    def is_out_of_memory(self, output: str) -> bool:
        """Whether it gave up for lack of memory, in its own words at a line's start."""
        return ran_out_of_memory(output)

    def is_killed(self, outcome: Outcome) -> bool:
        """Whether it, or one of its programs, was killed."""
        return outcome.code < 0 or was_killed(outcome.output)

    @cached_property
    def _identity(self) -> str:
        command = " ".join(self._command)
        parts = (command, _version(self._command), _processor(), _c_library(), _search_paths())
        return " | ".join(filter(None, parts))

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
            self.BUILT,
            *libraries,
        ]


def _reasons(outcome: Outcome, source: str) -> tuple[Diagnostic, ...]:
    found = parse(outcome.output, source)
    if any(diagnostic.severity == "error" for diagnostic in found):
        return found
    told = f"the compiler ended with code {outcome.code}: {last_words(outcome.output)}"
    return (failure(told), *found)


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
