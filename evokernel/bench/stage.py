"""Owns the stage of timed calls: values of inputs, empty caches, and what a call of nothing takes.

All of it is done by trusted processes: values are made in the parent and written into the memory of
the worker that waits, and a worker that runs no candidate goes through more memory
than the last-level cache holds, with all threads. The same worker answers calls of an idle kind,
which only go through as much memory as the task: what the parent's clock sees of them beyond the
worker's is what a call's way there and back takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from evokernel.bench.hold import Unreachable
from evokernel.bench.messages import Outcome, Turn, Variant, WorkerSpec
from evokernel.bench.oracle import Case, Oracle
from evokernel.bench.pool import Build, Worker, WorkerPool
from evokernel.bench.tensors import vary
from evokernel.bench.turns import Turns

_IDLE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, words):
        super().__init__()
        self.made = torch.zeros(words)

    def forward(self, x):
        return self.made.add_(1)
"""
_SET = "idle"
_MOST_WORDS = 1 << 24
_ROOM_BYTES = 1 << 30
_SPIN_S = 4e-4  # until the threads that emptied the caches sleep, see `turns.LATE_S`


class Stage:
    """A trusted worker that empties caches and answers idle calls.

    Args:
        worker: Runs nothing but `_IDLE`.
        flush_bytes: What it goes through.
    """

    def __init__(self, worker: Worker, flush_bytes: int) -> None:
        self.worker = worker
        self._turns = Turns(worker)
        self.flush_bytes = flush_bytes
        self.gpu: int | None = None
        """It is the processor's."""
        self.is_reachable = _is_reachable(worker)
        """Whether memory of workers can be reached from here."""

    @classmethod
    def set_up(
        cls, pool: WorkerPool, threads: int, flush_bytes: int, task_bytes: int, build: Build
    ) -> Stage:
        """Fork the worker; what it does first is done once.

        Args:
            pool: Forks it.
            threads: Of candidates and of the worker.
            flush_bytes: What it goes through to empty the caches.
            task_bytes: Inputs and outputs of a call that is timed.
            build: Asked for nothing.
        """
        room = 2 * flush_bytes + _ROOM_BYTES
        spec = WorkerSpec(
            role="eager",
            source=_IDLE,
            class_name="Model",
            threads=threads,
            memory_bytes=room,
        )
        worker = pool.fork(spec, build)
        worker.load([min(task_bytes // 8 + 1, _MOST_WORDS)], {}, seed=0)
        worker.put(_SET, [torch.zeros(8)])
        stage = cls(worker, flush_bytes)
        stage.flush()
        stage.call()
        return stage

    def flush(self) -> None:
        """Empty the caches; nothing of the stage runs afterwards."""
        self.worker.flush(self.flush_bytes)
        time.sleep(_SPIN_S)

    def call(self) -> Turn:
        """One idle call, with caches as empty as for the others."""
        self._turns.prepare(_SET, 0)
        self.flush()
        return self._turns.go()


class Supply:
    """Writes the inputs of timed calls into workers, and reads their outputs.

    Where memory of other processes cannot be reached, workers do both themselves.

    Args:
        oracle: Has the pristine values.
        is_outside: Whether memory of workers can be reached from here.
    """

    def __init__(self, oracle: Oracle, is_outside: bool) -> None:
        self._oracle = oracle
        self.is_outside = is_outside
        self._pristine: dict[str, Sequence[torch.Tensor]] = {}
        self._values: dict[str, list[torch.Tensor]] = {}

    def make(self, case: Case, variant: Variant) -> None:
        """Make the values of one case's variant, in memory of this process."""
        if case.name not in self._pristine:
            self._pristine[case.name] = self._oracle.package(case).flats()
            self._values[case.name] = [torch.empty_like(t) for t in self._pristine[case.name]]
        if self.is_outside:
            pairs = zip(self._pristine[case.name], self._values[case.name], strict=True)
            for index, (flat, out) in enumerate(pairs):
                vary(index, flat, out, variant)

    def give(self, turns: Turns, case: Case, variant: Variant) -> None:
        """Have a worker prepared for a call on what was made."""
        if self.is_outside:
            turns.prepare(case.name, variant.slot)
            turns.supply(case.name, variant.slot, self._values[case.name])
        else:
            turns.prepare(case.name, variant.slot, variant)

    def take(self, turns: Turns, turn: Turn, case: Case) -> Outcome:
        """The output of a turn that has just ended; the next finds the worker as the others do.

        Stopped threads may all go on upon the same core: a call that is not timed parts them.
        """
        if not self.is_outside:
            turns.rest()
            return turns.worker.kept()
        outcome = turns.take(turn)
        turns.rest()
        turns.worker.batch(case.name, 1)
        return outcome


def _is_reachable(worker: Worker) -> bool:
    try:
        worker.write(_SET, 0, [torch.zeros(8)])
    except Unreachable:
        return False
    return True


@contextmanager
def calm() -> Iterator[None]:
    """Let this process use one thread: others would spin beside what is timed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
