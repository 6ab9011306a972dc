"""Owns `evokernel memory edit`, `pin`, `approve`, `forget`, `reinstate`: what people change."""

import json
import tomllib
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from evokernel.cli import completion, options
from evokernel.cli import memory_tables as tables
from evokernel.cli.choices import one_of
from evokernel.cli.listing import put, show
from evokernel.cli.memory_place import opened_at, print_json
from evokernel.cli.memory_reasons import require_techniques
from evokernel.cli.wording import counted
from evokernel.errors import ConfigError
from evokernel.memory.experience import Entry

if TYPE_CHECKING:
    from evokernel.memory.revision import Revision
    from evokernel.memory.store import Memory
    from evokernel.memory.withdrawal import Withdrawal

FIELDS = ("summary", "techniques", "note")

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", autocompletion=completion.experiences, help="As `memory list` shows it."
    ),
]
_IDS = typer.Argument(
    metavar="ID", autocompletion=completion.experiences, help="As `memory list` shows them."
)
Ids = Annotated[list[str], _IDS]
IdsOrNone = Annotated[list[str] | None, _IDS]
Because = Annotated[str, typer.Option("--because", metavar="TEXT", help="Kept with the change.")]


def edit(
    id: Id,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Change summary, techniques (with commas) or note; without it $EDITOR opens.",
        ),
    ] = None,
    because: Because = "by hand",
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Change summary, techniques or note of an experience; what it was stays in the journal.

    Example: evokernel memory edit edit-0123456789ab --set "note=only for rows below 4096"
    """
    with opened_at(memory) as opened:
        entry = opened.get(id)
        values = dict(map(_split, changes)) if changes else _edited(entry)
        revision = _revision(entry, values, opened)
        if revision is not None:
            entry = opened.revise(id, revision, because)
    if as_json:
        print_json(tables.plain(entry))
        return
    if revision is None:
        put(f"`{id}` stays as it is: nothing was changed")
        return
    put(f"changed {', '.join(revision.changed())} of `{id}`; `memory show` has what was before")


def pin(
    id: Id,
    because: Because = "pinned by hand",
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Want an experience in every pool that it fits into; upkeep never withdraws it.

    Example: evokernel memory pin edit-0123456789ab --because "our best trick"
    """
    with opened_at(memory) as opened:
        entry = opened.pin(id, because)
    _tell_pin(entry, as_json)


def unpin(
    id: Id,
    because: Because = "unpinned by hand",
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Treat a pinned experience as all others again.

    Example: evokernel memory unpin edit-0123456789ab
    """
    with opened_at(memory) as opened:
        entry = opened.unpin(id, because)
    _tell_pin(entry, as_json)


def forget(
    ids: IdsOrNone = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=completion.runs,
            help="Everything that this run left behind.",
        ),
    ] = None,
    with_descendants: Annotated[
        bool, typer.Option("--descendants", help="Also what they led to, save what is pinned.")
    ] = False,
    because: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Why; with it what is named goes."),
    ] = None,
    is_meant: Annotated[bool, typer.Option("--yes", help="The same without a reason.")] = False,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Withdraw experiences for good; without `--because` it only shows what would go.

    With a kernel goes all that claims something of the same source. What was made from it becomes
    suspect and is not shown until `memory reinstate` or `evokernel verify --reinstate`. Rewards
    that it earned leave the values.

    Example: evokernel memory forget kernel-0123456789ab --because "wrong on odd sizes"
    """
    if not ids and run is None:
        raise ConfigError("`memory forget` expects ids of experiences, or `--run RUN`")
    is_done = is_meant or because is not None
    reason = because or "forgotten by hand"
    with opened_at(memory) as opened:
        withdrawal = opened.withdrawal(ids or (), run, with_descendants)
        entries = {id: opened.get(id) for id in _concerned(withdrawal)}
        if is_done:
            opened.forget(withdrawal, reason)
    if as_json:
        print_json(
            withdrawal.model_dump(mode="json")
            | {"ids": list(withdrawal.ids), "is_done": is_done, "reason": reason}
        )
        return
    show(_fates(withdrawal, entries))
    for id in withdrawal.gone:
        put(f"`{id}` is withdrawn already")
    put(_told(withdrawal, is_done))


def approve(
    ids: Ids,
    because: Because = "read and found right",
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Take over remarks that are in quarantine: from now on they are shown to every task.

    For what others wrote in words, such as coding agents through MCP. What claims something of a
    kernel is judged instead, by `memory admit`; `memory forget` throws a remark away.

    Example: evokernel memory approve lesson-0123456789ab --because "true for all rows"
    """
    with opened_at(memory) as opened:
        found = opened.approve(ids, because)
        entries = [opened.get(id) for id in dict.fromkeys(ids)]
    if as_json:
        print_json([tables.plain(entry) for entry in entries])
        return
    for entry in entries:
        was = "now" if entry.experience.id in found else "as before: it was not in quarantine"
        put(f"`{entry.experience.id}` is {entry.status} {was}")


def reinstate(
    ids: Ids,
    because: Because = "found right",
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Show what is suspect again: it gets the status that it had before.

    Example: evokernel memory reinstate kernel-0123456789ab --because "right on all sizes"
    """
    with opened_at(memory) as opened:
        found = opened.reinstate(ids, because)
        entries = [opened.get(id) for id in dict.fromkeys(ids)]
    if as_json:
        print_json([tables.plain(entry) for entry in entries])
        return
    for entry in entries:
        was = "again" if entry.experience.id in found else "as before: it was not suspect"
        put(f"`{entry.experience.id}` is {entry.status} {was}")


def _told(withdrawal: "Withdrawal", is_done: bool) -> str:
    number = counted(len(withdrawal.ids), "experience")
    suspect = f", {len(withdrawal.suspects)} suspect" if withdrawal.suspects else ""
    if is_done:
        return f"{number} withdrawn{suspect}; the journal keeps them"
    return (
        f"nothing was changed: with `--because TEXT`, {number} would be withdrawn for good{suspect}"
    )


def _split(change: str) -> tuple[str, str]:
    field, equals, value = change.partition("=")
    one_of("--set", FIELDS)(field.strip())
    if not equals:
        raise ConfigError(f"`--set {change}` expects `{field}=VALUE`")
    return field.strip(), value.strip()


def _edited(entry: Entry) -> dict[str, Any]:
    """What the user makes of it in an editor.

    Raises:
        ConfigError: it is no TOML any more.
    """
    import click

    experience = entry.experience
    kept = {name: getattr(experience, name) for name in FIELDS}
    lines = [
        f"# {experience.id}: change these fields, save and close; as they are, nothing changes"
    ]
    lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in kept.items()]
    try:
        text = click.edit("\n".join(lines) + "\n", extension=".toml")
    except click.ClickException as error:
        raise ConfigError(
            f"no editor: {error.format_message()}; use `--set FIELD=VALUE`"
        ) from error
    try:
        values = tomllib.loads(text) if text is not None else {}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"what the editor left is no TOML: {error}; nothing was changed"
        ) from error
    for name in values:
        one_of("the field", FIELDS)(name)
    return values


def _revision(entry: Entry, values: dict[str, Any], opened: "Memory") -> "Revision | None":
    """What differs from what is there, or None."""
    from evokernel.memory.revision import Revision

    if isinstance(names := values.get("techniques"), str):
        values = values | {
            "techniques": [name.strip() for name in names.split(",") if name.strip()]
        }
    differing = {
        name: value
        for name, value in values.items()
        if _comparable(value) != _comparable(getattr(entry.experience, name))
    }
    if not differing:
        return None
    if "techniques" in differing:
        seen = {use.technique for use in opened.techniques()}
        require_techniques(tuple(differing["techniques"]), seen)
    return Revision(**differing)


def _comparable(value: Any) -> Any:
    return value if isinstance(value, str) else list(value)


def _tell_pin(entry: Entry, as_json: bool) -> None:
    if as_json:
        print_json(tables.plain(entry))
    elif entry.is_pinned:
        put(f"`{entry.experience.id}` is pinned: in every pool that it fits into")
    else:
        put(f"`{entry.experience.id}` is not pinned")


def _concerned(withdrawal: "Withdrawal") -> list[str]:
    led_to = (child.id for child in withdrawal.led_to)
    return list(dict.fromkeys((*withdrawal.named, *withdrawal.same_source, *led_to)))


def _fates(withdrawal: "Withdrawal", entries: dict[str, Entry]) -> Table:
    table = Table("experience", "status", "why", "", box=None)
    goes = set(withdrawal.ids)
    why = {id: "named" for id in withdrawal.named}
    why |= {id: "of the same source" for id in withdrawal.same_source}
    for child in withdrawal.led_to:
        how = "made from one of these" if child.via == "parent" else "one of these was shown then"
        why[child.id] = f"{how}, {counted(child.depth, 'step')} on"
    for id, entry in entries.items():
        fate = "goes" if id in goes else "stays: pinned" if entry.is_pinned else "stays"
        fate = "becomes suspect" if id in withdrawal.suspects else fate
        table.add_row(id, entry.status.value, why[id], fate)
    return table
