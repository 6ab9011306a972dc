"""Owns `Population`: the start points of every run, as the journal keeps them."""

import heapq
import json
from collections.abc import Sequence

from evokernel.config import StartRule
from evokernel.memory.journal import Columns, Journal
from evokernel.memory.retrieval import dice
from evokernel.memory.reward_rules import start_advance
from evokernel.memory.rewards import Reward
from evokernel.memory.start_points import StartPoint, StartTable

DIGITS = 6
"""Of the logged values: enough to tell them apart, a third of the room (ours)."""

LOGGED = 32
"""Start points whose values are logged with a choice, the best ones: all of them in every step
would make the journal of a long run grow quadratically (ours)."""


class Population:
    """Enters start points, chooses among them, and tells them how their children did."""

    def __init__(self, journal: Journal, epsilon: float, rule: StartRule = "hope") -> None:
        self._journal = journal
        self._epsilon = epsilon
        self._rule = rule
        self._tables: dict[str, StartTable] = {}

    def enter(self, run: str, step: str, point: StartPoint) -> None:
        """Write a start point down, once per run and candidate."""
        self._journal.add_start(
            {
                "run": run,
                "step": step,
                "candidate": point.candidate,
                "median_ms": point.median_ms,
                "niche": point.niche,
                "gain": point.gain,
            }
        )

    def choose(
        self, run: str, step: str, seed: int, k: int, exclude: Sequence[str]
    ) -> tuple[str, ...]:
        """Choose, or answer with the choice that was written down for this step and `exclude`."""
        key = f"{step} without {' '.join(sorted(exclude))}" if exclude else step
        recorded = self._journal.choice(key)
        if recorded is None:
            table = self.table(run)
            picks = table.choose(k, self._epsilon, dice(seed, key, "start point"), exclude)
            columns: Columns = {
                "step": key,
                "run": run,
                "seed": seed,
                "pool": json.dumps(_best_values(table)),
                "chosen": json.dumps([pick.model_dump() for pick in picks]),
            }
            is_new = self._journal.add_choice(columns)
            recorded = columns if is_new else self._journal.choice(key) or columns
        return tuple(pick["candidate"] for pick in json.loads(recorded["chosen"]))

    def tell(self, run: str, step: str, parent: str, reward: Reward) -> None:
        """Write down how a child did, once per step and parent."""
        self._journal.add_start_reward(
            {
                "run": run,
                "step": step,
                "candidate": parent,
                "feasible": reward.feasible,
                "gain": reward.gain,
                "advance": start_advance(reward) if reward.feasible else 0.0,
            }
        )

    def table(self, run: str) -> StartTable:
        """The start points of one run with their children, as they are now."""
        table = self._tables.setdefault(run, StartTable(rule=self._rule))
        points, children = self._journal.starts_after(run, table.watermark)
        for row in points:
            point = StartPoint(
                candidate=row.candidate, median_ms=row.median_ms, niche=row.niche, gain=row.gain
            )
            table.enter(point)
        for row in children:
            table.tell(row.candidate, bool(row.feasible), row.gain, row.advance)
        table.watermark = max([table.watermark, *(row.seq for row in (*points, *children))])
        return table


def _best_values(table: StartTable) -> dict[str, float]:
    values = {point.candidate: round(table.value(point), DIGITS) for point in table.points}
    if len(values) <= LOGGED:
        return values
    return dict(heapq.nlargest(LOGGED, values.items(), key=lambda pair: pair[1]))
