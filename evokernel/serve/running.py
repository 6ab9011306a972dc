"""Owns runs in processes of their own: started, looked at from outside, stopped.

Such a run belongs to nobody: it goes on when the server that started it ends, and any server, or
`evokernel resume`, may take care of it later. What is known of it is read from its folder.
"""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from evokernel.bench.process import Process
from evokernel.errors import ConfigError, EvoKernelError, RecordError, UsageError
from evokernel.external import OPTION
from evokernel.record import Event, RunRecord
from evokernel.serve import telling, told
from evokernel.task.constants import nearest

BEGIN_S = 120.0
"""How long a run may take to make its folder: importing torch and checking the task (ours)."""
LAST = 10
"""Attempts that a status lists (ours)."""

State = Literal["running", "ended", "stopped", "failed", "open", "gone"]


def start(arguments: Sequence[str], runs: Path) -> str:
    """Start `evokernel run` and wait for its folder.

    Args:
        arguments: What follows `evokernel run`.
        runs: Folder that receives the run's.

    Returns:
        Its id.

    Raises:
        UsageError: it refused, for the reason that it gave.
    """
    # A file, for who writes into a pipe whose reader has gone is killed; it has no name, so that
    # nothing is left when both have ended.
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, "-P", "-m", "evokernel", "run", *arguments]
        process = subprocess.Popen(
            [*command, "--runs-dir", str(runs), "--json"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + BEGIN_S
        while time.monotonic() < deadline:
            if run := _begun(output.fileno()):
                return run
            if process.poll() is not None:
                raise _refusal(output.fileno())
            time.sleep(0.1)
        process.terminate()
    raise EvoKernelError(f"the run did not begin within {BEGIN_S:.0f} seconds and was ended")


def _begun(output: int) -> str:
    import json

    for line in os.pread(output, 1 << 20, 0).split(b"\n"):
        if b'"began"' in line and line.endswith(b"}"):
            return str(json.loads(line)["run"])
    return ""


def _refusal(output: int) -> UsageError:
    text = os.pread(output, 1 << 20, 0).decode("utf-8", "replace").strip()
    said = text.rpartition("evokernel: ")[2] or "it ended without a word"
    return ConfigError(f"the run could not begin: {' '.join(said.split())}")


def opened(run: str, runs: Path) -> RunRecord:
    """The record of a run, to read.

    Raises:
        RecordError: there is none of that name.
    """
    if run and Path(run).name == run and (runs / run / "run.json").is_file():
        return RunRecord.open(runs / run)
    known = [file.parent.name for file in runs.glob("*/run.json")]
    raise RecordError(
        f"there is no run `{run}` in `{runs}`.{nearest(run, known)} The resource "
        "`evokernel://runs` lists all of them"
    )


def is_external(record: RunRecord) -> bool:
    """Whether its candidates are handed in one by one, without a workflow that plans its steps."""
    return record.config.proposer == OPTION and not record.checkpoints.exists()


def worker(record: RunRecord) -> int | None:
    """The process at work on a run; None where there is none."""
    path = record.path / "lock"
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        return int(owner) if owner.isdigit() else None
    finally:
        os.close(lock)
    return None


def state(record: RunRecord, events: Sequence[Event]) -> tuple[State, str]:
    """Where it stands, and why."""
    last = next((e for e in reversed(events) if e["kind"] in _ENDS or e["kind"] in _BEGINS), None)
    if worker(record) is not None:
        return "running", ""
    if is_external(record):
        return "open", ""
    if last is not None and last["kind"] in _ENDS:
        found: State = _ENDS[last["kind"]]
        return found, str(last.get("reason") or last.get("error") or "")
    return "gone", "its process died"


_ENDS: dict[str, State] = {"ended": "ended", "stopped": "stopped", "failed": "failed"}
_BEGINS = ("began", "resumed")


def status(record: RunRecord) -> told.RunStanding:
    """What a run has come to."""
    events = tuple(record.events())
    found, reason = state(record, events)
    attempts = record.attempts()
    best = record.best()
    phases = [str(event["text"]) for event in events if event["kind"] == "phase"]
    external = is_external(record)
    return told.RunStanding(
        run=record.id,
        task=record.task().name,
        author=record.config.proposer,
        state=found,
        reason=reason,
        phase=phases[-1] if phases and found == "running" else "",
        elapsed_s=max((float(event["elapsed"]) for event in events), default=0.0),
        budget_attempts=None if external else record.config.budget.attempts,
        attempts=tuple(telling.standing(a) for a in reversed(attempts[-LAST:])),
        attempts_made=len(attempts),
        best=telling.standing(best) if best else None,
        folder=str(record.path),
    )


def stop(record: RunRecord, within_s: float) -> bool:
    """Ask the process at work on a run to stop it, so that it can be resumed.

    Returns:
        Whether it has ended.
    """
    pid = worker(record)
    if pid is None:
        return True
    try:
        process = Process(os.pidfd_open(pid))
    except (ProcessLookupError, PermissionError) as error:
        raise ConfigError(
            f"process {pid}, which works on `{record.id}`, cannot be reached from here: "
            f"{error.strerror}"
        ) from error
    try:
        if worker(record) == pid:  # it has not ended, and its number gone to another
            process.send(signal.SIGTERM)
        return process.has_ended(within_s)
    finally:
        process.close()
