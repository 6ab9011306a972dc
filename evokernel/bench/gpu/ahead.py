"""Owns what is built ahead: kernels of candidates that come next, while the device measures.

What a candidate wants built only its own text knows, so that it is imported for it, in a worker
without a GPU: what it asks for is compiled on the processor's cores, and found in the cache later.
Triton compiles in the worker that launches, and gains nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from evokernel.bench.messages import Faulted, WorkerSpec
from evokernel.bench.pool import Build, WorkerPool
from evokernel.errors import WorkerError

if TYPE_CHECKING:
    from evokernel.attempt import Candidate

MOST = 4
"""Candidates that wait; what comes beyond is built when it is judged."""


class Ahead:
    """A bounded queue of candidates, and the one thread that builds for them.

    Args:
        pool: Forks workers for it, and for nobody else; closed with it.
        spec: Of those workers: without a GPU.
        build: The trusted compiler.
        init: Positional and keyword arguments of the constructor.
    """

    def __init__(
        self,
        pool: WorkerPool,
        spec: WorkerSpec,
        build: Build,
        init: tuple[Sequence[Any], dict[str, Any]],
    ) -> None:
        self._pool = pool
        self._spec = spec
        self._build = build
        self._init = init
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evokernel-build")
        self._waiting: dict[str, Future[None]] = {}

    def begin(self, candidates: Sequence[Candidate]) -> None:
        """Build for these, as far as the queue has room."""
        self._waiting = {sha: done for sha, done in self._waiting.items() if not done.done()}
        for candidate in candidates:
            if len(self._waiting) >= MOST:
                return
            if candidate.sha not in self._waiting:
                done = self._thread.submit(self._prepare, candidate.source)
                self._waiting[candidate.sha] = done

    def wait_for(self, candidate: Candidate) -> None:
        """If its kernels are being built now, until they are: twice would take as long again."""
        if (done := self._waiting.pop(candidate.sha, None)) and not done.cancel():
            done.exception()

    def close(self) -> None:
        """Give up what waits, and end the processes."""
        self._thread.shutdown(cancel_futures=True)
        self._pool.close()

    def _prepare(self, source: str) -> None:
        spec = self._spec.model_copy(update={"source": source})
        try:
            with self._pool.fork(spec, self._build) as worker:
                worker.load(self._init[0], self._init[1], seed=0)
        except (Faulted, WorkerError):
            return  # its fault is found when it is judged; this was only to save time
