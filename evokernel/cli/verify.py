"""Owns `evokernel verify`: does a recorded result hold on this machine now."""

import sys
from typing import TYPE_CHECKING

import typer

from evokernel.cli import options, runs
from evokernel.cli.wording import counted, milliseconds, with_interval

if TYPE_CHECKING:
    from evokernel.verify import Answer, Verification


def verify(
    what: runs.RunOrFile,
    task: runs.CandidateTask = None,
    runs_dir: options.RunsDir = options.RUNS,
    quick: options.Quick = False,
    as_json: options.AsJson = False,
) -> None:
    """Judge and measure a kernel again, in fresh processes, and compare with what was recorded.

    What holds is right, and as fast as recorded; a candidate of which nothing is recorded has to be
    faster than every baseline. --quick measures a candidate roughly. Exit code 1: it does not hold.

    Example: evokernel verify runs/20260131-180000-softmax-1a2b
    """
    from evokernel.config import BenchConfig
    from evokernel.verify import verify as measure

    bench = BenchConfig(contract="library_allowed", measurement="quick" if quick else "standard")
    subject = runs.subject(what, runs_dir, task, bench)
    found = measure(subject, _silent if as_json or not sys.stderr.isatty() else _say)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _show(found)
    if not found.holds:
        raise typer.Exit(1)


def _silent(text: str) -> None:
    """Say nothing."""


def _say(text: str) -> None:
    print(f"  {text} ...", file=sys.stderr, flush=True)


def _show(found: "Verification") -> None:
    from evokernel.cli.listing import show_pairs

    answer = (
        "holds" if found.holds else "cannot be told now" if found.undecided else "does not hold"
    )
    show_pairs(f"{found.name} on {found.task}: the result {answer}", _lines(found))


def _lines(found: "Verification") -> list[tuple[str, str]]:
    now = found.found
    lines = [("right", _right(found))]
    if now.contract is not None:
        kept = "kept" if now.contract.is_kept else "not kept"
        lines.append(("contract", f"{kept} ({now.contract.policy})"))
    for number, answer in enumerate(found.answers):
        lines.append(("" if number else "speedup", _answer(answer)))
    if now.timing is not None:
        time = f"{milliseconds(now.timing.median_ms)} a call in {now.timing.processes} processes"
        lines += [("", "in brackets: 95 % interval"), ("time", time)]
    for check in found.door:
        said = "as the original" if check.is_well else check.trouble
        lines.append(("its own door", f"{check.workload}, {check.mode} mode: {said}"))
    if found.is_same_device is False:
        lines.append(("note", f"it was recorded on another device than this one ({now.device})"))
    notes = [*now.notes, *(now.correctness.notes if now.correctness else ())]
    return lines + [("note", note) for note in dict.fromkeys(notes)]


def _right(found: "Verification") -> str:
    now = found.found
    if now.reason:
        return f"{now.status}: {now.reason}"
    assert now.correctness is not None
    return f"yes; {counted(now.correctness.comparisons, 'output')} compared"


def _answer(answer: "Answer") -> str:
    from evokernel.record.outcome import BASELINES

    name = BASELINES.get(answer.against, answer.against)
    ratio = f"{with_interval(answer.now)} as fast as {name}" if answer.now else f"{name}: not timed"
    return f"{ratio}: {answer.said}"
