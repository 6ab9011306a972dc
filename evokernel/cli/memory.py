"""Owns `evokernel memory`: look at what was learned, and keep it in order."""

from typing import TYPE_CHECKING, Annotated

import typer

from evokernel.cli import (
    completion,
    memory_bank,
    memory_edits,
    memory_exchange,
    memory_reasons,
    memory_report,
    memory_study,
    options,
)
from evokernel.cli import memory_tables as tables
from evokernel.cli.groups import group
from evokernel.cli.listing import put, show
from evokernel.cli.memory_filters import (
    BackendOption,
    FamilyOption,
    KindOption,
    StatusOption,
)
from evokernel.cli.memory_place import opened_at, place, print_json
from evokernel.cli.waiting import waiting
from evokernel.cli.wording import counted
from evokernel.errors import ConfigError
from evokernel.memory.experience import ExperienceStatus

if TYPE_CHECKING:
    from evokernel.memory.embedding import Situation

STARTER = "starter"
"""Run that the experiences of the starter bank say they come from."""
WHOLE = "the memory is whole; the same command begins anew"
"""What to know after Ctrl-C."""
LISTED = 50
"""Experiences that `list` shows unless asked for more."""

app = group(
    "See what was learned and what it is worth; keep it in order.",
    "evokernel memory search softmax",
)


app.command("explain")(memory_reasons.explain)
app.command("techniques")(memory_reasons.techniques)
app.command("report")(memory_report.report)
app.command("edit")(memory_edits.edit)
app.command("pin")(memory_edits.pin)
app.command("unpin")(memory_edits.unpin)
app.command("forget")(memory_edits.forget)
app.command("trim")(memory_bank.trim)
app.command("approve")(memory_edits.approve)
app.command("reinstate")(memory_edits.reinstate)
app.command("export")(memory_exchange.export)
app.command("import")(memory_exchange.take_over)
app.command("admit")(memory_exchange.admit)
app.command("merge")(memory_exchange.merge)
app.command("diff")(memory_exchange.diff)
app.command("record")(memory_study.record)
app.command("ablate")(memory_study.ablate)

Limit = Annotated[int, typer.Option(min=1, metavar="N", help="How many at most.")]


@app.command("list")
def list_experiences(
    kind: KindOption = None,
    family: FamilyOption = None,
    status: StatusOption = None,
    backend: BackendOption = None,
    limit: Limit = LISTED,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """List the experiences, newest first.

    Example: evokernel memory list --kind edit --family softmax
    """
    with opened_at(memory) as opened:
        entries = opened.list(
            kind=kind,  # type: ignore[arg-type]  # checked by the option's callback
            family=family,
            status=ExperienceStatus(status) if status else None,
            backend=backend,
            limit=limit,
        )
        total = opened.stats().experiences
    if as_json:
        print_json([tables.plain(entry) for entry in entries])
        return
    show(tables.experiences(entries))
    put(f"{len(entries)} of {counted(total, 'experience')} in {place(memory)}")


@app.command("show")
def show_experience(
    id: memory_edits.Id,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Show one experience with its values and its evidence.

    Example: evokernel memory show edit-0123456789ab
    """
    with opened_at(memory) as opened:
        evidence, descendants = opened.evidence(id), opened.descendants(id)
        revisions = opened.revisions(id)
    if as_json:
        offspring = [descendant.model_dump(mode="json") for descendant in descendants]
        plain = evidence.model_dump(mode="json", exclude={"entry"})
        changes = [
            {"at": at, "reason": reason, **change.model_dump(mode="json", exclude_none=True)}
            for at, reason, change in revisions
        ]
        print_json(
            tables.plain(evidence.entry, features=True)
            | plain
            | {"descendants": offspring, "revisions": changes}
        )
        return
    show(tables.facts(evidence, len(descendants)))
    show(tables.ledger(evidence))
    show(tables.revisions(revisions))
    for name, text in evidence.entry.experience.payload.items():
        indented = "\n".join(f"  {line}" for line in text.splitlines())
        typer.echo(f"\n{name}\n{indented}")


@app.command("search")
def search(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words: families, techniques, tasks, ...")
    ] = "",
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            autocompletion=completion.tasks,
            help="Instead of words: what comes from similar tasks.",
        ),
    ] = None,
    limit: Limit = 10,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Find experiences by words, or by likeness to a task.

    Example: evokernel memory search --task rms_norm
    """
    if bool(query) == bool(task):
        raise ConfigError("`memory search` expects either words or `--task TASK`")
    with waiting("looking at the operators", "memory search"), opened_at(memory) as opened:
        situation = _situation(task) if task else None
        hits = opened.search(query, situation, limit)
    if as_json:
        print_json([{"score": hit.score, **tables.plain(hit.entry)} for hit in hits])
        return
    show(tables.experiences([hit.entry for hit in hits], hits))
    if not hits:
        put(f"nothing found in {place(memory)}")


@app.command("stats")
def show_stats(as_json: options.AsJson = False, memory: options.MemoryPath = None) -> None:
    """Count experiences, retrievals, rewards and values.

    Example: evokernel memory stats
    """
    with opened_at(memory) as opened:
        stats = opened.stats()
        starter = len(opened.list(run=STARTER))
    if as_json:
        print_json(stats.model_dump(mode="json") | {"starter": starter})
        return
    for table in tables.statistics(stats):
        show(table)
    if starter:
        put(f"{counted(starter, 'experience')} of them from the starter bank")
    else:
        put("without the starter bank; `evokernel memory import --starter` takes it")


@app.command("rebuild")
def rebuild(as_json: options.AsJson = False, memory: options.MemoryPath = None) -> None:
    """Make embeddings and vector index anew.

    Example: evokernel memory rebuild
    """
    with (
        waiting("embedding every experience", "memory rebuild", WHOLE),
        opened_at(memory, to_repair=True) as opened,
    ):
        made = opened.rebuild()
    if as_json:
        print_json(made.model_dump(mode="json"))
        return
    put(f"{counted(made.embedded, 'experience')} embedded, {made.indexed} in the index")
    if made.missing:
        put(f"without Chroma ({made.missing}) all are compared one by one")


@app.command("refit")
def refit(
    policy: options.Policy = None,
    reward: options.Reward = None,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Compute every value anew, and tell what differs; also by another policy or reward.

    Example: evokernel memory refit
    """
    settings = {"policy": policy, "reward": reward}
    with (
        waiting("computing every value anew", "memory refit", WHOLE),
        opened_at(memory, settings=settings) as opened,
    ):
        report = opened.refit()
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
        return
    show(tables.changes(report))
    told = f"{counted(report.values, 'value')} from {counted(report.rewards, 'reward')}"
    put(f"{told}, {len(report.changes)} differ from those in use before")


def _situation(task: str) -> "Situation":
    from evokernel.memory.embedding import Situation
    from evokernel.opgraph import CaptureFailed, capture
    from evokernel.task import Task

    loaded = Task.load(task)
    try:
        graph = capture(loaded.program())
    except CaptureFailed as error:
        raise ConfigError(
            f"`{task}` cannot be compared with other tasks: {error}; search by words instead"
        ) from error
    return Situation(graph=graph, family=graph.family)
