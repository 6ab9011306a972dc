"""Owns how a campaign is carried out and shown on the command line."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evokernel.cli.listing import put
from evokernel.cli.waiting import Waiting, waiting
from evokernel.errors import ConfigError

if TYPE_CHECKING:
    from evokernel.campaign import Campaign
    from evokernel.campaign.folder import CampaignFolder
    from evokernel.campaign.table import Against, Row, Table
    from evokernel.config import RunConfig
    from evokernel.record import Event


def is_wanted(tasks: list[str], jobs: int | None) -> bool:
    """Whether the command is about a campaign: a file of one, or `--jobs`."""
    return jobs is not None or any(task.endswith(".toml") for task in tasks)


def begin(
    tasks: list[str],
    jobs: int | None,
    parts: dict[str, Any],
    config: "Callable[..., RunConfig]",
    as_json: bool,
) -> None:
    """Carry a campaign out, from a file or from the command's own tasks.

    Raises:
        ConfigError: a file together with other tasks.
        typer.Exit: a task that counts has no kernel.
    """
    from evokernel.campaign import campaign_of, read_campaign

    if any(task.endswith(".toml") for task in tasks):
        if len(tasks) > 1:
            raise ConfigError(
                "a campaign file names all its tasks; expected it alone, without other tasks"
            )
        campaign = read_campaign(Path(tasks[0]), parts)
        campaign = campaign.model_copy(update={"jobs": jobs or campaign.jobs})
    else:
        from evokernel.task import Task

        for task in tasks:
            Task.load(task)
        configs = tuple(config(task=task, **parts) for task in tasks)
        campaign = campaign_of("campaign", configs, jobs or 1)
    carry(_created(Path(parts["runs"]), campaign), as_json)


def carry(folder: "CampaignFolder", as_json: bool) -> None:
    """Carry on with a campaign, and show its table.

    Raises:
        typer.Exit: a task that counts has no kernel.
    """
    from evokernel.campaign.carrying import carry_out
    from evokernel.campaign.table import table

    campaign = folder.campaign
    if not as_json:
        count = len(campaign.entries)
        put(f"{campaign.title}: {count} tasks, {campaign.jobs} at a time; folder {folder.path}")
    count = sum(folder.progress(e).state in ("open", "begun") for e in campaign.entries)
    with waiting("starting", f"campaign {campaign.title} {count}") as shown:
        reason = carry_out(folder, _listener(as_json, campaign, shown, count))
    found = table(folder)
    if as_json:
        print(found.model_dump_json(), flush=True)
    else:
        put(reason)
        show(found)
    if found.right < found.tasks or not found.tasks:
        raise typer.Exit(1)


def show(found: "Table") -> None:
    """Print the table."""
    from evokernel.answers import BASELINES
    from evokernel.cli.listing import show as show_table
    from evokernel.wording import duration

    print()
    show_table(_rows(found))
    for each in found.excluded:
        put(f"excluded: {each.task}: {each.reason}")
    for row in found.rows:
        for flag in row.flags:
            put(f"note: {row.task}: {flag}")
    share = "" if found.share_right is None else f" ({found.share_right:.0%})"
    put(f"\n{found.title}: {found.right} of {found.tasks} tasks have a right kernel{share}")
    for name, against in found.against.items():
        lines = _summary(against, found)
        for label, line in zip((f"against {BASELINES[name]}", ""), lines, strict=False):
            put(f"  {label:22}{line}")
    where = "; ".join(found.devices) or "no device"
    put(f"  on {where}; {duration(found.seconds)}; folder {found.path}")
    put("  fast_p: share of all tasks with a right kernel more than p times as fast")


def _summary(against: "Against", found: "Table") -> tuple[str, ...]:
    if not against.measured:
        return ("not measured",)
    from evokernel.wording import counted

    fast = ", ".join(f"fast_{line} {share:.0%}" for line, share in against.fast.items())
    means = f"geometric mean {against.geometric_mean:.2f}x, median {against.median:.2f}x"
    missing = found.right - against.measured
    untimed = f"; {missing} without a time of it count as not faster" if missing else ""
    right = f"of {counted(against.measured, 'right kernel')}{untimed}"
    return f"{fast}; measurably faster {against.faster} of {found.tasks}", f"{means} {right}"


def _rows(found: "Table") -> Any:
    from rich.table import Table as Rich

    shown = Rich(box=None, pad_edge=False, header_style="bold")
    for title in ("task", "precision", "result", "attempts", "time", "eager", "torch.compile"):
        side: Any = "right" if title in ("attempts", "time") else "left"
        shown.add_column(title, justify=side, no_wrap=True)
    for row in found.rows:
        shown.add_row(*_cells(row))
    return shown


def _cells(row: "Row") -> tuple[str, ...]:
    from evokernel.wording import milliseconds, with_interval

    ratios = [row.speedups.get(name) for name in ("eager", "compile")]
    return (
        row.task,
        row.precision,
        row.status,
        str(row.attempts),
        milliseconds(row.median_ms) if row.median_ms is not None else "",
        *(with_interval(ratio) if ratio else "" for ratio in ratios),
    )


def _listener(
    as_json: bool, campaign: "Campaign", shown: Waiting, count: int
) -> "Callable[[str, Event], None]":
    """Print what is told of each run; `shown` says how many of `count` runs are done."""
    import json

    width = max(len(entry.name) for entry in campaign.entries)
    done: set[str] = set()

    def listen(task: str, event: "Event") -> None:
        if event["kind"] in ("ended", "failed"):
            done.add(task)
        shown.say("making tasks fast")
        shown.reach(len(done), count)
        line = json.dumps({"task": task, **event}) if as_json else _line(event)
        if line and not as_json:
            line = f"{event['elapsed']:7.1f} s  {task.ljust(width)}  {line}"
        if line:
            with shown.aside():
                print(line, flush=True)

    return listen


def _line(event: "Event") -> str:
    """What one event says to somebody who follows several runs at once."""
    match event["kind"]:
        case "began" | "resumed":
            return f"{event['kind']}: {event['path']}"
        case "evaluated":
            ratio = event["speedups"].get("eager")
            said = f"{ratio:.2f}x as fast as eager" if ratio else event["reason"]
            return f"attempt {event['number']}: {event['status']}{f', {said}' if said else ''}"
        case "promoted":
            return f"second look: {event['hold']} of {event['answered']} hold"
        case "ended":
            return f"ended: {event['reason']}"
        case "failed":
            return f"failed: {event['error']}"
        case "stopped":
            return "stopped"
    return ""


def _created(runs: Path, campaign: "Campaign") -> "CampaignFolder":
    import secrets

    from evokernel.campaign.folder import CampaignFolder

    now = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    name = "".join(letter if letter.isalnum() else "-" for letter in campaign.title.lower())[:40]
    return CampaignFolder.create(runs / f"{now}-{name}-{secrets.token_hex(2)}", campaign)
