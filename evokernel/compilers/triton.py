"""Owns the building of Triton kernels for an architecture by name, without a GPU."""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from evokernel.compilers import KernelSource, architecture
from evokernel.compilers.cache import Entry
from evokernel.compilers.cached import CachedCompiler, last_words
from evokernel.compilers.diagnostics import capped, line_of, located
from evokernel.compilers.process import Outcome
from evokernel.compilers.resources import Resources, report
from evokernel.compilers.triton_calls import ANSWER
from evokernel.errors import CompilerMissing
from evokernel.evaluation import Diagnostic
from evokernel.frozen import Frozen

_KERNEL = "kernel.py"
_ARCHIVE = "kernel.zip"
_PACKAGE = Path(__file__).resolve().parent.parent  # for `from evokernel import jit`
_PROGRAM = files("evokernel.compilers").joinpath("triton_calls.py")
_MEMORY_BYTES = 24 * 2**30  # address space: torch and LLVM map far more than they use
_INSTALL = "install the extra `triton` (`pip install 'evokernel-agent[triton]'`)"
_PROBE = """\
import triton
import triton.language as tl


@triton.jit
def probe(x):
    tl.store(x, 1.0)


LAUNCHES = {"probe": {"x": "*fp32"}}
"""


class _Kernel(Frozen):
    """One compiled launch."""

    name: str
    log: str
    shared: int
    warps: int
    stages: int


class _Fault(Frozen):
    """What is wrong with a launch, or with the module."""

    message: str
    line: int | None
    column: int | None


class _Answer(Frozen):
    """What `triton_calls` writes down."""

    kernels: tuple[_Kernel, ...]
    faults: tuple[_Fault, ...]
    notes: tuple[str, ...]


class TritonCompiler(CachedCompiler):
    """Builds the Triton kernels of a candidate; they are loaded by Triton itself when it runs.

    A source is a whole module. Which launches are compiled it says in `LAUNCHES`; else, with the
    text of a task, what its `forward` launches.

    Args:
        cache: Folder of caches.
        timeout_s: Wall limit of one build, seconds.
        memory_bytes: Memory limit of one build, address space.
        arch: What is built where a source names nothing; empty is this machine's GPU.
        task: Text of the task that candidates are for; empty leaves `LAUNCHES` only.

    Raises:
        CompilerMissing: Triton or torch is not installed.
        ConfigError: `arch` is no architecture.
    """

    KERNEL = _KERNEL
    BUILT = _ARCHIVE
    PROBE = _PROBE
    INSTALL = _INSTALL

    def __init__(
        self,
        cache: Path,
        timeout_s: float = 120.0,
        memory_bytes: int = _MEMORY_BYTES,
        arch: str = "",
        task: str = "",
    ) -> None:
        super().__init__(cache, timeout_s, memory_bytes, arch)
        self.task = task
        if importlib.util.find_spec("triton") is None:
            raise CompilerMissing(f"Triton is not installed; {_INSTALL}")

    def identity(self) -> str:
        """Versions of Triton and torch, and the task."""
        return self._identity

    def refusals(self, kernel: KernelSource) -> tuple[Diagnostic, ...]:
        """Flags belong into the source, as `num_warps` and the like."""
        if not kernel.flags:
            return ()
        return (_error("Triton kernels take no compiler flags; give options in the launch"),)

    def title(self) -> str:
        """Its name."""
        return "Triton"

    def start(self, folder: Path, kernel: KernelSource, arch: str, is_fenced: bool) -> Outcome:
        """Import the candidate and have its launches compiled; see `CachedCompiler.start`."""
        major, minor = architecture.capability_of(arch)
        ours = folder / "packages"  # with nothing beside the package, as a checkout has
        ours.mkdir()
        (ours / _PACKAGE.name).symlink_to(_PACKAGE)
        installed = _installed()
        job = {
            "source": _KERNEL,
            "archive": _ARCHIVE,
            "capability": 10 * major + minor,
            "path": [*installed, str(ours)],
            "task": self.task,
        }
        environment = {
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TRITON_HOME": str(folder),
            "TRITON_DUMP_PTXAS_LOG": "1",
        }
        program = _PROGRAM.read_text(encoding="utf-8")
        readable = (*installed, str(_PACKAGE))
        return self.run_program(folder, program, job, is_fenced, readable, environment)

    def read(self, folder: Path, kernel: KernelSource, arch: str, outcome: Outcome) -> Entry:
        """Read the answer, which a candidate may have written; see `CachedCompiler.read`."""
        told = _answer(folder) if outcome.code == 0 else None
        if told is None:
            message = f"it ended before Triton answered: {last_words(outcome.output)}"
            return Entry(key="", library=None, diagnostics=(_error(message),))
        lines = kernel.source.split("\n")
        return Entry(
            key="",
            library=None,
            diagnostics=capped((*_faults(told, lines), *_too_large(told, lines, arch))),
            resources=tuple(_resources(told)),
            notes=(*told.notes, *_options(told)),
        )

    @cached_property
    def _identity(self) -> str:
        versions = (f"{n} {importlib.metadata.version(n)}" for n in ("triton", "torch"))
        return " | ".join((*versions, self.task))


def _installed() -> list[str]:
    """Where Python and what candidates import of it lie: of `sys.path` no other folders."""
    prefixes = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    places = [Path(entry).resolve() for entry in sys.path if entry]
    return [
        str(place)
        for place in places
        if not prefixes.isdisjoint(place.parents)
        or any((place / name).is_dir() for name in ("triton", "torch", "pydantic"))
    ]


def _answer(folder: Path) -> _Answer | None:
    """What the process told; None where it told nothing that can be read."""
    try:
        told = _Answer.model_validate_json((folder / ANSWER).read_bytes())
    except (OSError, ValidationError):
        return None
    return told if (folder / _ARCHIVE).is_file() else None


def _faults(told: _Answer, lines: list[str]) -> Iterable[Diagnostic]:
    if not told.faults and not told.kernels:
        return (_error("it launches no Triton kernel"),)
    found = {
        (fault.line, fault.message): _error(fault.message, fault.line, fault.column, lines)
        for fault in told.faults
    }
    return found.values()


def _too_large(told: _Answer, lines: list[str], arch: str) -> Iterator[Diagnostic]:
    """Kernels that Triton builds, and that no block of the target could hold."""
    most = architecture.shared_bytes(arch)
    for kernel in told.kernels:
        if most and kernel.shared > most:
            yield _error(
                f"`{kernel.name}` needs {kernel.shared} bytes of shared memory, and `{arch}` "
                f"has {most}; take smaller blocks or a smaller `num_stages`",
                line_of(kernel.name, lines),
            )


def _resources(told: _Answer) -> Iterator[Resources]:
    for kernel in told.kernels:
        for resources in report(kernel.log)[:1]:
            update = {"kernel": kernel.name, "shared_bytes": kernel.shared}
            yield resources.model_copy(update=update)


def _options(told: _Answer) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            f"`{kernel.name}`: num_warps={kernel.warps}, num_stages={kernel.stages}"
            for kernel in told.kernels
        )
    )


def _error(
    message: str, line: int | None = None, column: int | None = None, lines: Sequence[str] = ()
) -> Diagnostic:
    return located(_KERNEL, "error", message, line, column, lines)
