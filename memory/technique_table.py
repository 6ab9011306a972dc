"""Owns what each technique has been worth: how often tried, how often right, and its gain."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from evokernel.attempt import Stage
from evokernel.evaluation import Interval
from evokernel.frozen import Frozen
from evokernel.memory.experience import BELIEVED, Entry, Experience
from evokernel.memory.values import Learner

STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""97.5 % points of Student's t for 1 to 30 degrees of freedom; beyond, the normal's."""
NORMAL = 1.96
"""97.5 % point of the normal distribution."""


class TechniqueUse(Frozen):
    """One technique, over everything or in one group of tasks."""

    technique: str
    """Its name in the catalogue."""
    family: str | None = None
    """Family of the tasks; None for all."""
    bottleneck: str | None = None
    """What bound the start points; None for all."""
    backend: str | None = None
    """Language of the kernels; None for all."""
    attempts: int = 0
    """Judged candidates that applied it."""
    feasible: int = 0
    """Those of them that passed."""
    edits: int = 0
    """Edits that brought it in or took it out, with both sides measured."""
    gain: Interval | None = None
    """How many times as fast a kernel is with it, a geometric mean with its 95 % interval over the
    edits (an edit that took it out counts the other way round); without width for a single edit."""
    q: dict[Stage, float] = {}
    """Mean value per stage of the experiences that carry it and have a value."""
    valued: int = 0
    """Experiences that carry it and have a value."""

    @property
    def share(self) -> float | None:
        """Feasible share of the attempts; None without any."""
        return self.feasible / self.attempts if self.attempts else None

    @property
    def share_interval(self) -> Interval | None:
        """The share with its 95 % interval, Wilson's; None without any attempts."""
        if not self.attempts:
            return None
        n, share, z = self.attempts, self.feasible / self.attempts, NORMAL
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        width = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        low, high = max(0.0, middle - width), min(1.0, middle + width)
        return Interval(value=share, low=min(low, share), high=max(high, share))


def technique_table(
    entries: Sequence[Entry],
    values: Learner,
    names: Iterable[str] = (),
    by: frozenset[str] = frozenset(),
    only: str | None = None,
) -> tuple[TechniqueUse, ...]:
    """What each technique has been worth.

    What was withdrawn or not confirmed is left out. An edit that changed several techniques counts
    for each of them: their gains cannot be told apart.

    Args:
        entries: All experiences, in any order.
        values: Their values.
        names: Techniques that are listed even where nothing is known of them.
        by: What divides the table, of `family`, `bottleneck` and `backend`.
        only: Count what goes with this bottleneck only.
    """
    known = [entry.experience for entry in entries if entry.status in BELIEVED]
    kernels = {
        (e.origin.run, e.origin.candidate): e for e in known if e.kind in {"kernel", "lesson"}
    }
    tallies: defaultdict[_Line, _Tally] = defaultdict(_Tally)
    for experience in known:
        parent = _parent(experience, kernels)
        bottleneck = (parent or experience).bottleneck
        for technique in experience.techniques if only in {None, bottleneck} else ():
            line = _Line(
                technique,
                experience.family if "family" in by else None,
                bottleneck if "bottleneck" in by else None,
                experience.backend if "backend" in by else None,
            )
            tallies[line].take(technique, experience, parent, kernels, values)
    seen = {line.technique for line in tallies}
    unseen = [TechniqueUse(technique=name) for name in names if name not in seen]
    used = [_use(key, tally) for key, tally in tallies.items()]
    used.sort(key=lambda use: (-use.attempts, use.technique, *_place(use)))
    return (*used, *unseen)


class _Line(NamedTuple):
    """What is counted together."""

    technique: str
    family: str | None
    bottleneck: str | None
    backend: str | None


def _place(use: TechniqueUse) -> tuple[str, str, str]:
    return use.family or "", use.bottleneck or "", use.backend or ""


class _Tally:
    """What is counted for one line."""

    def __init__(self) -> None:
        self.attempts = 0
        self.feasible = 0
        self.gains: list[float] = []
        self.values: defaultdict[Stage, list[float]] = defaultdict(list)
        self.valued = 0

    def take(
        self,
        technique: str,
        experience: Experience,
        parent: Experience | None,
        kernels: Mapping[tuple[str, str], Experience],
        values: Learner,
    ) -> None:
        if experience.kind in {"kernel", "lesson"}:  # every judged candidate left one of the two
            self.attempts += 1
            self.feasible += experience.kind == "kernel"
        if experience.kind == "edit" and parent is not None:
            child = kernels.get((experience.origin.run, experience.origin.candidate))
            self._take_gain(technique, experience, parent, child)
        visited = [stage for stage in Stage if values.of(experience.id, stage).visits]
        self.valued += bool(visited)
        for stage in visited:
            self.values[stage].append(values.of(experience.id, stage).q)

    def _take_gain(
        self, technique: str, edit: Experience, parent: Experience, child: Experience | None
    ) -> None:
        ratio = edit.measurement.speedup
        if ratio is None or child is None or ratio.value <= 0:
            return
        is_in, was_in = technique in child.techniques, technique in parent.techniques
        if is_in != was_in:  # both: only a parameter of it changed
            self.gains.append(math.log(ratio.value) * (1 if is_in else -1))


def _use(line: _Line, tally: _Tally) -> TechniqueUse:
    return TechniqueUse(
        **line._asdict(),
        attempts=tally.attempts,
        feasible=tally.feasible,
        edits=len(tally.gains),
        gain=_interval(tally.gains),
        q={stage: fmean(qs) for stage, qs in tally.values.items()},
        valued=tally.valued,
    )


def _interval(logs: list[float]) -> Interval | None:
    if not logs:
        return None
    count, middle, width = len(logs), fmean(logs), 0.0
    if count > 1:
        quantile = STUDENT[count - 2] if count - 2 < len(STUDENT) else NORMAL
        width = quantile * stdev(logs) / math.sqrt(count)
    low, high = math.exp(middle - width), math.exp(middle + width)
    return Interval(value=math.exp(middle), low=low, high=high)


def _parent(
    experience: Experience, kernels: Mapping[tuple[str, str], Experience]
) -> Experience | None:
    origin = experience.origin
    return kernels.get((origin.run, origin.parents[0])) if origin.parents else None
