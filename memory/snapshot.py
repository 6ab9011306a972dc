"""Owns the saved values: opening a memory carries on from them instead of the first event."""

from typing import NamedTuple

from evokernel.attempt import Stage
from evokernel.config import Credit
from evokernel.frozen import Frozen
from evokernel.memory.journal import Journal
from evokernel.memory.values import Change, Value, Values


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
    watermark: int
    count: int
    mean: float
    m2: float
    uncounted: str = ""
    """Hash of the steps that were left out."""


class Constants(NamedTuple):
    """What values are folded with."""

    alpha: float
    sigma_floor: float
    credit: Credit


def load(journal: Journal, constants: Constants, uncounted: frozenset[str] = frozenset()) -> Values:
    """The values up to now: from the snapshot if it was made alike, else from the start."""
    values = Values(*constants)
    values.uncounted = uncounted
    saved = _saved(journal)
    made_alike = constants, values.uncounted_hash
    if saved is not None and (_constants(saved[0]), saved[1]) == made_alike:
        values = saved[0]
        values.uncounted = uncounted
    values.fold(journal.rewards_after(values.watermark))
    return values


def save(journal: Journal, values: Values) -> None:
    """Replace the snapshot unless it reaches as far already under the same constants."""
    about, _ = journal.snapshot()
    found = About.model_validate_json(about) if about else None
    is_same = found is not None and (
        (found.alpha, found.sigma_floor, found.credit) == _constants(values)
        and found.uncounted == values.uncounted_hash
    )
    if found is None or not is_same or found.watermark < values.watermark:
        _replace(journal, values)


def refit(journal: Journal, values: Values) -> tuple[Values, Refit]:
    """Fold everything anew under the constants of `values`, save it, and say what differs.

    Compared are the saved values carried on to the last reward, or `values` where none are saved.
    """
    saved = _saved(journal)
    before = saved[0] if saved else values
    before.uncounted = values.uncounted
    before.fold(journal.rewards_after(before.watermark))
    events = list(journal.rewards_after(0))
    after = Values(*_constants(values))
    after.uncounted = values.uncounted
    after.fold(events)
    _replace(journal, after)
    changes = before.differences(after)
    counted = sum(event.step not in after.uncounted for event in events)
    return after, Refit(rewards=counted, values=len(after.table), changes=changes)


def _saved(journal: Journal) -> tuple[Values, str] | None:
    """The saved values, and the hash of what was left out of them."""
    text, rows = journal.snapshot()
    if text is None:
        return None
    about = About.model_validate_json(text)
    values = Values(about.alpha, about.sigma_floor, about.credit)
    values.watermark = about.watermark
    normaliser = values.normaliser
    normaliser.count, normaliser.mean, normaliser.m2 = about.count, about.mean, about.m2
    for row in rows:
        values.table[row.experience, Stage(row.stage)] = Value(q=row.q, visits=row.visits)
    return values, about.uncounted


def _replace(journal: Journal, values: Values) -> None:
    normaliser = values.normaliser
    about = About(
        alpha=values.alpha,
        sigma_floor=normaliser.sigma_floor,
        credit=values.credit,
        watermark=values.watermark,
        count=normaliser.count,
        mean=normaliser.mean,
        m2=normaliser.m2,
        uncounted=values.uncounted_hash,
    )
    rows = [
        {"experience": id, "stage": stage.value, "q": value.q, "visits": value.visits}
        for (id, stage), value in values.table.items()
    ]
    journal.save_snapshot(rows, about.model_dump_json())


def _constants(values: Values) -> Constants:
    return Constants(values.alpha, values.normaliser.sigma_floor, values.credit)
