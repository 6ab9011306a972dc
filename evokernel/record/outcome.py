"""Owns what a run has come to, read from its folder: the best kernel, its ratios, its descent."""

from evokernel.attempt import Attempt
from evokernel.evaluation import Interval, Promotion, Speedup
from evokernel.record import RunRecord

FASTER, SAME, SLOWER = "faster than", "not measurably faster than", "slower than"


class Outcome:
    """Answers about a run, finished or not.

    Args:
        record: The run.

    Raises:
        RecordError: A file of the run is damaged.
    """

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.attempts = record.attempts()
        self.looks = record.promotions()
        self.best = record.best()
        self.seconds = max((float(event["elapsed"]) for event in record.events()), default=0.0)
        """Of the run, all sessions together, up to its last event."""

    def verdict(self, ratio: Interval) -> str:
        """`FASTER`, `SAME` or `SLOWER`, by the margin of the run."""
        if ratio.low > 1 + self.record.config.bench.margin:
            return FASTER
        return SLOWER if ratio.high < 1 else SAME

    def speedup(self, baseline: str, attempt: Attempt | None = None) -> Speedup | None:
        """The first measurement of an attempt, by default the best one."""
        attempt = attempt or self.best
        timing = attempt.evaluation.timing if attempt else None
        return timing.against(baseline) if timing else None

    def second_look(self, baseline: str, attempt: Attempt | None = None) -> Promotion | None:
        """A kernel's measurement in fresh processes; it has eager alone as opponent."""
        attempt = attempt or self.best
        if attempt is None or baseline != "eager":
            return None
        sha = attempt.proposal.candidate.sha
        looks = [p for p in self.looks if (p.claim, p.candidate) == ("kernel", sha)]
        return looks[-1] if looks else None

    def ratio(self, baseline: str, attempt: Attempt | None = None) -> Interval | None:
        """The figure to be believed: the second look's, else the first measurement's."""
        second = self.second_look(baseline, attempt)
        if second is not None and second.ratio is not None:
            return second.ratio
        first = self.speedup(baseline, attempt)
        return first.ratio if first else None

    def descent(self) -> list[tuple[Attempt, Attempt | None]]:
        """From the first draft to the best kernel, each with the parent it came from."""
        by_sha = self.by_sha()
        chain: list[tuple[Attempt, Attempt | None]] = []
        link = self.best
        while link is not None and len(chain) < len(self.attempts):
            parents = link.proposal.parents
            parent = by_sha.get(parents[0]) if parents else None
            chain.append((link, parent))
            link = parent
        return chain[::-1]

    def by_sha(self) -> dict[str, Attempt]:
        """The first attempt with each source."""
        found: dict[str, Attempt] = {}
        for attempt in self.attempts:
            found.setdefault(attempt.proposal.candidate.sha, attempt)
        return found

    def measured_gain(self, attempt: Attempt, parent: Attempt) -> Interval | None:
        """The parent's time over its child's where both were measured together, else None."""
        key = attempt.proposal.candidate.sha, parent.proposal.candidate.sha
        for look in reversed(self.looks):
            if (look.candidate, look.parent) == key and look.claim == "edit" and look.ratio:
                return look.ratio
        return None

    def estimated_gain(self, attempt: Attempt, parent: Attempt) -> float | None:
        """The same by way of eager, against which each was measured at another time."""
        mine, its = self.speedup("eager", attempt), self.speedup("eager", parent)
        return mine.ratio.value / its.ratio.value if mine and its else None
