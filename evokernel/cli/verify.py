"""Owns `evokernel verify`: does a recorded result hold on this machine now."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evokernel.answers import memory_in_words
from evokernel.cli import memory_place, options, runs
from evokernel.cli.waiting import waiting
from evokernel.cli.wording import call_time, counted, with_interval

if TYPE_CHECKING:
    from evokernel.verify import Comparison, Verification


def verify(
    what: runs.RunOrFile,
    task: runs.CandidateTask = None,
    runs_dir: options.RunsDir = options.RUNS,
    quick: options.Quick = False,
    retract: Annotated[
        bool, typer.Option("--retract", help="If it is wrong, withdraw it from memory.")
    ] = False,
    reinstate: Annotated[
        bool, typer.Option("--reinstate", help="If it holds, take suspicion from it in memory.")
    ] = False,
    memory: options.MemoryPath = None,
    as_json: options.AsJson = False,
) -> None:
    """Judge and measure a kernel again, in fresh processes, and compare with what was recorded.

    What holds is right, and as fast as recorded; a candidate of which nothing is recorded has to be
    faster than every baseline. --quick measures a candidate roughly. Exit code 1: it does not hold.
    With --retract a kernel that is wrong is withdrawn from memory, as `memory forget` does.

    Example: evokernel verify runs/20260131-180000-softmax-1a2b
    """
    from evokernel.config import BenchConfig
    from evokernel.verify import verify as measure

    bench = BenchConfig(contract="library_allowed", measurement="quick" if quick else "standard")
    subject = runs.subject(what, runs_dir, task, bench)
    with waiting("loading PyTorch", f"verify {subject.bench.measurement}") as shown:
        found = measure(subject, shown.say)
    place = Path(memory) if memory else subject.memory or memory_place.path(None)
    found = found.model_copy(update={"memory": _remembered(found, place, retract, reinstate)})
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _show(found)
    if not found.holds:
        raise typer.Exit(1)


def _remembered(found: "Verification", place: Path, retract: bool, reinstate: bool) -> str:
    """What memory says of it, and what it shall say from now on."""
    from evokernel.memory import standing as memory

    known = memory.standing(place, found.candidate)
    where = f"in the memory `{place}`"
    if found.is_wrong and retract:
        why = f"`evokernel verify` found it {found.found.status}: {found.found.reason}"
        gone = memory.retract(place, found.candidate, why.rstrip(": "))
        if gone is None:
            return f"nothing to withdraw {where}"
        suspects = f", {len(gone.suspects)} made from it suspect" if gone.suspects else ""
        return f"{counted(len(gone.ids), 'experience')} withdrawn{suspects} {where}"
    if retract and (why_not := _kept(found)):
        return f"{said}; {why_not}" if (said := known.in_words()) else why_not
    if found.holds and reinstate and known.suspect:
        ids = memory.reinstate(place, found.candidate, "`evokernel verify` found it right")
        return f"{counted(len(ids), 'experience')} not suspect any more {where}"
    said = known.in_words()
    if found.is_wrong and not known.withdrawn:
        hint = "`--retract` withdraws it from memory, with what it earned for others"
        return f"{said}; {hint}" if said else hint
    if found.holds and known.suspect and not known.withdrawn:
        return f"{said}; it holds: `--reinstate` takes the suspicion from it"
    return said


def _kept(found: "Verification") -> str:
    """Why memory keeps what was to be withdrawn."""
    if found.holds:
        return "it holds: nothing was withdrawn"
    status = found.found.status
    if status.is_feasible:
        return "it is right, only slower than recorded: nothing was withdrawn"
    where = " other than the one it was recorded on" if found.is_same_device is False else ""
    return (
        f"`{status}` may be the doing of this machine{where}, so that it does not show the kernel "
        "wrong: nothing was withdrawn; `evokernel memory forget` withdraws it nevertheless"
    )


def _show(found: "Verification") -> None:
    from evokernel.cli.listing import show_pairs

    answer = (
        "holds" if found.holds else "cannot be told now" if found.undecided else "does not hold"
    )
    show_pairs(f"{found.name} on {found.task}: the result {answer}", _lines(found))


def _lines(found: "Verification") -> list[tuple[str, str]]:
    now = found.found
    lines: list[tuple[str, str]] = [(a.name, a.in_words()) for a in found.answers]
    for number, comparison in enumerate(found.comparisons):
        lines.append(("" if number else "speedup", _comparison(comparison)))
    if now.timing is not None:
        time = f"{call_time(now.timing.median_ms, now.timing.wall_ms)} a call in "
        time += f"{now.timing.processes} processes"
        lines += [("", "in brackets: 95 % interval"), ("time", time)]
        lines += [("memory", text)] if (text := memory_in_words(now.timing)) else []
    for check in found.door:
        said = "as the original" if check.is_well else check.trouble
        lines.append(("its own door", f"{check.workload}, {check.mode} mode: {said}"))
    if found.memory:
        lines.append(("memory of it", found.memory))
    if found.label:
        lines.append(("note", found.label))
    if found.is_same_device is False:
        lines.append(("note", f"it was recorded on another device than this one ({now.device})"))
    notes = [*now.notes, *(now.correctness.notes if now.correctness else ())]
    return lines + [("note", note) for note in dict.fromkeys(notes)]


def _comparison(found: "Comparison") -> str:
    from evokernel.answers import BASELINES

    name = BASELINES.get(found.against, found.against)
    ratio = f"{with_interval(found.now)} as fast as {name}" if found.now else f"{name}: not timed"
    return f"{ratio}: {found.said}"
