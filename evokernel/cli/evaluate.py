"""Owns `evokernel evaluate`: judge one candidate and print the five answers with their evidence."""

from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.text import Text

from evokernel.answers import Answer, answers, mebibytes, memory_in_words
from evokernel.attempt import NO_TEXT, Backend, Candidate, source_of
from evokernel.bench import Baseline, Say
from evokernel.cli import completion, options
from evokernel.cli.choices import choice
from evokernel.cli.flat import flat
from evokernel.cli.waiting import waiting
from evokernel.cli.wording import call_time, counted, folded
from evokernel.config import BenchConfig
from evokernel.errors import ConfigError
from evokernel.evaluation import Contract, Evaluation, Outcome, Speedup, Status, Timing
from evokernel.frozen import Frozen
from evokernel.record.entries import label_of
from evokernel.task import Precision, Task
from evokernel.tuning import Space, Tuning, written

CONTRACTS = {"own": "own_kernels_only", "library": "library_allowed"}
_INDENT = 12
_LOG_LINES = 20
_SHOWN = 6

TaskOption = Annotated[
    str,
    typer.Option(
        metavar="TASK",
        autocompletion=completion.tasks,
        help="Name of a built-in task, or path of a task file.",
    ),
]
ContractOption = Annotated[
    str | None,
    choice(
        "--contract",
        CONTRACTS,
        "Who may compute: own (own kernels only) or library.  [default: the task's, else library]",
    ),
]


class Report(Frozen):
    """What `--json` prints."""

    task: str
    """Name of the task."""
    candidate: str
    """Path of the candidate."""
    outcome: Outcome
    """What the evaluation comes to, in one of six words."""
    answers: tuple[Answer, ...]
    """Compiles, right, contract, faster, coverage; each with its evidence."""
    evaluation: Evaluation
    baselines: tuple[Baseline, ...]
    """Empty where the candidate did not pass."""
    notes: tuple[str, ...]
    """What is missing or limited for this task."""
    tuning: Tuning | None = None
    """The search among the values that the candidate declares; None where there was none."""
    tuned_source: str | None = None
    """What was judged after a search: the candidate with the chosen values in place."""


@flat
def evaluate(
    candidate: Annotated[
        Path, typer.Argument(metavar="CANDIDATE", help="A Python file with `ModelNew`.")
    ],
    task: TaskOption,
    backend: options.BackendOrNone = None,
    precision: options.PrecisionOrNone = None,
    contract: ContractOption = None,
    *,
    measuring: options.Measuring,
    write_tuned: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the candidate with the chosen values there."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Judge one candidate: does it compile, is it right, is it its own work, is it faster.

    One that declares values to choose from (`TUNE`) is tuned first. Exit code 1: it did not pass.

    Example: evokernel evaluate my_softmax.py --task softmax
    """
    from evokernel.bench.gpu.choice import device_of

    config = BenchConfig.model_validate({"contract": "library_allowed", **measuring.bench()})
    source = _read(candidate)
    language = _backend(backend, source)
    chosen = _with_contract(_task(task, device_of(language), precision), contract)
    judged = Candidate(source=source, backend=language)
    with waiting("loading PyTorch", f"evaluate {config.measurement}") as shown:
        report = _judge(candidate, judged, chosen, config, shown.say)
    if write_tuned:
        _write(write_tuned, report.tuned_source or source)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        _show(report)
    if report.evaluation.status is not Status.PASSED:
        raise typer.Exit(1)


def _task(where: str, device: str, precision: str | None) -> Task:
    task = Task.load(where, device)
    named = next((known for known in get_args(Precision) if known == precision), None)
    return task.in_precision(named) if named else task


def _backend(named: str | None, source: str) -> Backend:
    """The language that is named, else that of the text."""
    from evokernel.bench.gpu.choice import of_source

    if named is None:
        return of_source(source)
    found: Backend = next(known for known in get_args(Backend) if known == named)
    return found


def _judge(path: Path, candidate: Candidate, task: Task, config: BenchConfig, say: Say) -> Report:
    from evokernel.bench.evaluator import LocalEvaluator

    space = Space.declared(candidate.source)
    with LocalEvaluator(task, config, candidate.backend, say) as evaluator:
        tuning = evaluator.tune(candidate)
        if tuning is not None:
            candidate = Candidate(source=tuning.frozen, backend=candidate.backend)
        evaluation = evaluator.compile(candidate) or evaluator.verify(candidate)
        # Preparing torch.compile takes longer than finding most faults, so it comes last.
        is_passed = evaluation.status is Status.PASSED
        evaluation = evaluator.profile(candidate, evaluation)
        return Report(
            task=task.name,
            candidate=str(path),
            outcome=evaluation.outcome,
            answers=answers(evaluation),
            evaluation=evaluation,
            baselines=evaluator.baselines() if is_passed else (),
            notes=(*_known(task, config), *evaluator.notes, *(space.notes if space else ())),
            tuning=tuning,
            tuned_source=tuning.frozen if tuning else None,
        )


def _known(task: Task, config: BenchConfig) -> tuple[str, ...]:
    """That the task failed its check, where it was examined before."""
    from evokernel.bench.checkup import known

    found = known(task, config.cache)
    return (label_of(found.failed),) if found and found.failed else ()


def _read(path: Path) -> str:
    try:
        return source_of(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else NO_TEXT
        raise ConfigError(
            f"cannot read the candidate `{path}`: {reason}; expected a Python file with `ModelNew`"
        ) from error


def _write(path: Path, source: str) -> None:
    try:
        path.write_text(source, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write the tuned candidate to `{path}`: {error.strerror}; name a file in a "
            "folder that exists and can be written"
        ) from error


def _with_contract(task: Task, contract: str | None) -> Task:
    """The task under the contract that the command names."""
    if contract is None:
        return task
    changed = task.options.model_copy(update={"contract": CONTRACTS[contract]})
    return task.model_copy(update={"options": changed})


def _show(report: Report) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    width = console.width if console.is_terminal else None
    text = Text()
    evaluation = report.evaluation
    passed = evaluation.status is Status.PASSED
    headline = f"{report.candidate} on {report.task}: {evaluation.status.value}"
    if evaluation.outcome != evaluation.status.value:
        headline += f" ({evaluation.outcome})"
    text.append(folded(headline, width) + "\n", "bold green" if passed else "bold red")
    if evaluation.reason:
        text.append(folded(evaluation.reason, width, 2) + "\n")
    for name, line in _lines(report):
        text.append(folded(line, width, _INDENT, f"  {name}") + "\n")
    for diagnostic in evaluation.diagnostics[:_SHOWN]:
        where = ":".join(str(part) for part in (diagnostic.file, diagnostic.line) if part)
        message = f"{diagnostic.severity}: {diagnostic.message}"
        text.append(folded(f"{where}: {message}" if where else message, width, 2) + "\n", "red")
        if diagnostic.excerpt:
            text.append(f"    {diagnostic.excerpt.strip()}\n")
    if evaluation.log.strip() and not passed:
        tail = evaluation.log.rstrip().splitlines()[-_LOG_LINES:]
        text.append("\n".join(f"  | {line}" for line in tail) + "\n", "dim")
    console.print(text, end="")


def _lines(report: Report) -> list[tuple[str, str]]:
    evaluation = report.evaluation
    lines = [
        *(line for answer in report.answers for line in _answer(answer, evaluation)),
        *_tuned(report.tuning),
        *_time(evaluation),
        *(("baseline", _baseline(baseline)) for baseline in report.baselines),
        ("measured", f"{evaluation.measurement} on {evaluation.device} by {evaluation.harness}"),
    ]
    return lines + [("note", note) for note in _notes(report)]


def _answer(answer: Answer, evaluation: Evaluation) -> list[tuple[str, str]]:
    """One answer, and what a person wants to know beside it."""
    lines: list[tuple[str, str]] = [(answer.name, answer.in_words())]
    found, timing = evaluation.correctness, evaluation.timing
    if answer.name == "right" and found is not None:
        lines += [("", found.tolerance), *(("", wrong.detail) for wrong in found.mismatches[1:])]
    if answer.name == "faster" and timing is not None:
        lines += [("", _opponent(speedup)) for speedup in timing.speedups]
        lines.append(("", "in brackets: 95 % interval of alternating measurements"))
    if evaluation.contract is not None:
        lines += [("", line) for line in _evidence(answer, evaluation.contract)]
    return lines


def _evidence(answer: Answer, found: Contract) -> list[str]:
    """Who did the work, beside the answers on contract and coverage."""
    lines: list[str] = []
    if answer.name == "contract":
        lines += found.breaches[1:]
        if found.is_needed is not None:
            said = "is wrong" if found.is_needed else "stays right"
            lines.append(f"without its kernels the result {said}")
        lines += [f"look at {h.file}:{h.line}: {h.message}" for h in found.hints]
    if answer.name == "coverage" and found.coverage_from is not None:
        by = {
            "samples": "sampled from outside",
            "launches": "by the process's own log",
            "trace": "by a trace of its GPU",
        }
        parts = [f"{part.library} {part.share:.0%}" for part in found.libraries[:_SHOWN]]
        where = f"; processor time: {', '.join(parts)}" if parts else ""
        lines.append(f"{by[found.coverage_from]}{where}")
    return lines


def _tuned(found: Tuning | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    lines = [("tuned", found.in_words()), ("", f"{found.stopped}, {found.seconds:.1f} s")]
    failed = [t for t in found.tries if not t.status.is_feasible]
    lines += [("", f"{written(t.values)}: {t.status}: {t.reason}") for t in failed[:_SHOWN]]
    return lines


def _opponent(speedup: Speedup) -> str:
    answer = "no difference that can be told"
    if speedup.is_faster:
        answer = "faster"
    elif speedup.is_slower:
        answer = "slower"
    return f"{answer}: {speedup.against} takes {_opponent_time(speedup)}"


def _opponent_time(speedup: Speedup) -> str:
    return call_time(speedup.opponent_ms, speedup.opponent_wall_ms)


def _time(evaluation: Evaluation) -> list[tuple[str, str]]:
    timing, profile = evaluation.timing, evaluation.profile
    if timing is None:
        return []
    figure = (
        f"{call_time(timing.median_ms, timing.wall_ms)} a call, median of {timing.samples} "
        f"({timing.dropped} disturbed ones dropped, spread {timing.spread:.1%}), "
        f"{_manner(timing)}, {timing.cache_state} caches"
    )
    lines = [("time", figure)]
    lines += [("memory", text)] if (text := memory_in_words(timing)) else []
    if profile is not None:
        share = "" if profile.roofline_share is None else f", {profile.roofline_share:.0%} of it"
        lines.append(("roofline", f"bound by {profile.bound_by}{share}"))
        lines += [("" if n else "profile", note) for n, note in enumerate(profile.notes)]
    return lines


def _manner(timing: Timing) -> str:
    """How it was timed."""
    if timing.way is None:
        return counted(timing.threads, "thread")
    ways = {"single": "each by itself", "batch": "many in a row", "graph": "out of a CUDA graph"}
    return ways[timing.way]


def _baseline(baseline: Baseline) -> str:
    memory = "" if baseline.peak_bytes is None else f", {mebibytes(baseline.peak_bytes)} extra"
    return (
        f"{baseline.name} {call_time(baseline.median_ms, baseline.wall_ms)}{memory} (prepared in "
        f"{baseline.seconds:.1f} s)"
    )


def _notes(report: Report) -> tuple[str, ...]:
    evaluation = report.evaluation
    found = [*report.notes]
    for part in (evaluation.correctness, evaluation.contract, evaluation.timing):
        found += part.notes if part else ()
    return tuple(dict.fromkeys(found))
