"""Owns the making of one `Evaluation`, piece by piece, until the first failure or the end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evokernel.attempt import Candidate
from evokernel.bench.messages import Fault, Loaded
from evokernel.bench.trials import Failure
from evokernel.evaluation import Evaluation, Status

_LOG_CHARS = 16_000


class Tally:
    """Collects the answers about one candidate.

    Args:
        candidate: Who is judged.
        facts: Fields that every evaluation of the session has: task, harness, device, measurement.
    """

    def __init__(self, candidate: Candidate, facts: dict[str, str]) -> None:
        self._parts: dict[str, Any] = {"candidate": candidate.sha, **facts}
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the wall time of the block to a phase, also when it fails."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - began

    def loaded(self, loaded: Loaded, seconds: float) -> None:
        """It was imported and constructed, and every kernel that this asked for was built."""
        self._parts["compiles"] = True
        self._seconds["compile"] = loaded.build_s
        self._seconds["load"] = max(0.0, seconds - loaded.build_s)
        self._seconds["construct"] = loaded.construct_s

    def took(self, part: str, seconds: float | None) -> None:
        """What a part of a phase took; None says nothing."""
        if seconds is not None:
            self._seconds[part] = seconds

    def add(self, **parts: Any) -> None:
        """Add answers; None changes nothing."""
        self._parts.update({name: part for name, part in parts.items() if part is not None})

    def faulted(self, fault: Fault) -> Evaluation:
        """The worker failed by its own code."""
        if fault.status in {Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT}:
            self._parts["compiles"] = False
        self.add(diagnostics=fault.diagnostics, log=fault.log)
        return self.failed(Failure(fault.status, f"in `{fault.phase}`: {fault.reason}"))

    def failed(self, failure: Failure) -> Evaluation:
        """A check failed, or could not be made."""
        self._parts.pop("timing", None)
        return self._made(failure.status, failure.reason)

    def passed(self) -> Evaluation:
        """Everything was checked."""
        return self._made(Status.PASSED, "")

    def _made(self, status: Status, reason: str) -> Evaluation:
        seconds = {name: round(took, 4) for name, took in self._seconds.items()}
        log = str(self._parts.pop("log", ""))[-_LOG_CHARS:]
        return Evaluation(status=status, reason=reason, seconds=seconds, log=log, **self._parts)
