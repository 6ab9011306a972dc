"""Owns the checkup of a task before a run: its examination, kept so that it is made once."""

from __future__ import annotations

import contextlib
from pathlib import Path

from evokernel import __version__
from evokernel.bench import remembered
from evokernel.bench.examination import Examination, examine
from evokernel.errors import TaskError
from evokernel.frozen import Frozen
from evokernel.opgraph import OpGraph
from evokernel.record.entries import label_of
from evokernel.task import Task

FOLDER = "tasks"
"""Below the cache."""


class Checkup(Frozen):
    """What is known about a task when a run begins."""

    examination: Examination
    is_kept: bool
    """It was made before and cost nothing now."""

    def in_words(self) -> str:
        """What it found, in one sentence."""
        found = self.examination
        cost = "known from before" if self.is_kept else f"{found.seconds:.1f} s"
        return f"{label_of(found.failed) or 'the task passed its check'} ({cost})"


def checkup(task: Task, cache: Path, graph: OpGraph | None = None) -> Checkup:
    """Examine a task in brief, unless that is known.

    Args:
        task: Known by the hash of its text.
        cache: Folder in which examinations are kept.
        graph: Its operators, where they are known.

    Raises:
        TaskError: The file does not run.
    """
    if (found := known(task, cache)) is not None:
        return Checkup(examination=found, is_kept=True)
    found = examine(task, graph=graph, is_brief=True)
    keep(found, cache)
    return Checkup(examination=found, is_kept=False)


def known(task: Task, cache: Path) -> Examination | None:
    """What an earlier examination of a task found; None where there was none."""
    found = remembered.read(_file(task.sha, cache), Examination)
    return found if found is not None and found.sha == task.sha else None


def keep(found: Examination, cache: Path) -> None:
    """Keep an examination for the runs to come; a cache that cannot be written is no fault."""
    with contextlib.suppress(OSError):
        remembered.write(_file(found.sha, cache), found)


def require_passed(task: Task, found: Checkup) -> None:
    """Refuse a task that failed its check.

    Raises:
        TaskError: It names every check that failed.
    """
    failed = [check for check in found.examination.checks if not check.passed]
    if not failed:
        return
    name = task.path or task.name
    reasons = "; ".join(f"`{check.name}`: {check.detail}" for check in failed)
    raise TaskError(
        f"`{name}` failed its check, {reasons}. Expected a task that tells a right answer from one "
        f"that took no work. Repair it (`evokernel task doctor {name}` shows every check), or run "
        "with `--force`: results then carry the label"
    )


def _file(sha: str, cache: Path) -> Path:
    """Another version may ask other questions."""
    return cache / FOLDER / f"{sha}-{__version__}.json"
