"""Owns the look of compute-sanitizer at candidates of a session, several side by side."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from evokernel.bench.gpu import sanitizer
from evokernel.bench.gpu.profile import job
from evokernel.bench.gpu.sanitizer import MOST_BYTES, Checked

if TYPE_CHECKING:
    from evokernel.attempt import Candidate
    from evokernel.bench.oracle import Case
    from evokernel.bench.session import Session

TOGETHER = 4
"""Candidates at a time: what takes time is the start of tool and torch on the processor."""


def check(session: Session, candidates: Sequence[Candidate]) -> tuple[Checked, ...]:
    """What compute-sanitizer says of each, in their order.

    Raises:
        Faulted: One cannot be loaded any more.
        WorkerError: The device lock stayed taken.
    """
    said = _Once(session)
    with ExitStack() as stack, ThreadPoolExecutor(TOGETHER) as pool:
        jobs = [stack.enter_context(job(session, c, _small(session))) for c in candidates]
        futures = [
            pool.submit(
                sanitizer.check,
                what,
                session.turn,
                [r.kernel for _, artefact in what.kernels for r in artefact.resources],
                uses_shared=bool(what.kernels),
                say=said.say,
            )
            for what in jobs
        ]
        return tuple(future.result() for future in futures)


def _small(session: Session) -> tuple[Case, ...]:
    """The normal case of each workload whose inputs are small, or of the smallest."""
    cases = session.oracle.cases(("normal",))
    ranked = sorted(cases, key=lambda case: session.oracle.package(case).bytes)
    small = [case for case in ranked if session.oracle.package(case).bytes <= MOST_BYTES]
    return tuple(small or ranked[:1])


class _Once:
    """Says the same only once, whoever of several threads says it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Pass it on, the first time."""
        with self._lock:
            if text in self._said:
                return
            self._said.add(text)
        self._session.say(text)
