"""Owns the reports: a page of a run, as HTML or Markdown, and a page of a campaign."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from evokernel.errors import RecordError
from evokernel.frozen import Frozen
from evokernel.record import RunRecord

if TYPE_CHECKING:
    from evokernel.campaign.folder import CampaignFolder
    from evokernel.report.story import Story

Form = Literal["html", "md"]
"""One HTML file with everything in it, or a page of Markdown with two plots beside it."""
FILE, PAGE, SPEED, LINEAGE = "report.html", "report.md", "speed.png", "lineage.png"


class Report(Frozen):
    """The files that were written."""

    page: Path
    plots: tuple[Path, ...] = ()
    """Beside a page of Markdown; empty for a run without attempts."""
    attempts: int
    """How many attempts it tells of."""
    is_finished: bool
    """Whether the run had ended, or all runs of the campaign."""


def write_report(run: Path, out: Path | None = None, form: Form = "html") -> Report:
    """Write the report of a run, which may be going on, interrupted, or without success.

    Args:
        run: The run folder; it is only read, except where the report goes into it.
        out: Where to write. HTML: a file, or a folder for `report.html`; None is the run folder.
            Markdown: a folder; None is `report` in the run folder.
        form: What to write.

    Raises:
        RecordError: It is no run, it is damaged, or the report cannot be written.
    """
    story = _told(run)
    page, plots = _markdown(story, out or run / "report") if form == "md" else _html(story, out)
    return Report(page=page, plots=plots, attempts=len(story.rows), is_finished=bool(story.ending))


def write_campaign_report(folder: "CampaignFolder", out: Path | None = None) -> Report:
    """Write the HTML page of a campaign, finished or not.

    Args:
        folder: The campaign; it is only read, except where the report goes into it.
        out: A file, or a folder for `report.html`; None is the campaign's folder.

    Raises:
        RecordError: A run is damaged, or the report cannot be written.
    """
    from evokernel.report.campaign_page import write_campaign_page

    return write_campaign_page(folder, html_file(out, folder.path))


def html_file(out: Path | None, folder: Path) -> Path:
    """Where a page goes: a file as it is named, or `report.html` in a folder."""
    if out is None:
        return folder / FILE
    is_file = out.suffix.lower() in {".html", ".htm"} and not out.is_dir()
    return out if is_file else out / FILE


def _html(story: "Story", out: Path | None) -> tuple[Path, tuple[Path, ...]]:
    from evokernel.report.run_page import write_run_page

    file = html_file(out, story.record.path)
    write_run_page(story, file)
    return file, ()


def _markdown(story: "Story", folder: Path) -> tuple[Path, tuple[Path, ...]]:
    from evokernel.report.canvas import save
    from evokernel.report.lineage import lineage_figure
    from evokernel.report.page import page
    from evokernel.report.speed import speed_figure

    try:
        folder.mkdir(parents=True, exist_ok=True)
        plots: tuple[Path, ...] = ()
        if story.rows:
            plots = (folder / SPEED, folder / LINEAGE)
            save(speed_figure(story), plots[0])
            save(lineage_figure(story), plots[1])
        half = folder / f".{PAGE}.part"
        half.write_text(page(story, tuple(plot.name for plot in plots)), encoding="utf-8")
        half.replace(folder / PAGE)
    except OSError as error:
        raise RecordError(
            f"the report cannot be written to `{folder}`: {error.strerror or error}; name another "
            "folder with `-o`"
        ) from error
    return folder / PAGE, plots


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
