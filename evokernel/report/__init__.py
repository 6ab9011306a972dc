"""Owns the report of a run: a page of Markdown and two plots, made from the run folder alone."""

from pathlib import Path
from typing import TYPE_CHECKING

from evokernel.errors import RecordError
from evokernel.frozen import Frozen
from evokernel.record import RunRecord

if TYPE_CHECKING:
    from evokernel.report.story import Story

PAGE, SPEED, LINEAGE = "report.md", "speed.png", "lineage.png"


class Report(Frozen):
    """The files that were written."""

    page: Path
    plots: tuple[Path, ...]
    """Empty for a run without attempts."""
    attempts: int
    """How many attempts it tells of."""
    is_finished: bool
    """Whether the run had ended."""


def write_report(run: Path, folder: Path | None = None) -> Report:
    """Write the report of a run, which may be going on, interrupted, or without success.

    Args:
        run: The run folder; it is only read, except where the report goes into it.
        folder: Where to write; None is `report` in the run folder.

    Raises:
        RecordError: It is no run, it is damaged, or the report cannot be written.
    """
    from evokernel.report.lineage import draw_lineage
    from evokernel.report.page import page
    from evokernel.report.speed import draw_speed

    story = _told(run)
    folder = folder or run / "report"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        plots: tuple[Path, ...] = ()
        if story.rows:
            plots = (folder / SPEED, folder / LINEAGE)
            draw_speed(story, plots[0])
            draw_lineage(story, plots[1])
        half = folder / f".{PAGE}.part"
        half.write_text(page(story, tuple(plot.name for plot in plots)), encoding="utf-8")
        half.replace(folder / PAGE)
    except OSError as error:
        raise RecordError(
            f"the report cannot be written to `{folder}`: {error.strerror or error}; name another "
            "folder with `-o`"
        ) from error
    return Report(
        page=folder / PAGE,
        plots=plots,
        attempts=len(story.rows),
        is_finished=bool(story.ending),
    )


def _told(run: Path) -> "Story":
    from evokernel.report.story import Story

    record = RunRecord.open(run)
    try:
        return Story(record)
    except (ValueError, KeyError, TypeError) as error:
        said = (str(error).splitlines() or [""])[0]
        raise RecordError(
            f"`{run}` is damaged or from another version of EvoKernel ({said or type(error)}); "
            "nothing was written"
        ) from error
