"""Owns the baselines of a task: trusted workers that live with the session, and their times."""

from __future__ import annotations

import errno
import os
import time

from evokernel.bench import Baseline, statistics, timing
from evokernel.bench.messages import Fault, Faulted
from evokernel.bench.pool import Worker
from evokernel.bench.series import Series
from evokernel.bench.session import Session
from evokernel.errors import TaskError, WorkerError


class Opponents:
    """Keeps one warm worker for each baseline, so that a candidate costs only its own calls.

    Args:
        session: Forks them.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._workers: dict[str, Worker] = {}
        self._seconds: dict[str, float] = {}
        self._baselines: tuple[Baseline, ...] | None = None
        self._peaks: dict[str, int | None] = {}
        self.notes: list[str] = []
        """Which baseline is missing, and why."""

    def workers(self) -> dict[str, Worker]:
        """The living workers by name; one that died is replaced.

        Raises:
            TaskError: The reference itself fails in a worker.
        """
        for name in self._session.config.baselines:
            known = self._workers.get(name)
            if name in self._seconds and (known is None or known.is_alive):
                continue
            self._start(name)
        return dict(self._workers)

    def baselines(self) -> tuple[Baseline, ...]:
        """Time them once against each other.

        Raises:
            TaskError: The reference itself fails in a worker.
            WorkerError: One that had run before failed meanwhile, e.g. for want of memory.
        """
        if self._baselines is None:
            workers = self.workers()
            session = self._session
            stage = session.stage()
            try:
                with session.lock():
                    series = timing.measure(
                        workers, session.oracle, session.pace, stage, session.rng
                    )
            except Faulted as error:
                raise WorkerError(
                    f"eager and torch.compile could not be timed: {_why(error.fault)}; what else "
                    "runs on this machine may be in the way, try again when less does"
                ) from error
            self._baselines = tuple(
                Baseline(
                    name=name,
                    median_ms=1e3
                    * statistics.median(series.times(name) or series.times(name, tolerant=True)),
                    seconds=self._seconds[name],
                    peak_bytes=self.peaks().get(name),
                    wall_ms=_wall_ms(series, name),
                )
                for name in workers
            )
        return self._baselines

    def peaks(self) -> dict[str, int]:
        """Peak extra memory of one call of each baseline, bytes, measured once."""
        for name, worker in self._workers.items():
            if name not in self._peaks:
                case = self._session.oracle.timed_cases()[0]
                try:
                    self._peaks[name] = worker.peak_bytes(case.name)
                except (Faulted, WorkerError):  # a baseline's fault must not be a candidate's
                    self._peaks[name] = None
        return {name: peak for name, peak in self._peaks.items() if peak is not None}

    def _start(self, name: str) -> None:
        """Fork, load, and call once: torch.compile works at the first call."""
        began = time.monotonic()
        session = self._session
        case = session.oracle.timed_cases()[0]
        session.say(f"preparing the baseline {'torch.compile' if name == 'compile' else name}")
        self._workers.pop(name, None)
        try:
            worker, _ = session.fork_reference("compile" if name == "compile" else "eager")
            session.put_timed(worker)
            worker.run(case.name, poison=False)
        except Faulted as error:
            if name == "eager":
                raise TaskError(
                    f"the reference of `{session.task.name}` fails in a worker: "
                    f"{error.fault.reason}\n{error.fault.log}"
                ) from error
            self.notes.append(f"no time for `{name}`: {_why(error.fault)}")
        else:
            self._workers[name] = worker
        self._seconds[name] = time.monotonic() - began


def _why(fault: Fault) -> str:
    """The reason in one line; torch.compile shows whole commands where a disk is full."""
    if os.strerror(errno.ENOSPC) in fault.log + fault.reason:
        return "the disk with the cache folder is full"
    return fault.reason.partition("\n")[0]


def _wall_ms(series: Series, name: str) -> float | None:
    walls = series.walls(name) or series.walls(name, tolerant=True)
    return 1e3 * statistics.median(walls) if walls else None
