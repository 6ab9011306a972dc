"""Owns `evokernel report`: a page and plots of a run."""

from pathlib import Path
from typing import Annotated

import typer

from evokernel.cli import options, runs
from evokernel.cli.wording import counted


def report(
    run: runs.RunName,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Folder to write.  [default: RUN/report]"),
    ] = None,
    runs_dir: options.RunsDir = options.RUNS,
    as_json: options.AsJson = False,
) -> None:
    """Write a report of a run: a page of Markdown and two plots, speed and descent.

    The run may be going on, interrupted, or without a kernel that passed.

    Example: evokernel report runs/20260131-180000-softmax-1a2b
    """
    path = runs.found(run, runs_dir)
    from evokernel.report import write_report

    written = write_report(path, out)
    if as_json:
        print(written.model_dump_json(indent=2))
        return
    state = "" if written.is_finished else ", not finished"
    print(f"{written.page}  ({counted(written.attempts, 'attempt')}{state})")
    for plot in written.plots:
        print(plot)
