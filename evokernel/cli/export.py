"""Owns `evokernel export`: a kernel as one file that needs torch only."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evokernel.cli import completion, options, runs
from evokernel.cli.waiting import waiting
from evokernel.errors import ConfigError
from evokernel.frozen import Frozen

if TYPE_CHECKING:
    from evokernel.export import Exported
    from evokernel.export.subject import Subject


class Report(Frozen):
    """What `--json` prints."""

    file: str
    """Path of the exported file."""
    task: str
    candidate: str
    """Content hash of the kernel's text."""
    workloads: tuple[str, ...]
    """Names of the workloads whose shapes the kernel serves."""
    modes: tuple[str, ...]
    """Of `train` and `eval`, those in which it serves."""
    strict: bool
    notes: tuple[str, ...] = ()


def export(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN|CANDIDATE",
            autocompletion=completion.runs,
            help="Run folder or its name, or a file with `ModelNew`.",
        ),
    ],
    task: runs.CandidateTask = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="File to write.  [default: TASK_kernel.py]"
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Let a call outside of what was verified raise an error."),
    ] = False,
    runs_dir: options.RunsDir = options.RUNS,
    quick: options.Quick = False,
    as_json: options.AsJson = False,
) -> None:
    """Write the best kernel of a run, or a candidate, as one file that needs torch only.

    The file builds its kernel at the first call. Where it was not verified (other shapes, dtypes,
    layouts, gradients wanted), the original module runs, and that is counted. A candidate is judged
    first; --quick judges it roughly. Exit code 1: it did not pass.

    Example: evokernel export runs/20260131-180000-softmax-1a2b -o fast_softmax.py
    """
    from evokernel.config import BenchConfig
    from evokernel.export import export as make
    from evokernel.export.claims import file_name

    bench = BenchConfig(contract="library_allowed", measurement="quick" if quick else "standard")
    subject = runs.subject(what, runs_dir, task, bench)
    file = _writable(out or Path(file_name(subject.task.name)))
    subject = _passed(subject)
    claims = subject.claims
    assert claims is not None
    with waiting("writing the kernel's file", "export"):
        exported = make(subject.task, subject.candidate, claims, subject.workloads, strict)
    _write(file, exported.text)
    report = _report(file, subject, exported, strict)
    if as_json:
        print(report.model_dump_json(indent=2))
    else:
        _show(report, claims.sentence())


def _report(file: Path, subject: "Subject", exported: "Exported", strict: bool) -> Report:
    return Report(
        file=str(file),
        task=subject.task.name,
        candidate=subject.candidate.sha,
        workloads=exported.workloads,
        modes=exported.modes,
        strict=strict,
        notes=exported.notes,
    )


def _passed(subject: "Subject") -> "Subject":
    """The subject with what is claimed of it; a candidate is judged now."""
    if subject.exported:
        raise ConfigError(
            f"`{subject.name}` is an exported file already; expected a run or a candidate"
        )
    if subject.claims is not None:
        return subject
    from evokernel.export.subject import judged

    with waiting("loading PyTorch", f"export {subject.bench.measurement}") as shown:
        subject, evaluation = judged(subject, shown.say)
    if subject.claims is None:
        typer.echo(
            f"{subject.name} on {subject.task.name}: {evaluation.status.value}: "
            f"{evaluation.reason}. Nothing was written; `evokernel evaluate` shows all of it.",
            err=True,
        )
        raise typer.Exit(1)
    return subject


def _writable(file: Path) -> Path:
    """Refuse to write over what is no exported file, before anything takes time."""
    if file.is_dir():
        raise ConfigError(f"`{file}` is a folder; expected a file to write, with `-o FILE`")
    if file.exists() and "exported by EvoKernel" not in file.read_text(errors="replace")[:500]:
        raise ConfigError(f"`{file}` exists and is no exported file; name another one with `-o`")
    return file


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_name(f".{file.name}.part")
        half.write_text(text, encoding="utf-8")
        half.replace(file)
    except OSError as error:
        raise ConfigError(
            f"`{file}` cannot be written: {error.strerror or error}; name another file with `-o`"
        ) from error


def _show(report: Report, claim: str) -> None:
    from evokernel.cli.listing import show_pairs

    module = Path(report.file).stem
    show_pairs(
        f"{report.file}: {report.task} for torch alone",
        [
            ("kernel", claim),
            ("serves", f"the shapes of {', '.join(report.workloads)}; {_modes(report.modes)}"),
            ("elsewhere", "an error" if report.strict else "the original module runs, counted"),
            *(("note", note) for note in report.notes),
            ("check it", f"python {report.file}"),
            ("use it", f"from {module} import ModelNew  # in place of Model"),
        ],
    )


def _modes(modes: tuple[str, ...]) -> str:
    return f"{' and '.join(modes)} mode"
