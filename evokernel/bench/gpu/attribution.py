"""Owns the search for the kernel that made a fault on the GPU.

Launches return before their kernels have run, so that a fault shows only later, anywhere. A fresh
worker in which each launch waits for its kernel shows the place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from evokernel.bench.evidence import Evidence
from evokernel.bench.gpu.authorship import declared
from evokernel.bench.messages import Fault, Faulted
from evokernel.errors import WorkerError
from evokernel.evaluation import Status

if TYPE_CHECKING:
    from evokernel.attempt import Candidate
    from evokernel.bench.session import Session

_FAULT = re.compile(r"CUDA error|CUDA_ERROR_|Triton Error \[CUDA\]")
_REFUSED = re.compile(r"`(\w+)` cannot be launched")
_LAUNCH = re.compile(r"(\w+)\s*\[")
_MOST_CASES = 6


def is_on_device(fault: Fault) -> bool:
    """Whether a fault came from the GPU."""
    return fault.status is Status.RUNTIME_ERROR and bool(_FAULT.search(fault.reason))


def attributed(session: Session, candidate: Candidate, fault: Fault) -> Fault:
    """The same fault with the name of the kernel and its line, if they can be found."""
    try:
        found, names = _again(session, candidate)
    except WorkerError:
        return fault  # it is known; only the place is not
    if found is None or not is_on_device(found):
        return fault
    names = (kernel_of(found),) if kernel_of(found) else names
    if len(names) != 1:
        return fault
    what = fault.reason.partition(" (it may be the error of an earlier kernel")[0]
    reason = f"kernel `{names[0]}`: {what}"
    return fault.model_copy(update={"reason": reason, "diagnostics": found.diagnostics})


def kernel_of(fault: Fault) -> str:
    """The kernel whose launch raised; empty where that is not told."""
    if told := _REFUSED.search(fault.reason):
        return told[1]
    for diagnostic in fault.diagnostics:
        if launched := _LAUNCH.search(diagnostic.excerpt or ""):
            return launched[1]
    return ""


def _again(session: Session, candidate: Candidate) -> tuple[Fault | None, tuple[str, ...]]:
    """What goes wrong where each launch waits for its kernel, and the names of all kernels."""
    names = declared(candidate.source)
    try:
        worker, _ = session.fork(candidate, is_blocking=True)
        with worker:
            names += tuple(Evidence(handed=session.handed(worker)).offered)
            for case in session.cases[:_MOST_CASES]:
                sizes = session.oracle.expected(case).output_bytes
                worker.put(case.name, session.oracle.package(case), output_bytes=sizes)
                worker.run(case.name)
                worker.drop(case.name)
    except Faulted as error:
        return error.fault, names
    return None, names
