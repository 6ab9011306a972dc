"""Owns what a report tells: one row an attempt, and what memory showed, read from a run folder."""

from collections.abc import Iterator

from evokernel.answers import Answer, answers
from evokernel.attempt import Attempt
from evokernel.evaluation import Interval, Status
from evokernel.frozen import Frozen
from evokernel.memory.standing import Standing, standing
from evokernel.record import RunRecord
from evokernel.record.entries import lead
from evokernel.record.outcome import Outcome


class Row(Frozen):
    """One attempt."""

    number: int
    stage: str
    parents: tuple[int, ...]
    """Numbers of the attempts it was made from."""
    change: str
    """Techniques or parameters that differ from its parent, else its techniques or its reason."""
    status: Status
    reason: str
    answers: tuple[Answer, ...]
    """All five."""
    median_ms: float | None
    """Median time of a call; on a GPU device time."""
    wall_ms: float | None
    """On a GPU, its wall time beside it."""
    ratio: Interval | None
    """Times faster than eager: from fresh processes where it was measured again."""
    processes: int
    """Fresh processes that `ratio` comes from; 1 is a first measurement, 0 none."""
    first: Interval | None
    """The first measurement of the same."""
    compile: Interval | None
    """Times faster than torch.compile."""
    is_refuted: bool
    """A second look in fresh processes did not confirm it."""
    is_best: bool
    is_on_path: bool
    """Among those that the best was made from."""
    repeats: int | None
    """The earlier attempt with the same source."""
    shown: int
    """How many experiences its proposer was shown."""
    reward: float | None


class Shown(Frozen):
    """One experience that memory showed."""

    id: str
    attempts: tuple[int, ...]
    """To whom it was shown."""
    used: tuple[int, ...]
    """Who said they used it."""
    reward: float | None
    """Mean reward of the charged attempts among those."""
    others: float | None
    """Mean reward of the other attempts of the same stages."""


class Story:
    """What a run folder says.

    Raises:
        RecordError: A file of it is damaged.
    """

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.outcome = Outcome(record)
        self.task = record.task()
        self.graph = record.graph()
        self.baselines = record.baselines() or {}
        events = list(record.events())
        self.ending = next((str(e["reason"]) for e in reversed(events) if e["kind"] == "ended"), "")
        self.last = str(events[-1]["kind"]) if events else "none"
        """Kind of the last event."""
        self.rows = tuple(self._rows())
        self.shown = tuple(self._shown())
        against = _against(record, self.outcome)
        self.standing = against.in_words()
        """What memory says against the best kernel, e.g. that it was retracted; or empty."""
        self.is_fallen = bool(against.withdrawn or against.suspect)

    @property
    def best(self) -> Row | None:
        """The row of the best kernel."""
        return next((row for row in self.rows if row.is_best), None)

    @property
    def is_gpu(self) -> bool:
        """Whether device times were taken, and wall times beside them."""
        return any(row.wall_ms is not None for row in self.rows)

    def row(self, number: int) -> Row:
        """The row of an attempt, which must be there."""
        return next(row for row in self.rows if row.number == number)

    @property
    def leaders(self) -> list[tuple[int, float]]:
        """The best speedup so far after each attempt, from the first that passed; see `lead`."""
        found: list[tuple[int, float]] = []
        for attempt in self.outcome.attempts:
            ratio = lead(attempt, self.outcome.second_look("eager", attempt))
            before = found[-1][1] if found else 0.0
            if ratio and self.outcome.ratio("eager", attempt):
                found.append((attempt.number, max(before, ratio)))
            elif found:
                found.append((attempt.number, before))
        return found

    @property
    def compile_ratio(self) -> float | None:
        """How many times faster than eager torch.compile is, by the medians of the baselines."""
        eager, compiled = self.baselines.get("eager"), self.baselines.get("compile")
        return eager / compiled if eager and compiled else None

    def _rows(self) -> Iterator[Row]:
        path = {attempt.number for attempt, _ in self.outcome.descent()}
        first = self.outcome.by_sha()
        for attempt in self.outcome.attempts:
            twin = first[attempt.proposal.candidate.sha]
            parents = (first.get(sha) for sha in attempt.proposal.parents)
            yield self._row(
                attempt,
                tuple(parent.number for parent in parents if parent),
                twin.number if twin is not attempt else None,
                attempt.number in path,
            )

    def _row(
        self, attempt: Attempt, parents: tuple[int, ...], repeats: int | None, is_on_path: bool
    ) -> Row:
        proposal, evaluation = attempt.proposal, attempt.evaluation
        look = self.outcome.second_look("eager", attempt)
        again = look if look is not None and look.ratio is not None else None
        first = self.outcome.speedup("eager", attempt)
        other = self.outcome.speedup("compile", attempt)
        best = self.outcome.best
        return Row(
            number=attempt.number,
            stage=proposal.stage,
            parents=parents,
            change=", ".join(proposal.changed or proposal.techniques)
            or proposal.rationale.rstrip("."),
            status=evaluation.status,
            reason=evaluation.reason,
            answers=answers(evaluation),
            median_ms=attempt.median_ms,
            wall_ms=evaluation.timing.wall_ms if evaluation.timing else None,
            ratio=self.outcome.ratio("eager", attempt),
            processes=again.processes if again else int(first is not None),
            first=first.ratio if first else None,
            compile=other.ratio if other else None,
            is_refuted=look is not None and not look.holds,
            is_best=best is not None and attempt.number == best.number,
            is_on_path=is_on_path,
            repeats=repeats,
            shown=len(attempt.shown),
            reward=attempt.reward,
        )

    def _shown(self) -> Iterator[Shown]:
        attempts = self.outcome.attempts
        for name in sorted({name for attempt in attempts for name in attempt.shown}):
            had = [attempt for attempt in attempts if name in attempt.shown]
            stages = {attempt.proposal.stage for attempt in had}
            others = [a for a in attempts if a not in had and a.proposal.stage in stages]
            yield Shown(
                id=name,
                attempts=tuple(attempt.number for attempt in had),
                used=tuple(a.number for a in had if name in a.proposal.used),
                reward=_mean(had),
                others=_mean(others),
            )


def _against(record: RunRecord, outcome: Outcome) -> Standing:
    if outcome.best is None:
        return Standing()
    return standing(record.memory, outcome.best.proposal.candidate.sha)


def _mean(attempts: list[Attempt]) -> float | None:
    rewards = [attempt.reward for attempt in attempts if attempt.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None
