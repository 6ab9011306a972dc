"""Owns `evokernel compile`: build the kernels of a file and show what the compiler says."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from evokernel.cli import options
from evokernel.cli.compile_candidate import Report, build_report
from evokernel.compilers import KernelSource
from evokernel.compilers.cpp import CppCompiler
from evokernel.compilers.diagnostics import rendered
from evokernel.config import BenchConfig
from evokernel.errors import ConfigError
from evokernel.evaluation import Diagnostic

_CPP = {".cpp", ".cc", ".cxx"}
_IMPORT_S = 600.0
_LOG_CHARS = 4000


def compile_file(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A candidate (.py) or a C++ kernel (.cpp)."),
    ],
    as_json: options.AsJson = False,
) -> None:
    """Build the kernels of a candidate or of one C++ file, without running a model.

    A candidate is imported in a process of its own, which builds what it asks for on import;
    kernels that its constructor builds are not seen. Exit code 1: something does not build.

    Example: evokernel compile my_kernel.cpp
    """
    config = BenchConfig()
    compiler = CppCompiler(config.cache, config.compile_s)
    source = _read(file)
    if file.suffix in _CPP:
        kernel = KernelSource(backend="cpp", source=source, name=file.name)
        kernels = (build_report(kernel, compiler.build(kernel)),)
        report = Report(file=str(file), kernels=kernels, is_complete=True)
    else:
        report = _import(file)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        _show(report)
    if not report.is_built:
        raise typer.Exit(1)


def _read(file: Path) -> str:
    if file.suffix not in _CPP | {".py"}:
        raise ConfigError(
            f"cannot compile `{file}`: expected a candidate (.py) or a C++ kernel "
            f"({', '.join(sorted(_CPP))})"
        )
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read `{file}`: {reason}; name an existing file") from error


def _import(file: Path) -> Report:
    """Let another process import the candidate; whatever it does, there is a report."""
    with tempfile.TemporaryDirectory(prefix="evokernel-compile-") as folder:
        answer = Path(folder, "report.json")
        command = [sys.executable, "-m", "evokernel.cli.compile_candidate", str(file), str(answer)]
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
    console = Console(highlight=False, soft_wrap=True)
    for kernel in report.kernels:
        when = "cached" if kernel.cached else f"{kernel.seconds:.2f} s"
        verdict = ("ok", "green") if kernel.is_built else ("failed", "bold red")
        console.print(Text.assemble((kernel.name, "bold"), "  ", verdict, f"  {when}"))
        for function in kernel.functions:
            console.print(Text(f"  {function}"))
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
