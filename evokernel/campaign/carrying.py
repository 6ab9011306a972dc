"""Owns carrying a campaign out: a process for each run, as many at a time as it may have.

What is done is read from the folder, never from memory: a campaign that was killed goes on where it
was. Timed sections of all runs take turns through the lock of their device.
"""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from evokernel.campaign import Campaign, Entry
from evokernel.campaign.folder import CampaignFolder, Fault
from evokernel.campaign.purse import Spent, is_empty, reserved_by, share, spent_by
from evokernel.config import RunConfig
from evokernel.record import Event, RunRecord

Listen = Callable[[str, Event], None]
"""Told the name of a task and what happened in its run."""

SAVED_EVERY_S = 5.0
"""How often the campaign's wall-clock time is stored, seconds (ours)."""
STOP_S = 60.0
"""How long runs may take to come to a stop, seconds; measuring is not cut off."""


class CampaignStopped(KeyboardInterrupt):
    """A campaign was stopped, and can be resumed."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"stopped; `evokernel resume {path}` goes on from here")
        self.path = path


class _Job(NamedTuple):
    entry: Entry
    process: "subprocess.Popen[str]"
    config: RunConfig
    reader: threading.Thread


def carry_out(folder: CampaignFolder, listen: Listen) -> str:
    """Make every run that is not done.

    Returns:
        Why it ended, in words.

    Raises:
        RecordError: another process is at work on it.
        CampaignStopped: Ctrl-C; it is kept.
    """
    folder.lock()
    try:
        folder.forget_faults()
        return _Carrier(folder, listen).run()
    except KeyboardInterrupt as interrupt:
        raise CampaignStopped(folder.path) from interrupt
    finally:
        folder.unlock()


class _Carrier:
    def __init__(self, folder: CampaignFolder, listen: Listen) -> None:
        self._folder = folder
        self._campaign: Campaign = folder.campaign
        self._listen = listen
        self._heard: queue.Queue[tuple[str, Event]] = queue.Queue()
        self._jobs: list[_Job] = []
        self._before = folder.seconds
        self._began = time.monotonic()

    def run(self) -> str:
        waiting = [e for e in self._campaign.entries if self._state(e) in ("open", "begun")]
        why = ""
        try:
            while (waiting and not why) or self._jobs:
                while waiting and not why and len(self._jobs) < self._campaign.jobs:
                    entry = waiting.pop(0)
                    why = self._begin(entry, 1 + len(waiting))
                self._wait()
        finally:
            self._stop()
            self._folder.save_seconds(self._seconds())
        return why or "every task had its run"

    def _state(self, entry: Entry) -> str:
        return self._folder.progress(entry).state

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    def _begin(self, entry: Entry, waiting: int) -> str:
        """Start a run; says why none can be started any more."""
        taken = self._taken()
        progress = self._folder.progress(entry)
        if why := is_empty(self._campaign.budget, taken, self._seconds()):
            return why
        runs = self._folder.runs(entry)
        config = entry.config.model_copy(update={"runs": runs})
        if progress.run is not None:
            config = RunRecord.open(progress.run).config
        else:
            cut = share(self._campaign, config, taken, self._seconds(), waiting)
            if cut is None:
                return "too little of the campaign's budget is left for another run"
            config = cut
        self._start(entry, config)
        return ""

    def _start(self, entry: Entry, config: RunConfig) -> None:
        module = "evokernel.campaign.child"
        arguments = (str(self._folder.path), entry.name, config.model_dump_json())
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for us, who stop it
        )
        reader = threading.Thread(target=self._read, args=(entry.name, process), daemon=True)
        reader.start()
        self._jobs.append(_Job(entry, process, config, reader))

    def _read(self, name: str, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):  # what a task file prints is no event
                event = json.loads(line)
                if isinstance(event, dict) and "kind" in event:
                    self._heard.put((name, event))

    def _wait(self) -> None:
        """Pass on what was heard, until a run has ended."""
        saved = time.monotonic()
        while self._jobs:
            with contextlib.suppress(queue.Empty):
                self._listen(*self._heard.get(timeout=0.2))
            if time.monotonic() - saved > SAVED_EVERY_S:
                self._folder.save_seconds(self._seconds())
                saved = time.monotonic()
            over = [job for job in self._jobs if job.process.poll() is not None]
            for job in over:
                self._settle(job)
            if over:
                return

    def _settle(self, job: _Job) -> None:
        job.reader.join()
        self._jobs.remove(job)
        for name, event in self._left():
            self._listen(name, event)
        code = job.process.returncode
        if self._state(job.entry) in ("open", "begun") and code not in (0, 1, 130):
            text = f"its process ended with {code}"
            self._folder.save_fault(job.entry, Fault(kind="Died", text=text, is_tasks=False))

    def _left(self) -> Iterator[tuple[str, Event]]:
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._heard.get_nowait()

    def _taken(self) -> Spent:
        """What ended runs have spent, and what those under way may still spend."""
        total = Spent()
        at_work = {job.entry.name: job.config for job in self._jobs}
        for entry in self._campaign.entries:
            if config := at_work.get(entry.name):
                total = total.plus(reserved_by(config))
            elif run := self._folder.progress(entry).run:
                total = total.plus(spent_by(RunRecord.open(run)))
        return total

    def _stop(self) -> None:
        for job in self._jobs:
            job.process.terminate()
        for job in self._jobs:
            try:
                job.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
