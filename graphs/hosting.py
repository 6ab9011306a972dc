"""Owns the runs that are open inside of a workflow somebody else carries out, a thread for each.

Databases and worker processes belong to the thread that opened them, and whoever carries a graph
out may call its nodes from any. Nothing stays open where the graph waits for a person, fails, or is
done: the next node opens its run again from the folder.
"""

import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from evokernel.graphs.state import Services

R = TypeVar("R")


class Host(Protocol):
    """Opens runs; they are closed when the context is left."""

    def created(self, given: dict[str, Any]) -> AbstractContextManager[Services]:
        """A new run, as the graph's input wants it."""

    def reopened(self, path: Path) -> AbstractContextManager[Services]:
        """One that was begun before, perhaps by another process."""


class Guest:
    """One open run, and the thread that everything of it happens in."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evokernel-run")
        self._stack = ExitStack()
        self.services: Services | None = None

    def enter(self, opening: AbstractContextManager[Services]) -> Services:
        """Open the run."""
        self.services = self.do(lambda: self._stack.enter_context(opening))
        return self.services

    def do(self, work: Callable[[], R]) -> R:
        """Do something with it, as seen from where the caller stands in its graph."""
        place = contextvars.copy_context()
        doing = self._thread.submit(place.run, work)
        try:
            return doing.result()
        except KeyboardInterrupt:
            if self.services is not None and not doing.done():
                self.services.stop.request()
                doing.exception()
            raise

    def leave(self) -> None:
        """Close the run, and end every process of it."""
        try:
            self._thread.submit(self._stack.close).result()
        finally:
            self._thread.shutdown()


class House:
    """The open runs of one workflow, by the path of their folder."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._guests: dict[str, Guest] = {}

    def open(self, given: dict[str, Any]) -> Services:
        """Begin a run."""
        return self._enter(self._host.created(given))

    def guest(self, path: str) -> Guest:
        """A run that was begun, opened again where it is closed."""
        if path not in self._guests:
            self._enter(self._host.reopened(Path(path)))
        return self._guests[path]

    def close(self, path: str) -> None:
        """Close a run, if it is open."""
        if guest := self._guests.pop(path, None):
            guest.leave()

    def _enter(self, opening: AbstractContextManager[Services]) -> Services:
        guest = Guest()
        try:
            services = guest.enter(opening)
        except BaseException:
            guest.leave()
            raise
        self._guests[str(services.record.path)] = guest
        return services
