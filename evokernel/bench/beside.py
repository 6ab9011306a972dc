"""Owns the one thing that is done beside another: comparing, while a worker is at its next call."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Self

from evokernel.bench.messages import Faulted
from evokernel.evaluation import Status

MOST_WAITING = 2
"""Comparisons that may wait for their turn: each holds a whole output."""


@dataclass(frozen=True)
class Failure:
    """Why the trials of a candidate ended."""

    status: Status
    reason: str


class Earlier(Exception):
    """The worker failed, but what it had returned before was wrong already; carries that."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


Work = Callable[[], Failure | None]


class Beside:
    """Makes comparisons, one after the other, in a thread of its own; a context manager.

    Those after one that failed are left out. Half of the cores are for it, so that the worker's
    threads need not wait for their turn.

    Raises:
        Earlier: On leaving, where a worker failed after an output that was wrong.
    """

    def __init__(self) -> None:
        import torch

        threads = max(1, len(os.sched_getaffinity(0)) // 2)
        self._thread = ThreadPoolExecutor(1, "beside", torch.set_num_threads, (threads,))
        self._begun: list[Future[Failure | None]] = []
        self._has_failed = False

    def begin(self, work: Work) -> None:
        """Have it done as soon as what was begun before is; waits where too much is."""
        while len(open_ := [one for one in self._begun if not one.done()]) >= MOST_WAITING:
            wait(open_, return_when=FIRST_COMPLETED)
        self._begun.append(self._thread.submit(self._done, work))

    @property
    def failure(self) -> Failure | None:
        """The first failure that is known by now."""
        return _first([one for one in self._begun if one.done()])

    def found(self) -> Failure | None:
        """Wait until all is done; the first failure."""
        return _first(self._begun)

    def _done(self, work: Work) -> Failure | None:
        failure = None if self._has_failed else work()
        self._has_failed |= failure is not None
        return failure

    def __enter__(self) -> Self:
        """Enter a block at whose end nothing goes on."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, *exc: object) -> None:
        """Wait until all is done."""
        self._thread.shutdown()
        if isinstance(error, Faulted) and (failure := self.found()):
            raise Earlier(failure) from error


def _first(done: list[Future[Failure | None]]) -> Failure | None:
    return next((failure for one in done if (failure := one.result()) is not None), None)
