"""Owns `evokernel report`: a page of a run or a campaign."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evokernel.cli import completion, options, runs
from evokernel.cli.listing import put
from evokernel.cli.waiting import waiting
from evokernel.cli.wording import counted
from evokernel.errors import ConfigError

if TYPE_CHECKING:
    from evokernel.report import Report

Form = Annotated[
    Literal["html", "md"],
    typer.Option(
        "--format", help="One HTML file that holds everything, or Markdown with two plots."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        metavar="PATH",
        help="HTML file or folder to write; for Markdown a folder.  "
        "[default: RUN/report.html; RUN/report]",
    ),
]
Subject = Annotated[
    str,
    typer.Argument(
        metavar="RUN|CAMPAIGN",
        autocompletion=completion.runs,
        help="Folder of a run or campaign, or its name below --runs-dir.",
    ),
]


def report(
    run: Subject,
    out: Out = None,
    form: Form = "html",
    runs_dir: options.RunsDir = options.RUNS,
    as_json: options.AsJson = False,
) -> None:
    """Write a report: one HTML file that can be mailed and needs nothing else.

    Of a run: the claim and how it was measured, plots, every attempt with its source and verdict,
    costs, and where the numbers are weak. Of a campaign: its table, and a summary of every task. It
    may be going on, interrupted, or without a kernel that passed.

    Example: evokernel report runs/20260131-180000-softmax-1a2b
    """
    with waiting("drawing plots", f"report {form}"):
        written = _written(runs.found(run, runs_dir), out, form)
    if as_json:
        print(written.model_dump_json(indent=2))
        return
    state = "" if written.is_finished else ", not finished"
    put(f"{written.page}  ({counted(written.attempts, 'attempt')}{state})")
    for plot in written.plots:
        print(plot)


def _written(path: Path, out: Path | None, form: Literal["html", "md"]) -> "Report":
    from evokernel.campaign.folder import CampaignFolder, is_campaign
    from evokernel.report import write_campaign_report, write_report

    if not is_campaign(path):
        return write_report(path, out, form)
    if form == "md":
        raise ConfigError(
            "there is no report of a campaign in Markdown; expected `--format html`, or "
            f"`evokernel resume {path}`, which prints its table once nothing is left to do"
        )
    return write_campaign_report(CampaignFolder(path), out)
