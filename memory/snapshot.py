"""Owns the saved values: opening a memory carries on from them instead of the first event.

Saved are those of the paper's rule, one scalar each; what learns in sums starts from the events.
"""

from collections.abc import Callable

from evokernel.attempt import Stage
from evokernel.config import Credit
from evokernel.frozen import Frozen
from evokernel.memory.journal import Journal
from evokernel.memory.values import Change, Learner, Value, Values


class Refit(Frozen):
    """What computing every value from the first event brought to light."""

    rewards: int
    """Reward events folded."""
    values: int
    """Values there are now."""
    changes: tuple[Change, ...]
    """Values that differ from those that were in use; none unless constants or code changed."""


class About(Frozen):
    """Under which constants and how far the saved values were folded."""

    alpha: float
    sigma_floor: float
    credit: Credit = "equal"
    rule: str = "evokernel 1"
    """The function of rewards, and in how many stages it is standardised."""
    watermark: int
    count: int
    mean: float
    m2: float
    uncounted: str = ""
    """Hash of the steps that were left out."""

    def is_like(self, other: "About") -> bool:
        """Whether both were folded by the same rule."""
        return self._rule() == other._rule()

    def _rule(self) -> tuple[object, ...]:
        return self.alpha, self.sigma_floor, self.credit, self.rule


def load(journal: Journal, fresh: Learner, uncounted: frozenset[str], upto: int) -> Learner:
    """The values up to now: from the snapshot if it was made alike, else from the start.

    Args:
        journal: Where rewards come from.
        fresh: What learns, with nothing learned yet.
        uncounted: Steps that are left out.
        upto: Number of the last event that is folded, unless the snapshot goes beyond it.
    """
    fresh.uncounted = uncounted
    if isinstance(fresh, Values):
        _restore(journal, fresh)
    fresh.fold(event for event in journal.rewards_after(fresh.watermark) if event.seq <= upto)
    return fresh


def save(journal: Journal, values: Learner) -> None:
    """Replace the snapshot unless it reaches as far already under the same constants."""
    if not isinstance(values, Values):
        return
    text, _ = journal.snapshot()
    found, mine = About.model_validate_json(text) if text else None, _about(values)
    is_same = found is not None and found.is_like(mine) and found.uncounted == mine.uncounted
    if found is None or not is_same or found.watermark < mine.watermark:
        _replace(journal, values)


def refit(journal: Journal, values: Learner, fresh: Callable[[], Learner]) -> tuple[Learner, Refit]:
    """Fold everything anew by the rule of `values`, save it, and say what differs.

    Compared are the saved values carried on to the last reward, or `values` where none are saved.
    """
    before = _saved(journal, values) or values
    before.uncounted = values.uncounted
    before.fold(journal.rewards_after(before.watermark))
    events = list(journal.rewards_after(0))
    after = fresh()
    after.uncounted = values.uncounted
    after.fold(events)
    if isinstance(after, Values):
        _replace(journal, after)
    changes = before.differences(after)
    counted = sum(event.step not in after.uncounted for event in events)
    return after, Refit(rewards=counted, values=len(after.table), changes=changes)


def _saved(journal: Journal, values: Learner) -> Values | None:
    """The saved values under the constants that they were saved with, if of the rule's kind."""
    text, _ = journal.snapshot()
    if text is None or not isinstance(values, Values):
        return None
    about = About.model_validate_json(text)
    found = Values(about.alpha, about.sigma_floor, about.credit, values.rule)
    if about.rule == _about(values).rule:
        _fill(journal, found, about)
    return found


def _restore(journal: Journal, values: Values) -> None:
    text, _ = journal.snapshot()
    if text is None:
        return
    about, mine = About.model_validate_json(text), _about(values)
    if about.is_like(mine) and about.uncounted == mine.uncounted:
        _fill(journal, values, about)


def _fill(journal: Journal, values: Values, about: About) -> None:
    _, rows = journal.snapshot()
    values.watermark = about.watermark
    normaliser = values.normaliser
    normaliser.count, normaliser.mean, normaliser.m2 = about.count, about.mean, about.m2
    for row in rows:
        values.put(row.experience, Stage(row.stage), Value(q=row.q, visits=row.visits))


def _replace(journal: Journal, values: Values) -> None:
    rows = [
        {"experience": id, "stage": stage.value, "q": value.q, "visits": value.visits}
        for (id, stage), value in values.table.items()
    ]
    journal.save_snapshot(rows, _about(values).model_dump_json())


def _about(values: Values) -> About:
    normaliser = values.normaliser
    return About(
        alpha=values.alpha,
        sigma_floor=normaliser.sigma_floor,
        credit=values.credit,
        rule=f"{values.rule.name} {len(values.rule.standardised)}",
        watermark=values.watermark,
        count=normaliser.count,
        mean=normaliser.mean,
        m2=normaliser.m2,
        uncounted=values.uncounted_hash,
    )
