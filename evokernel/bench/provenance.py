"""Owns the gathering of evidence on who did a candidate's work, and the verdict on its contract."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from evokernel.attempt import Candidate
from evokernel.bench import contract, hints
from evokernel.bench.deletion import Deletion
from evokernel.bench.evidence import Evidence, Handed, built_files
from evokernel.bench.extensions import built_here
from evokernel.bench.gpu import authorship
from evokernel.bench.mappings import code_of
from evokernel.bench.messages import Loaded, Outcome
from evokernel.bench.oracle import Case
from evokernel.bench.pool import Worker
from evokernel.bench.sampling import name_of, sample
from evokernel.bench.session import Session
from evokernel.bench.trials import Failure, Trials
from evokernel.evaluation import Contract, Status

MOST_KERNELS = 8
"""Kernels that are deleted one by one."""
CERTAIN_KERNELS, SINGLES_S = 3, 0.3
"""So many are always deleted, those with the most time first; others until so many seconds."""
NO_SAMPLES = (
    "the system does not permit samples of a process (perf_event_paranoid above 2, or a container "
    "that forbids them): coverage is the process's own log, and computing by other libraries that "
    "is hidden from torch's dispatcher would not be seen"
)
NO_HEIRS = (
    "it has too many threads, or this machine too many cores, to sample what it starts while it is "
    "sampled: computing there would not be seen"
)
WITH_EXTENSIONS = (
    "its kernels were not deleted for a test: it built an extension by itself, too, which cannot be"
)
NO_MAPS = "the memory map of its process cannot be read: machine code made at run time is not seen"


@dataclass(frozen=True)
class Subject:
    """A candidate that is right, in its worker."""

    session: Session
    candidate: Candidate
    worker: Worker
    loaded: Loaded
    cases: tuple[Case, ...]
    """Inputs that it was right on."""
    instrumented: Outcome
    """The call on the first of them in which operators and launches were logged."""

    @classmethod
    def of(
        cls,
        session: Session,
        candidate: Candidate,
        worker: Worker,
        loaded: Loaded,
        trials: Trials,
    ) -> Subject:
        """A candidate that has passed the first trials."""
        assert trials.instrumented is not None, "`before` has not passed"
        return cls(session, candidate, worker, loaded, trials.cases, trials.instrumented)

    @property
    def handed(self) -> tuple[Handed, ...]:
        """The kernels that were built for it."""
        return self.session.handed(self.worker)


def examine(subject: Subject, thorough: bool = True) -> tuple[Contract, Failure | None]:
    """Find out who did the work, and whether that or something else than numbers forbids it.

    Args:
        subject: Whom.
        thorough: Delete kernels, too; costs a fork for each of them.

    Raises:
        Faulted: It failed meanwhile.
    """
    evidence = _evidence(subject, thorough)
    found = contract.judge(subject.session.contract, subject.instrumented, evidence)
    if not found.is_kept:
        return found, Failure(Status.CONTRACT, contract.breach(found))
    if not subject.loaded.denormals_kept:
        return found, Failure(Status.CONTRACT, contract.FLUSHES)
    return found, None


def again(subject: Subject, found: Contract) -> tuple[Contract, Failure | None]:
    """Look a second time, after the timing: code and time, of what may have changed its ways.

    Args:
        subject: Whom.
        found: What the first look gave.

    Raises:
        Faulted: It failed meanwhile.
    """
    evidence = _seen(subject, is_late=True)
    second = contract.judge(subject.session.contract, subject.instrumented, evidence)
    if second.is_kept:
        traced = {"coverage": second.coverage, "coverage_from": second.coverage_from}
        return (found if evidence.trace is None else found.model_copy(update=traced)), None
    changed = {"is_kept": False, "breaches": second.breaches, "libraries": second.libraries}
    reason = f"after it had been timed: {contract.breach(second)}"
    return found.model_copy(update=changed), Failure(Status.CONTRACT, reason)


def _evidence(subject: Subject, thorough: bool) -> Evidence:
    seen = _seen(subject)
    is_needed, needed, notes = (
        _deleted(subject, seen.extension_files) if thorough else (None, {}, ())
    )
    return replace(
        seen,
        is_needed=is_needed,
        needed=needed,
        notes=(*hints.class_note(subject.candidate.source), *seen.notes, *notes),
        hints=hints.read(subject.candidate.source),
    )


def _seen(subject: Subject, is_late: bool = False) -> Evidence:
    """What is seen from outside while it makes some calls; `is_late` after the timing."""
    if subject.session.gpu is not None:
        return authorship.seen(subject, is_traced=is_late)
    worker, handed, case = subject.worker, subject.handed, subject.cases[0]
    sizes = subject.session.oracle.expected(case).output_bytes
    worker.put(case.name, subject.session.oracle.package(case), output_bytes=sizes)
    samples = sample(worker, case.name, subject.instrumented.seconds)
    pid = next(iter(worker.pids), 0)
    code = code_of(pid)
    worker.drop(case.name)
    mapped = [mapping.path for mapping in code or ()]
    extensions = built_here(pid, mapped, subject.candidate.source)
    notes = [*_built(extensions, subject.loaded)]
    if samples is None:
        notes.append(NO_SAMPLES)
    elif not samples.are_heirs_seen:
        notes.append(NO_HEIRS)
    if code is None:
        notes.append(NO_MAPS)
    return Evidence(
        handed=handed,
        code=code,
        samples=samples and replace(samples, built=built_files(handed, extensions)),
        extension_files=extensions,
        notes=tuple(notes),
    )


def _built(extensions: tuple[str, ...], loaded: Loaded) -> Iterator[str]:
    for path in extensions:
        yield (
            f"importing it took {loaded.import_s:.0f} s, most of it to build the extension "
            f"`{name_of(path)}`; `evokernel.jit.cpp_module` builds a kernel in about one, and what "
            "it builds can be kept, deleted for a test, and profiled"
        )


def _deleted(
    subject: Subject, extensions: tuple[str, ...]
) -> tuple[bool | None, dict[str, bool], tuple[str, ...]]:
    """Whether its kernels are needed: all together, and one by one."""
    load_s = subject.loaded.import_s + subject.loaded.construct_s
    if not subject.handed or subject.session.gpu is not None:
        return None, {}, ()
    if extensions:
        return None, {}, (WITH_EXTENSIONS,)
    if contract.computing(subject.instrumented.operators):
        return None, {}, ("its kernels were not deleted for a test: the library computes, too",)
    deletion = Deletion(
        subject.session,
        subject.candidate,
        subject.handed,
        subject.cases,
        load_s + subject.instrumented.seconds,
    )
    if not deletion.functions:
        return None, {}, ("its kernels were not deleted for a test: not on this processor",)
    is_needed = deletion.is_needed()
    launched = [k for k in _by_time(subject.instrumented) if k in deletion.functions]
    if not is_needed or len(launched) == 1:
        return is_needed, dict.fromkeys(launched, is_needed), ()
    needed: dict[str, bool] = {}
    end = time.monotonic() + SINGLES_S
    for number, kernel in enumerate(launched[:MOST_KERNELS]):
        if number >= CERTAIN_KERNELS and time.monotonic() > end:
            break
        needed[kernel] = deletion.changes(kernel, subject.instrumented)
    return is_needed, needed, ()


def _by_time(outcome: Outcome) -> list[str]:
    """Kernels that were launched, those with the most time first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for launch in outcome.launches:
        seconds[launch.kernel] += launch.seconds
    return sorted(seconds, key=seconds.__getitem__, reverse=True)
