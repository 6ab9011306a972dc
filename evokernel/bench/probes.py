"""Owns what is found out about one kernel for its profile: short runs of it in a fresh process."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evokernel.attempt import Candidate
from evokernel.bench.counters import Place, Seen, watched
from evokernel.bench.disturbance import waited_seconds
from evokernel.bench.messages import Probe
from evokernel.bench.pool import Worker
from evokernel.bench.session import Session
from evokernel.bench.timing import WAIT_S, WAIT_SHARE
from evokernel.compilers import Artefact
from evokernel.compilers.assembly import Loop, loops, text_shift

BATCH_S = 0.02
"""Shortest batch of calls."""
WATCHED_S = 0.12
"""Length of the batch that is sampled; some hundred samples a thread."""
ROUNDS, LIMIT_S = 3, 0.5
"""Calm batches whose median counts, and seconds in which so many have to be found. The fastest of
all would mislead: threads that share one core for a moment are not in each other's way."""
LONGEST_ALONE_S = 3.0
"""Calls that may take longer with one thread are not tried so."""
MOST_CALLS = 4096
OPENMP = ("libgomp", "libomp", "libiomp")
"""Names of the runtimes in which threads wait for each other."""
ONE_CORE = 1.3
"""Cores kept busy up to which one thread alone is at work."""
LEAST_SAMPLES = 20
"""Samples inside own kernels that say where the time goes."""


@dataclass(frozen=True)
class Evidence:
    """What short runs and the built library say about a kernel."""

    call_s: float
    """Seconds a call with all threads and warm caches."""
    inside_s: float
    """Of these, seconds inside its own kernels."""
    launches: float
    """Launches of own kernels a call."""
    threads: int
    """Threads that it was allowed."""
    alone_s: float | None = None
    """Seconds inside its own kernels a call with one thread; None where it takes others anyway."""
    cores: float = 1.0
    """Cores kept busy meanwhile, on average."""
    is_calm: bool = True
    """Its threads had the cores for themselves."""
    waiting: float | None = None
    """Share of the threads' time inside kernels spent in the OpenMP runtime; None if unknown."""
    loop: Loop | None = None
    """Its hottest loop."""
    loop_share: float | None = None
    """The hottest loop's share of the samples inside own kernels; None without samples."""
    counts: tuple[tuple[str, int], ...] = ()
    """Hardware events by name."""
    refusal: str = ""
    """Why there are none."""

    @property
    def scaling(self) -> float | None:
        """Time inside kernels with one thread over that with all."""
        return self.alone_s / self.inside_s if self.alone_s and self.inside_s else None


def examine(session: Session, candidate: Candidate) -> Evidence:
    """Run a kernel that passed for a third of a second (a busy machine: one), and read its library.

    Raises:
        Faulted: It fails now.
        WorkerError: The device lock stayed taken.
    """
    built: list[Artefact] = []
    worker, _ = session.fork(candidate, built.append)
    with worker:
        session.put_timed(worker)
        name = session.oracle.timed_cases()[0].name
        with session.turn():
            found, seen = _run(worker, name, session.threads)
    return _with_code(found, seen, [Path(artefact.path) for artefact in built])


def _run(worker: Worker, name: str, threads: int) -> tuple[Evidence, Seen]:
    worker.probe(name, 1, threads)
    calls = _calls(worker.probe(name, 2, threads), BATCH_S)
    usual = _steady(worker, name, calls, threads)
    probe = usual.probe
    with watched(worker.pids[0] if worker.pids else 0) as seen:
        worker.probe(name, _calls(probe, WATCHED_S), threads)
    # With one thread last: the runtime may end the threads that it does not need.
    is_tried = threads > 1 and probe.seconds * threads < LONGEST_ALONE_S
    alone = _steady(worker, name, calls, 1) if is_tried else usual
    found = Evidence(
        call_s=probe.seconds,
        inside_s=min(probe.inside_s, probe.seconds),
        launches=probe.launches,
        threads=threads,
        alone_s=alone.probe.inside_s if is_tried and alone.cores < ONE_CORE else None,
        cores=usual.cores,
        is_calm=usual.is_calm and alone.is_calm,
        counts=tuple(seen.counts.items()),
        refusal=seen.refusal,
    )
    return found, seen


def _calls(probe: Probe, seconds: float) -> int:
    return max(1, min(MOST_CALLS, math.ceil(seconds / max(probe.seconds, 1e-7))))


@dataclass(frozen=True)
class _Batch:
    """Some calls, and how they were carried out."""

    probe: Probe
    cores: float
    """Cores kept busy."""
    is_calm: bool
    """Its threads hardly waited for a core."""


def _steady(worker: Worker, name: str, calls: int, threads: int) -> _Batch:
    """The median of some calm batches; of all, marked as disturbed, where too few are calm."""
    worker.probe(name, 1, threads)
    end = time.monotonic() + LIMIT_S
    batches = [_batch(worker, name, calls, threads)]
    while time.monotonic() < end and sum(b.is_calm for b in batches) < ROUNDS:
        batches.append(_batch(worker, name, calls, threads))
    calm = [batch for batch in batches if batch.is_calm]
    is_calm = len(calm) >= min(ROUNDS, len(batches))
    ranked = sorted(calm if is_calm else batches, key=lambda batch: batch.probe.wall_s)
    return replace(ranked[len(ranked) // 2], is_calm=is_calm)


def _batch(worker: Worker, name: str, calls: int, threads: int) -> _Batch:
    pids = worker.pids
    spent, waited = worker.usage().cpu_s, waited_seconds(pids)
    probe = worker.probe(name, calls, threads)
    waited, spent = waited_seconds(pids) - waited, worker.usage().cpu_s - spent
    return _Batch(
        probe=probe,
        cores=spent / probe.wall_s,
        is_calm=waited <= WAIT_S + WAIT_SHARE * probe.wall_s,
    )


def _with_code(found: Evidence, seen: Seen, libraries: Sequence[Path]) -> Evidence:
    """Add which loop is the hottest, and how much of the threads' time is waiting."""
    names = {path.name for path in libraries}
    places: Counter[Place] = Counter()
    for counter in seen.samples.values():
        places.update(counter)
    own = {place: n for place, n in places.items() if Path(place.file).name in names}
    waits = sum(n for place, n in places.items() if Path(place.file).name.startswith(OPENMP))
    total = sum(own.values())
    loop, hits = _hottest(own, libraries)
    is_sampled = total >= LEAST_SAMPLES
    return replace(
        found,
        waiting=_waiting(found, waits, total) if is_sampled else None,
        loop=loop,
        loop_share=hits / total if is_sampled else None,
    )


def _waiting(found: Evidence, waits: int, own: int) -> float:
    """Waiting as a share of waiting and working, without the waits between kernels.

    While the call is outside its kernels, all other threads spin in the runtime for a while.
    """
    outside = 1.0 - found.inside_s / found.call_s
    idle = outside * (found.threads - 1) / found.threads
    return max(0.0, waits / (waits + own) - idle)


def _hottest(own: dict[Place, int], libraries: Sequence[Path]) -> tuple[Loop | None, int]:
    """The loop with the most samples; without samples the one with the most arithmetic."""
    ranked: list[tuple[int, int, int, Loop]] = []
    for library in libraries:
        found = loops(library)
        if not found:
            continue
        shift = text_shift(library)
        mine = [(place.offset + shift, n) for place, n in own.items() if _is(place, library)]
        for loop in found:
            hits = sum(n for address, n in mine if loop.holds(address))
            ranked.append((hits, loop.arithmetic, -loop.instructions, loop))
    if not ranked:
        return None, 0
    hits, _, _, loop = max(ranked, key=lambda entry: entry[:3])
    return loop, hits


def _is(place: Place, library: Path) -> bool:
    return Path(place.file).name == library.name
