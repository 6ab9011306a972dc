"""Owns `evokernel compile`: build the kernels of a file and show what the compiler says."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from evokernel.attempt import NO_TEXT, Backend, source_of
from evokernel.cli import completion, options
from evokernel.cli.choices import choice
from evokernel.cli.compile_candidate import Report, build_report
from evokernel.cli.waiting import waiting
from evokernel.compilers import Compiler, KernelSource
from evokernel.compilers.architecture import checked
from evokernel.compilers.choice import compiler_for
from evokernel.compilers.cuda import CudaCompiler
from evokernel.compilers.diagnostics import rendered
from evokernel.config import BenchConfig
from evokernel.errors import ConfigError
from evokernel.evaluation import Diagnostic

_PLAIN: dict[str, Backend] = {".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".cu": "cuda"}
"""Backend of a plain kernel file, by its ending."""
_IMPORT_S = 600.0
_LOG_CHARS = 4000


def compile_file(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A candidate (.py) or a kernel (.cpp, .cu)."),
    ],
    backend: Annotated[
        str | None,
        choice(
            "--backend",
            options.BACKENDS,
            "Language of the kernels: cpp, cuda or triton.  [default: what the file holds]",
        ),
    ] = None,
    arch: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="GPU architecture to build for, e.g. sm_90a.  [default: the GPU that is here]",
        ),
    ] = "",
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            autocompletion=completion.tasks,
            help="Task whose inputs show how Triton kernels are launched, where the candidate does "
            "not declare it (LAUNCHES).",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Build the kernels of a candidate or of one file, without running a model; needs no GPU.

    A candidate is imported in a process of its own, which builds what it asks for on import;
    kernels that its constructor builds are not seen. Exit code 1: something does not build.

    Example: evokernel compile my_kernel.cu --arch sm_90a
    """
    source = _read(file, backend)
    if arch:
        checked(arch)
    with waiting("building", f"compile {file.suffix}"):
        report = _built(file, source, backend, arch, task)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        _show(report)
    if not report.is_built:
        raise typer.Exit(1)


def _built(file: Path, source: str, backend: str | None, arch: str, task: str | None) -> Report:
    if file.suffix in _PLAIN:
        return _plain(file, source, arch)
    report = Report(file=str(file))
    is_triton = backend == "triton" or (backend is None and "triton.jit" in source)
    if backend != "triton":
        _require_compilers(file, source, arch)
        report = _import(file, arch)
    if is_triton and not report.faults:
        report = _with_triton(report, file, source, arch, task)
    return report


def _read(file: Path, backend: str | None) -> str:
    if file.suffix not in {*_PLAIN, ".py"}:
        raise ConfigError(
            f"cannot compile `{file}`: expected a candidate (.py) or a kernel ({', '.join(_PLAIN)})"
        )
    if backend and file.suffix in _PLAIN and _PLAIN[file.suffix] != backend:
        raise ConfigError(
            f"`{file}` is a kernel in `{_PLAIN[file.suffix]}`, and `--backend` says `{backend}`; "
            "leave the option out, or name another file"
        )
    try:
        return source_of(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else NO_TEXT
        raise ConfigError(f"cannot read `{file}`: {reason}; name an existing file") from error


def _require_compilers(file: Path, source: str, arch: str) -> None:
    """Tell what is missing on this machine at once, and not as a fault of the candidate.

    Raises:
        CompilerMissing: no compiler for a kind of kernel that the text mentions.
        ConfigError: it mentions CUDA, no GPU is here, and no architecture is named.
    """
    config = BenchConfig()
    if "cpp_module" in source:
        compiler_for("cpp", config.cache, config.compile_s)
    if "cuda_module" in source:
        compiler = CudaCompiler(config.cache, config.compile_s, arch=arch)
        compiler.architecture(KernelSource(backend="cuda", source="", name=file.name))


def _plain(file: Path, source: str, arch: str) -> Report:
    backend = _PLAIN[file.suffix]
    config = BenchConfig()
    compiler = compiler_for(backend, config.cache, config.compile_s, arch)
    return _with(Report(file=str(file), is_complete=True), compiler, backend, file, source)


def _with_triton(report: Report, file: Path, source: str, arch: str, task: str | None) -> Report:
    from evokernel.compilers.triton import TritonCompiler

    text = ""
    if task:
        from evokernel.task import Task

        text = Task.load(task, device="cuda").source
    config = BenchConfig()
    compiler = TritonCompiler(config.cache, config.compile_s, arch=arch, task=text)
    return _with(report, compiler, "triton", file, source)


def _with(report: Report, compiler: Compiler, backend: Backend, file: Path, source: str) -> Report:
    kernel = KernelSource(backend=backend, source=source, name=file.name)
    kernels = (*report.kernels, build_report(kernel, compiler.build(kernel)))
    return report.model_copy(update={"kernels": kernels, "is_complete": True})


def _import(file: Path, arch: str) -> Report:
    """Let another process import the candidate; whatever it does, there is a report."""
    with tempfile.TemporaryDirectory(prefix="evokernel-compile-") as folder:
        answer = Path(folder, "report.json")
        command = [sys.executable, "-u", "-m", "evokernel.cli.compile_candidate"]
        command += [str(file), str(answer), *([arch] if arch else [])]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_IMPORT_S,
                check=False,
            )
            end, output = f"ended with code {done.returncode}", done.stdout
        except subprocess.TimeoutExpired as error:
            end, output = f"was stopped after {_IMPORT_S:g} s", error.stdout or b""
        report = Report.model_validate_json(answer.read_bytes()) if answer.exists() else None
    report = report or Report(file=str(file))
    if not report.is_complete:
        message = f"the import {end} before it was finished"
        fault = Diagnostic(severity="error", message=message, file=file.name)
        report = report.model_copy(update={"faults": (fault,)})
    log = output.decode(errors="replace")[-_LOG_CHARS:]
    return report.model_copy(update={"log": log})


def _show(report: Report) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for kernel in report.kernels:
        when = "cached" if kernel.cached else f"{kernel.seconds:.2f} s"
        verdict = ("ok", "green") if kernel.is_built else ("failed", "bold red")
        target = f"  {kernel.arch}" if kernel.arch else ""
        console.print(Text.assemble((kernel.name, "bold"), "  ", verdict, f"  {when}{target}"))
        for function in kernel.functions:
            console.print(Text(f"  {function}"))
        for resources in kernel.resources:
            console.print(Text(f"  {resources.kernel}: {resources}"))
        for note in kernel.notes:
            console.print(Text(f"  note: {note}", "yellow"))
        _show_diagnostics(console, kernel.diagnostics)
    _show_diagnostics(console, report.faults)
    if report.faults and report.log.strip():
        console.print(Text(report.log.rstrip(), "dim"))
    if not report.kernels and not report.faults:
        console.print(
            f"{report.file}: no kernel was built on import (a kernel that `ModelNew` builds in its "
            "constructor is seen by `evokernel evaluate`)"
        )


def _show_diagnostics(console: Console, diagnostics: tuple[Diagnostic, ...]) -> None:
    for diagnostic in diagnostics:
        style = "red" if diagnostic.severity == "error" else "yellow"
        console.print(Text(f"  {rendered(diagnostic)}", style))
        if diagnostic.excerpt:
            console.print(Text(f"    {diagnostic.line or '':>5} | {diagnostic.excerpt}"))
