"""Owns `evokernel memory report`: a page of what a memory knows."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evokernel.cli import options
from evokernel.cli.listing import put
from evokernel.cli.memory_filters import BackendOption, FamilyOption, KindOption, StatusOption
from evokernel.cli.memory_place import opened_at, path, place, print_json
from evokernel.cli.waiting import waiting
from evokernel.cli.wording import counted
from evokernel.errors import ConfigError
from evokernel.memory.experience import ExperienceStatus

if TYPE_CHECKING:
    from evokernel.memory.store import Memory
    from evokernel.report.knowledge import Scope

SHOWN = 300
"""As `report.knowledge.SHOWN`, which is not imported for it."""

To = Annotated[
    Path | None,
    typer.Option(
        "--to",
        "-o",
        metavar="FILE",
        help="HTML file, or a folder for `report.html`.  [default: the memory's folder]",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="DATE",
        help="Also tell what has changed since, e.g. 2026-11-01 or 2026-11-01T18:30.",
    ),
]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="Experiences at most.")]


def report(
    to: To = None,
    since: Since = None,
    kind: KindOption = None,
    family: FamilyOption = None,
    status: StatusOption = None,
    backend: BackendOption = None,
    limit: Limit = SHOWN,
    policy: options.Policy = None,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Write what memory knows as one HTML file.

    It can be mailed and needs nothing else: techniques with their success and gain; experiences
    with value, uncertainty, the steps that they were shown to, sources and lifecycle; what has
    changed since a date. The memory itself is only read.

    Example: evokernel memory report --since 2026-11-01
    """
    from evokernel.proposers.techniques import catalogue
    from evokernel.report import html_file
    from evokernel.report.knowledge import Scope
    from evokernel.report.memory_page import write_memory_report

    scope = Scope(
        kind=kind,  # type: ignore[arg-type]  # checked by the option's callback
        family=family,
        status=ExperienceStatus(status) if status else None,
        backend=backend,
        limit=limit,
        since=_moment(since) if since else None,
    )
    settings = {"policy": policy}
    with (
        waiting("reading the memory", "memory report"),
        opened_at(memory, settings=settings) as opened,
    ):
        _require_family(opened, scope, place(memory))
        file = html_file(to, path(memory))
        written = write_memory_report(opened, scope, file, tuple(catalogue()))
    if as_json:
        print_json(written.model_dump(mode="json"))
        return
    number = counted(written.experiences, "experience")
    left = f", {written.shown} of them shown" if written.shown < written.experiences else ""
    put(f"{written.page}  ({number}{left})")
    if written.since:
        put(f"since {since}: {written.changes}")


def _moment(text: str) -> float:
    """Unix seconds of a date or a time; UTC unless it says otherwise.

    Raises:
        ConfigError: neither, or in the future.
    """
    try:
        found = datetime.fromisoformat(text)
        at = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"`--since` cannot be `{text}`; expected a date such as `2026-11-01` or a time such as "
            "`2026-11-01T18:30`, in UTC"
        ) from error
    if at > (now := time.time()):
        raise ConfigError(
            f"`--since {text}` lies in the future; expected a day up to today, "
            f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d} in UTC"
        )
    return at


def _require_family(opened: "Memory", scope: "Scope", where: str) -> None:
    """Refuse a family that no experience has.

    Raises:
        ConfigError: names the nearest.
    """
    from evokernel.task.constants import nearest

    if scope.family is None or opened.list(family=scope.family, limit=1):
        return
    known = sorted({entry.experience.family for entry in opened.list()})
    raise ConfigError(
        f"no experience of the family `{scope.family}` in the memory {where}; it has "
        f"{', '.join(f'`{name}`' for name in known) or 'none'}.{nearest(scope.family, known)}"
    )
