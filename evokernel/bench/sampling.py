"""Owns the parent's look at where a worker's time goes: samples of all its threads, by library.

The worker has no part in it: the kernel takes the samples, and /proc says what lies where. Only
time in user code is seen.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evokernel.bench.counters import RING_SAMPLES, SAMPLES_PER_S, Place, watched
from evokernel.bench.mappings import SHARED_MEMORY, Owner, owner_of
from evokernel.bench.pool import Worker
from evokernel.bench.procfs import cpu_seconds
from evokernel.bench.symbols import names_of
from evokernel.evaluation import LibraryTime

BATCH_S = 0.04
"""Length of a batch that is sampled: 160 samples of each busy thread."""
MOST_CALLS = 8192
_MOST_LOOKS = 20  # until number of calls and rate fit
ENOUGH = 120
"""Samples that a batch should give: others that have the cores meanwhile leave it fewer."""
_MOST_THIN = 4  # looks in which it may give fewer before it is taken as it is
LEAST_SAMPLES = 6
"""Samples that are evidence of anything."""
LASTING = 16
"""Samples of a thread from which on it is looked at by itself."""
_SHOWN = 0.005
"""Smallest share that is listed."""


@dataclass(frozen=True)
class Samples:
    """What one batch of calls was seen doing."""

    calls: int
    threads: dict[int, Counter[Place]]
    """By thread, how often it was met where."""
    main: int
    """The thread that answers the parent."""
    elsewhere: float
    """Samples that other processes of the worker would have given, whenever they were started."""
    built: frozenset[str] = frozenset()
    """Files that count as the candidate's own."""
    per_s: int = SAMPLES_PER_S
    """Samples that a thread gives for a second of work."""
    are_heirs_seen: bool = True
    """Whether threads and processes that were started meanwhile are among them."""

    def owners(self, places: Counter[Place]) -> Counter[Owner]:
        """Samples by owner."""
        found: Counter[Owner] = Counter()
        for place, count in places.items():
            found[self.owner(place)] += count
        return found

    def owner(self, place: Place) -> Owner:
        """Whose code was met there."""
        return owner_of(place.file, self.built)

    @property
    def total(self) -> int:
        """All samples of the process."""
        return sum(places.total() for places in self.threads.values())

    def seconds(self, count: float) -> float:
        """Processor seconds a call that so many samples stand for."""
        return count / self.per_s / self.calls

    def files(self, owner: Owner) -> list[str]:
        """Files in which it was met, of one owner."""
        seen = {place.file for places in self.threads.values() for place in places}
        return sorted(file for file in seen if owner_of(file, self.built) == owner)

    def count(self, file: str) -> int:
        """Samples in a file."""
        return sum(_in_file(places, file) for places in self.threads.values())

    def share(self, file: str, counted: float) -> float:
        """The largest share that a file has of a thread's samples, `counted` of all being counted.

        Of a thread, since one that does nothing else must not hide behind many others. Too few
        samples are no share.
        """
        if counted < LEAST_SAMPLES:
            return 0.0
        shares = [
            _in_file(places, file) / total
            for places in self.by_thread
            if (total := places.total()) >= LEAST_SAMPLES
        ]
        return max(shares, default=0.0) * counted / self.count(file)

    def coverage(self, idle: frozenset[str]) -> float | None:
        """Share of a call's user time that is its own kernels' work, 0..1; None without samples.

        Of the thread that answers, or of all where it mostly waits for others. What runtimes do
        (arithmetic functions, threads meeting each other) belongs to whoever computes: it is
        divided as own and other computing are.

        Args:
            idle: Functions that change nothing, and whose time is not counted.
        """
        chosen = self._telling()
        found = self.owners(chosen)
        total = sum(found.values())
        if not total:
            return None
        own = found["own"] - (self._within(chosen, idle) if idle else 0)
        computing = found["own"] + found["library"] + found["made"]
        part = own / computing if computing else 0.0
        return min(1.0, (own + part * found["runtime"]) / total)

    def _telling(self) -> Counter[Place]:
        """Samples of the thread that answers, or of all where the others do most of the work."""
        main, *others = self.by_thread
        if all(2 * main.total() >= places.total() for places in others):
            return main
        return sum(others, main)

    @cached_property
    def by_thread(self) -> tuple[Counter[Place], ...]:
        """Samples by thread, the one that answers first; short-lived ones count as one, the last.

        Threads may be started for each call.
        """
        others = [places for thread, places in self.threads.items() if thread != self.main]
        main = self.threads.get(self.main, Counter[Place]())
        lasting = [places for places in others if places.total() >= LASTING]
        short = [places for places in others if places.total() < LASTING]
        return (main, *lasting, sum(short, Counter[Place]()))

    def _within(self, places: Counter[Place], functions: frozenset[str]) -> int:
        """Samples in some of its own functions, parts that were split off included."""
        count = 0
        for file in {place.file for place in places if self.owner(place) == "own"}:
            names = names_of(Path(file), [place.offset for place in places if place.file == file])
            count += sum(
                found
                for place, found in places.items()
                if place.file == file and names.get(place.offset, "").split(".")[0] in functions
            )
        return count

    def times(self) -> tuple[LibraryTime, ...]:
        """Where the time of all threads went, the most first; next to nothing left out."""
        files: Counter[str] = Counter()
        for places in self.threads.values():
            for place, count in places.items():
                files[place.file] += count
        total = sum(files.values())
        return tuple(
            LibraryTime(
                library=name_of(file),
                owner=owner_of(file, self.built),
                share=round(count / total, 4),
                ms=round(1e3 * self.seconds(count), 6),
            )
            for file, count in files.most_common()
            if count / total >= _SHOWN
        )

    def functions(self, file: str) -> Counter[str]:
        """Samples in a library by the name of the function; unknown ones by an empty name."""
        offsets: Counter[int] = Counter()
        for places in self.threads.values():
            for place, count in places.items():
                if place.file == file:
                    offsets[place.offset] += count
        names = names_of(Path(file), offsets)
        found: Counter[str] = Counter()
        for offset, count in offsets.items():
            found[names.get(offset, "")] += count
        return found


def sample(worker: Worker, name: str, call_s: float) -> Samples | None:
    """Sample a batch of calls on a put input set; None where the system does not permit it.

    Args:
        worker: The candidate's worker.
        name: The input set.
        call_s: About how long a call takes, seconds; only a first guess.

    Raises:
        Faulted: It failed meanwhile.
    """
    pids = worker.pids
    if not pids:
        return None
    calls = _calls(call_s, 1)
    per_s = _rate(calls * call_s)
    for look in range(_MOST_LOOKS):
        before = {pid: cpu_seconds([pid]) for pid in pids[1:]}
        with watched(pids[0], heirs=True, per_s=per_s) as seen:
            wall_s = worker.batch(name, calls).wall_s
        met = sum(places.total() for places in seen.samples.values())
        is_full = met >= ENOUGH or look >= _MOST_THIN
        is_long = (wall_s >= BATCH_S / 2 and is_full) or calls >= MOST_CALLS
        # How long a call takes was told by the worker until now.
        if is_long and _rate(wall_s) / 2 <= per_s <= 1.3 * _rate(wall_s):
            break
        usual_s = wall_s / calls
        calls = calls if is_long else max(2 * calls, _calls(usual_s, calls))
        per_s = _rate(calls * usual_s)
    if not seen.samples:
        return None
    # What ended meanwhile has no time any more, which takes nothing from the others.
    worked_s = sum(max(0.0, cpu_seconds([pid]) - was) for pid, was in before.items())
    elsewhere = sum(seen.elsewhere.values()) + per_s * worked_s
    return Samples(
        calls, seen.samples, pids[0], elsewhere, per_s=per_s, are_heirs_seen=seen.are_heirs_seen
    )


def name_of(file: str) -> str:
    """What to call a mapped file."""
    is_loose = not file or file.startswith(SHARED_MEMORY)
    return "memory without a file" if is_loose else file.rpartition("/")[2]


def _in_file(places: Counter[Place], file: str) -> int:
    return sum(count for place, count in places.items() if place.file == file)


def _rate(wall_s: float) -> int:
    """Samples a second that find room over a batch, so that all of it is seen."""
    return max(1, int(min(SAMPLES_PER_S, RING_SAMPLES / max(wall_s, 1e-6))))


def _calls(call_s: float, least: int) -> int:
    return max(least, min(MOST_CALLS, math.ceil(BATCH_S / max(call_s, 1e-7))))
