"""Owns `evokernel memory export`, `import`, `merge`, `diff`: banks passed between memories."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from evokernel.cli import completion, options
from evokernel.cli.listing import put, show
from evokernel.cli.memory_place import opened_at, path, place, print_json
from evokernel.cli.waiting import waiting
from evokernel.cli.wording import counted
from evokernel.errors import ConfigError
from evokernel.memory.experience import ExperienceStatus

if TYPE_CHECKING:
    from evokernel.memory.exchange import Bank
    from evokernel.memory.exchange_into import TakenOver

Source = Annotated[
    Path, typer.Argument(metavar="FILE|FOLDER", help="A file of `memory export`, or a memory.")
]
Holdout = Annotated[
    list[str] | None,
    typer.Option(
        "--holdout",
        metavar="TASK",
        autocompletion=completion.tasks,
        help="Leave out what comes from this task, also in other sizes; may be repeated.",
    ),
]


AGAIN = "what was taken over stays; the same command takes the rest, and nothing twice"
JUDGED = "tasks that were judged stay so; the same command goes on with the others"


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; lines of JSON.")],
    holdout: Holdout = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is in quarantine, suspect or withdrawn.")
    ] = False,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Write what was learned into one file that needs no database to read.

    Example: evokernel memory export bank.jsonl --holdout softmax
    """
    from evokernel.memory.exchange import write

    statuses = () if everything else (ExperienceStatus.ACTIVE,)
    with waiting("reading the memory", "memory export"):
        with opened_at(memory) as opened:
            bank = opened.bank(statuses=statuses)
        total = len(bank.held)
        bank = _held_out(bank, holdout or ())
        write(bank, file)
    told = {
        "file": str(file),
        "experiences": len(bank.held),
        "left_out": total - len(bank.held),
        "rewards": bank.rewards,
        "holdout": list(bank.header.holdout),
    }
    if as_json:
        print_json(told)
        return
    left = f", {counted(total - len(bank.held), 'experience')} held out" if holdout else ""
    number = counted(len(bank.held), "experience")
    put(f"{number} and {counted(bank.rewards, 'reward')} in `{file}`{left}")


def take_over(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="FILE|FOLDER", help="A file of `memory export`, or a memory."),
    ] = None,
    starter: Annotated[
        bool,
        typer.Option("--starter", help="The bank that comes with EvoKernel; active at once."),
    ] = False,
    holdout: Holdout = None,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Take over what others have learned, in quarantine: it is shown to nobody until it is judged.

    Nothing in the file is executed. `memory admit` judges it in a worker, as any candidate. For a
    memory of your own, `memory merge` takes statuses and rewards along. `--starter` takes technique
    notes and kernels from recordings of ours; `memory forget --run starter` takes them out again.

    Example: evokernel memory import bank.jsonl
    """
    if (source is None) != starter:
        raise ConfigError("`memory import` expects either a file (or a memory), or `--starter`")
    with waiting("taking experiences over", "memory import", AGAIN):
        found = _brought([_imported(source)], holdout or (), starter, memory)
    _tell(found, starter, as_json, memory)


def merge(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER", help="Memories of your own, or their exports."),
    ],
    holdout: Holdout = None,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Bring memories of your own together: each experience and each reward once.

    What any of them has withdrawn is withdrawn. Doing it again changes nothing.

    Example: evokernel memory merge other-machine.jsonl
    """
    with waiting("bringing memories together", "memory merge", AGAIN):
        found = _brought([_bank(source) for source in sources], holdout or (), True, memory)
    _tell(found, True, as_json, memory)


def admit(
    tasks: Annotated[
        list[str],
        typer.Argument(metavar="TASK", autocompletion=completion.tasks, help="Whose experiences."),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Rough measurements.")] = False,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Judge what was imported for some tasks, in workers; what holds here becomes active.

    Example: evokernel memory admit softmax
    """
    from evokernel.bench.evaluator import LocalEvaluator
    from evokernel.config import BenchConfig
    from evokernel.opgraph import capture
    from evokernel.study.admission import admit as judge
    from evokernel.task import Task

    config = BenchConfig(measurement="quick" if quick else "standard", baselines=("eager",))
    found = []
    kind = f"memory admit {config.measurement}"
    with waiting("loading PyTorch", kind, JUDGED) as shown, opened_at(memory) as opened:
        for number, name in enumerate(tasks):
            shown.reach(number, len(tasks) if tasks[1:] else 0)
            task = Task.load(name)
            fingerprint = capture(task.program()).fingerprint
            with LocalEvaluator(task, config, say=shown.say) as evaluator:
                found.append(judge(opened, evaluator, task.name, fingerprint))
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
        return
    for each in found:
        put(
            f"{each.task}: {counted(each.judged, 'claim')} judged, {len(each.active)} active now, "
            f"{len(each.suspect)} did not hold, {each.left} cannot be judged"
        )


def diff(
    first: Source,
    second: Annotated[
        Path | None,
        typer.Argument(metavar="FILE|FOLDER", help="The other; the user's memory by default."),
    ] = None,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Compare two memories: what one has and the other has not.

    Exit code 1: they differ.

    Example: evokernel memory diff bank.jsonl
    """
    from evokernel.memory.exchange_diff import difference

    other = second or path(memory)
    with waiting("reading both", "memory diff"):
        found = difference(_bank(first), _bank(other))
    if as_json:
        print_json(found.model_dump(mode="json") | {"is_none": found.is_none})
    else:
        table = Table("", f"only {first}", f"only {other}", "both", box=None)
        numbers = len(found.only_first), len(found.only_second), found.shared
        table.add_row("experiences", *map(str, numbers))
        numbers = found.rewards_first, found.rewards_second, found.rewards_shared
        table.add_row("rewarded steps", *map(str, numbers))
        for kind in sorted({*found.kinds_first, *found.kinds_second}):
            one, two = found.kinds_first.get(kind, 0), found.kinds_second.get(kind, 0)
            table.add_row(f"  {kind}", str(one), str(two), "")
        show(table)
        for moved in found.moved:
            put(f"`{moved.id}` is {moved.first} in the first, {moved.second} in the second")
    if not found.is_none:
        raise typer.Exit(1)


def _imported(source: Path | None) -> "Bank":
    """A file's or a memory's; without one the bank that comes along."""
    if source is not None:
        return _bank(source)
    from evokernel.study.recording import shipped
    from evokernel.study.starter import starter_bank

    return starter_bank(shipped())


def _brought(
    banks: "list[Bank]",
    holdout: list[str] | tuple[str, ...],
    is_trusted: bool,
    memory: str | None,
) -> "TakenOver":
    from evokernel.config import MemoryConfig
    from evokernel.memory.exchange import merged
    from evokernel.memory.store import Memory

    names = tuple(name for bank in banks for name in bank.header.sources)
    header = banks[0].header.model_copy(update={"sources": tuple(dict.fromkeys(names))})
    bank = _held_out(merged(banks, header), holdout)
    with Memory.open(MemoryConfig(path=path(memory))) as opened:
        return opened.take_over(bank, is_trusted)


def _tell(found: "TakenOver", is_trusted: bool, as_json: bool, memory: str | None) -> None:
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    status = "" if is_trusted else ", in quarantine"
    put(
        f"{counted(len(found.new), 'experience')} new in {place(memory)}{status}; "
        f"{found.known} known already, {len(found.changed)} of them with another status now; "
        f"{counted(found.rewards, 'reward')} new"
    )
    for id in found.refused:
        put(f"`{id}` was refused: it claims something of another source than it holds")


def _bank(source: Path) -> "Bank":
    """What a file or a memory holds.

    Raises:
        ConfigError: there is neither.
    """
    from evokernel.memory.exchange import read

    if source.is_dir():
        with opened_at(str(source)) as opened:
            return opened.bank(name=source.name)
    if not source.exists():
        raise ConfigError(
            f"`{source}` is not there: expected a file of `memory export` or a memory"
        )
    return read(source)


def _held_out(bank: "Bank", names: list[str] | tuple[str, ...]) -> "Bank":
    """The bank without what comes from these tasks, or from the same operators in other sizes."""
    if not names:
        return bank
    from evokernel.memory.embedding import StructuralEmbedder
    from evokernel.memory.exchange import leaks, without
    from evokernel.memory.exchange_kin import kin
    from evokernel.opgraph import capture
    from evokernel.task import Task

    graphs = {name: capture(Task.load(name).program()) for name in names}
    fingerprints = kin(bank, graphs, StructuralEmbedder())
    kept = without(bank, fingerprints)
    for id in leaks(bank, fingerprints):
        if id in kept.held:
            text = f"`{id}` stays, though it was written while one that is held out was shown"
            typer.echo(text, err=True)
    return kept
