"""Owns the building of Triton kernels for an architecture by name, without a GPU."""

import importlib.metadata
import importlib.util
import json
import sys
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from evokernel.compilers import KernelSource, architecture
from evokernel.compilers.cache import Entry
from evokernel.compilers.cached import CachedCompiler
from evokernel.compilers.cuda_messages import line_of
from evokernel.compilers.resources import Resources, report
from evokernel.compilers.triton_calls import ANSWER
from evokernel.errors import CompilerMissing
from evokernel.evaluation import Diagnostic

_KERNEL = "kernel.py"
_ARCHIVE = "kernel.zip"
_OURS = str(Path(__file__).resolve().parent.parent.parent)  # `from evokernel import jit`
_PROGRAM = files("evokernel.compilers").joinpath("triton_calls.py")
_MESSAGE_CHARS = 500
_MEMORY_BYTES = 24 * 2**30  # address space: torch and LLVM map far more than they use
_INSTALL = "install the extra `triton` (`pip install 'evokernel-agent[triton]'`)"


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

    def make(self, folder: Path, kernel: KernelSource, arch: str) -> Entry:
        """Compile; see `CachedCompiler.make`."""
        major, minor = architecture.capability_of(arch)
        path = [str(Path(entry).resolve()) for entry in (*sys.path, _OURS) if entry]
        job = {
            "source": _KERNEL,
            "archive": _ARCHIVE,
            "capability": 10 * major + minor,
            "path": path,
            "task": self.task,
        }
        environment = {
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TRITON_HOME": str(folder),
            "TRITON_DUMP_PTXAS_LOG": "1",
        }
        program = _PROGRAM.read_text(encoding="utf-8")
        outcome = self.run_program(folder, program, "build", job, path, environment)
        place = folder / ANSWER
        if limit := self.limit_hit(outcome):
            diagnostics: tuple[Diagnostic, ...] = (_error(limit),)
            told: dict[str, Any] = {}
        elif outcome.code == 0 and place.is_file():
            told = json.loads(place.read_text(encoding="utf-8"))
            diagnostics = _faults(told, kernel.source) + _too_large(told, kernel.source, arch)
        else:
            raise CompilerMissing(f"Triton does not work: {_last(outcome.output)}; {_INSTALL}")
        return Entry(
            key="",
            library=None,
            seconds=outcome.seconds,
            log=outcome.output,
            diagnostics=diagnostics,
            timed_out=bool(limit),
            resources=_resources(told),
            notes=(*told.get("notes", ()), *_options(told)),
        )

    @cached_property
    def _identity(self) -> str:
        versions = (f"{n} {importlib.metadata.version(n)}" for n in ("triton", "torch"))
        return " | ".join((*versions, self.task))


def _faults(told: dict[str, Any], source: str) -> tuple[Diagnostic, ...]:
    if not told["faults"] and not told["kernels"]:
        return (_error("it launches no Triton kernel"),)
    lines = source.split("\n")
    found = {}
    for fault in told["faults"]:
        line = fault["line"]
        excerpt = lines[line - 1].strip() if line and line <= len(lines) else None
        found[line, fault["message"]] = _error(fault["message"]).model_copy(
            update={"line": line, "column": fault["column"], "excerpt": excerpt}
        )
    return tuple(found.values())


def _too_large(told: dict[str, Any], source: str, arch: str) -> tuple[Diagnostic, ...]:
    """Kernels that Triton builds, and that no block of the target could hold."""
    most = architecture.shared_bytes(arch)
    lines = source.split("\n")
    found = []
    for kernel in told["kernels"]:
        if most and kernel["shared"] > most:
            line = line_of(kernel["name"], lines)
            message = (
                f"`{kernel['name']}` needs {kernel['shared']} bytes of shared memory, and `{arch}` "
                f"has {most}; take smaller blocks or a smaller `num_stages`"
            )
            found.append(_error(message).model_copy(update={"line": line}))
    return tuple(found)


def _resources(told: dict[str, Any]) -> tuple[Resources, ...]:
    found = []
    for kernel in told.get("kernels", ()):
        for resources in report(kernel["log"])[:1]:
            update = {"kernel": kernel["name"], "shared_bytes": kernel["shared"]}
            found.append(resources.model_copy(update=update))
    return tuple(found)


def _options(told: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            f"`{kernel['name']}`: num_warps={kernel['warps']}, num_stages={kernel['stages']}"
            for kernel in told.get("kernels", ())
        )
    )


def _error(message: str) -> Diagnostic:
    return Diagnostic(severity="error", message=message[:_MESSAGE_CHARS], file=_KERNEL)


def _last(output: str) -> str:
    return " / ".join(output.strip().splitlines()[-3:]) or "no message"
