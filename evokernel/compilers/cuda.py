"""Owns the building of CUDA C++ kernels with NVRTC: to a cubin, for an architecture by name."""

import hashlib
import json
import subprocess
import sys
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from evokernel.compilers import KernelSource
from evokernel.compilers.cache import Entry
from evokernel.compilers.cached import CachedCompiler, UnknownArchitecture, last_words
from evokernel.compilers.cuda_messages import KERNEL, failure, parse
from evokernel.compilers.diagnostics import line_of
from evokernel.compilers.flags import cuda_refusals, fast_math
from evokernel.compilers.nvrtc import REFUSED
from evokernel.compilers.process import Outcome
from evokernel.compilers.resources import STATIC_SHARED_BYTES, report
from evokernel.compilers.standins import HEADERS
from evokernel.compilers.toolkit import Toolkit
from evokernel.errors import CompilerMissing
from evokernel.evaluation import Diagnostic

_PROGRAM = files("evokernel.compilers").joinpath("nvrtc.py")
_ANSWER_S = 30.0
_INSTALL = (
    "install the extra `compilers` (`pip install 'evokernel-agent[compilers]'`, in a checkout `pip "
    "install -c constraints.txt -e '.[compilers]'`), or name a CUDA toolkit with `$CUDA_HOME`"
)


class CudaCompiler(CachedCompiler):
    """Builds one cubin per source, flags and architecture; no GPU is needed, and none is opened.

    Args:
        cache: Folder of caches.
        timeout_s: Wall limit of one build, seconds.
        memory_bytes: Memory limit of one build, address space.
        arch: What is built where a source names nothing; empty is this machine's GPU.
        toolkit: Where NVRTC and its headers lie; None looks for them.

    Raises:
        CompilerMissing: there is no NVRTC.
        ConfigError: `arch` is no architecture.
    """

    KERNEL = KERNEL
    BUILT = "kernel.cubin"
    # What nvcc includes unasked, so that `INFINITY` and `uint32_t` are there as kernels expect.
    FLAGS = (
        *("-std=c++17", "--generate-line-info", "--ptxas-options=-v"),
        *(f"--pre-include={name}" for name in ("cmath", "cfloat", "climits", "cstdint")),
    )
    PROBE = 'extern "C" __global__ void probe(float* x) { x[0] = 1; }\n'
    INSTALL = _INSTALL

    def __init__(
        self,
        cache: Path,
        timeout_s: float = 120.0,
        memory_bytes: int = 4 * 2**30,
        arch: str = "",
        toolkit: Toolkit | None = None,
    ) -> None:
        super().__init__(cache, timeout_s, memory_bytes, arch)
        self.toolkit = toolkit or Toolkit.found()
        if self.toolkit.library is None:
            raise CompilerMissing(
                "no NVRTC: looked for `libnvrtc.so` in the installed wheels, in `$CUDA_HOME` and "
                f"in nvcc's tree; {_INSTALL}"
            )
        self._library = self.toolkit.library

    def identity(self) -> str:
        """NVRTC's version and the headers' versions."""
        return self._identity

    def refusals(self, kernel: KernelSource) -> tuple[Diagnostic, ...]:
        """Say which of the author's flags are not passed on, and why."""
        return tuple(map(failure, cuda_refusals(kernel.flags)))

    def title(self) -> str:
        """Where NVRTC lies."""
        return f"`{self._library}`"

    def start(self, folder: Path, kernel: KernelSource, arch: str, is_fenced: bool) -> Outcome:
        """Have NVRTC compile; see `CachedCompiler.start`."""
        beside = str(Path(self._library).parent)
        return self.run_program(
            folder,
            _PROGRAM.read_text(encoding="utf-8"),
            self._job(kernel, arch),
            is_fenced,
            (beside, *(place.folder for place in self.toolkit.includes)),
            {"LD_LIBRARY_PATH": beside},
        )

    def read(self, folder: Path, kernel: KernelSource, arch: str, outcome: Outcome) -> Entry:
        """Read NVRTC's answer; see `CachedCompiler.read`."""
        if "invalid value for --gpu-architecture" in outcome.output:
            raise UnknownArchitecture(self._unknown(arch))
        cubin = folder / self.BUILT
        is_built = outcome.code == 0 and cubin.is_file()
        if outcome.code == REFUSED:
            found = _reasons(outcome, kernel.source)
        elif is_built:
            found = parse(outcome.output, kernel.source)
        else:
            found = (failure(f"NVRTC gave no answer: {last_words(outcome.output)}"),)
        return Entry(
            key="",
            library=None,
            diagnostics=found,
            resources=report(outcome.output, cubin.read_bytes()) if is_built else (),
            notes=fast_math(kernel.flags),
        )

    @cached_property
    def _identity(self) -> str:
        major, minor = json.loads(self._asked("version"))
        # Two releases of one version differ in their size, if in nothing that can be asked.
        size = Path(self._library).stat().st_size
        stand_ins = hashlib.sha256(repr(HEADERS).encode()).hexdigest()[:8]
        return f"NVRTC {major}.{minor} | {size} | {self.toolkit.versions()} | {stand_ins}"

    def _job(self, kernel: KernelSource, arch: str) -> dict[str, object]:
        includes = [f"-I{place.folder}" for place in self.toolkit.includes]
        return {
            "library": self._library,
            "source": KERNEL,
            "name": KERNEL,
            "cubin": self.BUILT,
            "headers": HEADERS,
            "options": [f"-arch={arch}", *self.FLAGS, *includes, *kernel.flags],
        }

    def _asked(self, verb: str) -> str:
        """What NVRTC says of itself, in a process of its own.

        Raises:
            CompilerMissing: it cannot be loaded.
        """
        command = [sys.executable, "-I", "-S", str(_PROGRAM), verb, self._library]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_ANSWER_S, check=True
            )
        except subprocess.SubprocessError as error:
            raise CompilerMissing(
                f"`{self._library}` cannot be used ({error}); {_INSTALL}"
            ) from error
        return done.stdout

    def _unknown(self, arch: str) -> str:
        known = ", ".join(json.loads(self._asked("architectures")))
        version = self._identity.partition(" | ")[0]
        return f"{version} does not build for `{arch}`; it knows {known}, and their `a` variants"


def _reasons(outcome: Outcome, source: str) -> tuple[Diagnostic, ...]:
    """Why a source is refused: at least one error."""
    found = parse(outcome.output, source)
    if any(diagnostic.severity == "error" for diagnostic in found):
        return found
    lines = source.split("\n")
    # The assembler stops at too much shared memory without a word, after it has told how much.
    too_large = [r for r in report(outcome.output) if r.shared_bytes > STATIC_SHARED_BYTES]
    told = tuple(
        failure(
            f"`{r.kernel}` has {r.shared_bytes} bytes of shared memory of fixed size; at most "
            f"{STATIC_SHARED_BYTES} are allowed, more only as `extern __shared__`, asked for in "
            "the launch",
            line_of(r.kernel, lines),
            lines,
        )
        for r in too_large
    )
    return (*(told or (failure(f"NVRTC refuses it: {last_words(outcome.output)}"),)), *found)
