"""Owns the folder of a campaign: what it is, its runs, and what they have come to.

campaign.json        what was asked for
seconds              wall-clock seconds so far
lock                 held by the process at work
runs/<task>/<run>/   each task's run
faults/<task>.json   why a run did not begin, or failed
report.html          what `evokernel report` wrote
"""

from pathlib import Path
from typing import Literal

from evokernel.campaign import Campaign, Entry
from evokernel.errors import RecordError
from evokernel.frozen import Frozen
from evokernel.record import RunRecord
from evokernel.record.folder import Folder

FILE = "campaign.json"


class Fault(Frozen):
    """Why a run did not begin, or failed."""

    kind: str
    """Name of the exception."""
    text: str
    is_tasks: bool
    """The task or the set-up has to change: the run is left out of the count."""


class Progress(Frozen):
    """How far one task is."""

    state: Literal["open", "begun", "ended", "failed"]
    run: Path | None = None
    fault: Fault | None = None


class CampaignFolder:
    """A campaign on disk.

    Raises:
        RecordError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        if not (path / FILE).is_file():
            raise RecordError(f"`{path}` is not the folder of a campaign: expected `{FILE}` in it")
        self.path = path
        self._folder = Folder(path)
        self.campaign = self._folder.parse(FILE, Campaign)

    @classmethod
    def create(cls, path: Path, campaign: Campaign) -> "CampaignFolder":
        """Write a new one.

        Raises:
            RecordError: it cannot be written.
        """
        folder = Folder(path)
        folder.make()
        folder.write(FILE, campaign.model_dump_json(indent=1))
        return cls(path)

    def lock(self) -> None:
        """Become the only process that works on it.

        Raises:
            RecordError: another one does.
        """
        self._folder.lock()

    def unlock(self) -> None:
        """Let others work on it."""
        self._folder.unlock()

    @property
    def seconds(self) -> float:
        """Wall-clock seconds so far, all sessions together."""
        return float(self._folder.read("seconds")) if self._folder.has("seconds") else 0.0

    def save_seconds(self, seconds: float) -> None:
        """Store them."""
        self._folder.write("seconds", f"{seconds:.1f}\n")

    def runs(self, entry: Entry) -> Path:
        """Folder of a task's runs: one, or a second where the first never took a step."""
        return self.path / "runs" / entry.name

    def save_fault(self, entry: Entry, fault: Fault) -> None:
        """Store why a run did not begin, or failed."""
        self._folder.write(f"faults/{entry.name}.json", fault.model_dump_json())

    def forget_faults(self) -> None:
        """Let what failed before be tried again."""
        for file in (self.path / "faults").glob("*.json"):
            file.unlink()

    def progress(self, entry: Entry) -> Progress:
        """How far a task is, read from what lies there."""
        runs = self.runs(entry)
        found = sorted(runs.glob("*/run.json")) if runs.is_dir() else []
        run = found[-1].parent if found else None
        if run is not None and any(e["kind"] == "ended" for e in RunRecord.open(run).events()):
            return Progress(state="ended", run=run)
        if self._folder.has(f"faults/{entry.name}.json"):
            fault = self._folder.parse(f"faults/{entry.name}.json", Fault)
            return Progress(state="failed", run=run, fault=fault)
        return Progress(state="begun" if run else "open", run=run)


def is_campaign(path: Path) -> bool:
    """Whether a folder is a campaign's."""
    return (path / FILE).is_file()
