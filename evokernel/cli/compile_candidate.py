"""Owns the process in which `evokernel compile` imports a candidate, and the report it writes."""

import importlib.util
import sys
import traceback
from pathlib import Path

from evokernel import jit
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.binding import faults
from evokernel.compilers.choice import EveryCompiler
from evokernel.compilers.resources import Resources
from evokernel.compilers.signatures import KERNELS_ONLY, signatures
from evokernel.config import BenchConfig
from evokernel.evaluation import Diagnostic
from evokernel.frozen import Frozen


class KernelReport(Frozen):
    """What became of one kernel."""

    name: str
    """The file name in its messages."""
    is_built: bool
    """It compiles, and Python can call it."""
    cached: bool
    """It was built, or failed, earlier."""
    timed_out: bool = False
    """The compiler was stopped at a limit."""
    seconds: float
    """Wall seconds the compiler took."""
    key: str
    """Cache key."""
    path: str | None = None
    """What was built: a shared library, a cubin, an archive of cubins."""
    arch: str = ""
    """GPU architecture that it was built for; empty for the host's processor."""
    functions: tuple[str, ...] = ()
    """Signatures that Python can call, in C-like text."""
    resources: tuple[Resources, ...] = ()
    """What each kernel takes of a GPU."""
    notes: tuple[str, ...] = ()
    """What a reader should know of how it was built."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Errors and warnings."""


class Report(Frozen):
    """What became of one file."""

    file: str
    """As the user named it."""
    kernels: tuple[KernelReport, ...] = ()
    """In the order of building."""
    faults: tuple[Diagnostic, ...] = ()
    """What is wrong outside the kernels: the import raised, or did not come back."""
    is_complete: bool = False
    """The import came to an end."""
    log: str = ""
    """Tail of what the import printed."""

    @property
    def is_built(self) -> bool:
        """Nothing went wrong."""
        return not self.faults and all(kernel.is_built for kernel in self.kernels)


def build_report(kernel: KernelSource, built: Artefact | BuildFailure) -> KernelReport:
    """Describe the outcome of one build."""
    if isinstance(built, BuildFailure):
        return KernelReport(
            name=kernel.name,
            is_built=False,
            cached=built.cached,
            timed_out=built.timed_out,
            seconds=built.seconds,
            key=built.key,
            diagnostics=built.diagnostics,
        )
    is_read = kernel.backend in KERNELS_ONLY  # Triton's functions are called by Triton
    found = faults(kernel) if is_read else ()
    offered = signatures(kernel.source, KERNELS_ONLY[kernel.backend]) if is_read else ()
    return KernelReport(
        name=kernel.name,
        is_built=not found,
        cached=built.cached,
        seconds=built.seconds,
        key=built.key,
        path=built.path,
        arch=built.arch,
        functions=tuple(str(signature) for signature in offered if not signature.problem),
        resources=built.resources,
        notes=built.notes,
        diagnostics=(*found, *built.diagnostics),
    )


def main(file: Path, answer: Path, arch: str = "") -> None:
    """Import `file`, build its kernels, and keep the report in `answer` up to date.

    Args:
        file: The candidate.
        answer: File for the report.
        arch: GPU architecture of its CUDA kernels; empty is this machine's GPU.
    """
    config = BenchConfig()
    compiler = EveryCompiler(config.cache, config.compile_s, arch)
    report = Report(file=str(file))

    def build(kernel: KernelSource) -> Artefact | BuildFailure:
        nonlocal report
        if arch:
            kernel = kernel.model_copy(update={"arch": arch})
        built = compiler.build(kernel)
        kernels = (*report.kernels, build_report(kernel, built))
        report = report.model_copy(update={"kernels": kernels})
        answer.write_text(report.model_dump_json())
        return built

    jit.use_broker(build)
    found = _faults(file)
    if found and report.kernels and not report.kernels[-1].is_built:
        found = ()  # the import ended because of the kernel, which is reported already
    report = report.model_copy(update={"faults": found, "is_complete": True})
    answer.write_text(report.model_dump_json())


def _faults(file: Path) -> tuple[Diagnostic, ...]:
    """Import the candidate; say what it raised."""
    spec = importlib.util.spec_from_file_location("candidate", file.resolve())
    if spec is None or spec.loader is None:
        return (Diagnostic(severity="error", message="not a Python file", file=file.name),)
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        return (_raised(error, file),)
    return ()


def _raised(error: BaseException, file: Path) -> Diagnostic:
    place = file.resolve()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(place)]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    text = frames[-1].line if frames else getattr(error, "text", None)
    message = getattr(error, "msg", str(error)) or str(error)
    return Diagnostic(
        severity="error",
        message=f"{type(error).__name__}: {message}",
        file=file.name,
        line=line,
        excerpt=text.strip() if text else None,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
