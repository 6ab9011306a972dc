"""Owns the resources: what a client may read without calling a tool."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from evokernel.config import MemoryConfig
from evokernel.errors import EvoKernelError, StoreError
from evokernel.serve import running, telling
from evokernel.serve.refusal import BadArgument
from evokernel.task import Task

SCHEME = "evokernel://"
LISTED = 50
"""Runs and experiences that a list names, the newest first (ours)."""


class Page(NamedTuple):
    """What a resource holds."""

    text: str
    mime: str = "application/json"


class Place(NamedTuple):
    """One kind of resource."""

    uri: str
    """With names in braces where it is a template."""
    name: str
    description: str


PLACES = (
    Place("guide", "guide", "How a candidate for the processor is written and judged."),
    Place("techniques", "techniques", "Names of techniques, what each does, helps and costs."),
    Place("tasks", "tasks", "The built-in tasks by name."),
    Place("tasks/{name}", "task", "The reference file of a built-in task."),
    Place("runs", "runs", "The newest runs, and where each stands."),
    Place("runs/{run}", "run", "Where one run stands."),
    Place("runs/{run}/kernel", "kernel", "The best kernel of a run, as a Python module."),
    Place("runs/{run}/attempts/{number}", "attempt", "Source and verdict of one attempt."),
    Place("experiences", "experiences", "The newest experiences in memory, with their status."),
    Place("experiences/{id}", "experience", "One experience with all its texts."),
)
"""Every resource there is, below `evokernel://`."""


class Shelf:
    """Reads resources; nothing is changed.

    Args:
        runs: Folder of run folders.
        memory: Which memory.
    """

    def __init__(self, runs: Path, memory: MemoryConfig) -> None:
        self._runs = runs
        self._memory = memory

    def read(self, uri: str) -> Page:
        """What lies at an address.

        Raises:
            BadArgument: nothing does.
            UsageError: it cannot be read.
        """
        reads: dict[str, Callable[..., Page]] = {
            "guide": _guide,
            "techniques": _techniques,
            "tasks": _tasks,
            "task": _task,
            "runs": self._all_runs,
            "run": self._run,
            "kernel": self._kernel,
            "attempt": self._attempt,
            "experiences": self._experiences,
            "experience": self._experience,
        }
        for place in PLACES:
            if (named := matched(place.uri, uri)) is not None:
                return reads[place.name](**named)
        raise BadArgument(
            "uri",
            f"there is no resource `{uri}`",
            ", ".join(f"`{SCHEME}{place.uri}`" for place in PLACES),
        )

    def _all_runs(self) -> Page:
        files = sorted(self._runs.glob("*/run.json"), reverse=True)[:LISTED]
        return _page([self._in_brief(file.parent.name) for file in files])

    def _in_brief(self, run: str) -> dict[str, Any]:
        """One run of a list; a damaged one must not hide the others."""
        try:
            status = running.status(running.opened(run, self._runs))
        except EvoKernelError as error:
            return {"run": run, "error": str(error)}
        names = {"run", "task", "author", "state", "attempts_made", "best", "folder"}
        return status.model_dump(mode="json", include=names)

    def _run(self, run: str) -> Page:
        return _page(running.status(running.opened(run, self._runs)).model_dump(mode="json"))

    def _kernel(self, run: str) -> Page:
        best = running.opened(run, self._runs).best()
        if best is None:
            raise BadArgument("uri", f"no attempt of `{run}` has passed", "a run with a kernel")
        return Page(best.proposal.candidate.source, "text/x-python")

    def _attempt(self, run: str, number: str) -> Page:
        record = running.opened(run, self._runs)
        found = record.attempt(int(number)) if number.isdigit() else None
        if found is None:
            known = len(record.attempts())
            raise BadArgument(
                "uri", f"`{run}` has no attempt `{number}`", f"one of its {known} attempts"
            )
        return _page(found.model_dump(mode="json"))

    def _experiences(self) -> Page:
        from evokernel.memory.store import Memory

        if not self._is_there():
            return _page([])
        with Memory.open(self._memory, create=False) as memory:
            entries = memory.list(limit=LISTED)
        return _page(
            [
                telling.kept(entry).model_dump(mode="json")
                | {"task": entry.experience.origin.task, "summary": entry.experience.summary}
                for entry in entries
            ]
        )

    def _experience(self, id: str) -> Page:
        from evokernel.memory.store import Memory

        if not self._is_there():
            raise StoreError("this memory holds nothing yet")
        with Memory.open(self._memory, create=False) as memory:
            entry = memory.get(id)
        plain = entry.experience.model_dump(mode="json", exclude={"features"})
        return _page(telling.kept(entry).model_dump(mode="json") | plain)

    def _is_there(self) -> bool:
        path = self._memory.path
        return path is not None and (path / "journal.sqlite").exists()


def matched(pattern: str, uri: str) -> dict[str, str] | None:
    """The names of a pattern with what an address has in their places; None if it is another."""
    if not uri.startswith(SCHEME):
        return None
    wanted, found = pattern.split("/"), uri.removeprefix(SCHEME).split("/")
    if len(wanted) != len(found):
        return None
    named = {}
    for part, text in zip(wanted, found, strict=True):
        if part.startswith("{"):
            named[part.strip("{}")] = text
        elif part != text:
            return None
    return named


def _guide() -> Page:
    from evokernel.attempt import Stage
    from evokernel.prompts import render
    from evokernel.proposers import Request

    # What a model reads whatever its step is about, with the contract that holds by default.
    step = Request(
        task=Task.load("softmax"), graph=None, backend="cpp", stage=Stage.DRAFT, step="", seed=0
    )
    return Page(render(step, ()).system, "text/markdown")


def _techniques() -> Page:
    from evokernel.proposers.techniques import catalogue

    return _page([t.model_dump(mode="json") for t in catalogue().values()])


def _tasks() -> Page:
    tasks = (Task.load(name) for name in Task.names())
    return _page([{"name": t.name, "title": t.title} for t in tasks])


def _task(name: str) -> Page:
    if name not in Task.names():
        raise BadArgument("uri", f"there is no built-in task `{name}`", f"one of `{SCHEME}tasks`")
    return Page(Task.load(name).source, "text/x-python")


def _page(value: Any) -> Page:
    return Page(json.dumps(value, indent=1))
