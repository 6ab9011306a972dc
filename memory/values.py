"""Owns the Q-values: a fold of the journal's reward events, computed anew or carried on.

`Values` is the rule of the EvoKernel paper (arXiv 2603.10846): one scalar per experience and stage,
constant step size, no discount, the same reward for every experience that was shown together.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from evokernel.attempt import Stage
from evokernel.config import Credit
from evokernel.frozen import Frozen
from evokernel.memory.environment import Environment
from evokernel.memory.reward_rules import PAPER, RewardRule
from evokernel.memory.rewards import Normaliser, Reward

SEASONED = 3
"""Rewards from which a value says something; the pool grows with the number of such (ours)."""


class Rewarded(Frozen):
    """One reward event, with what was shown in its step."""

    seq: int
    """Number of the event; values are folded in this order."""
    step: str
    stage: Stage
    value: float
    """The paper's reward as computed, before it is standardised."""
    shown: tuple[str, ...]
    """Ids of the experiences that share it."""
    weights: dict[str, float] = {}
    """What share of it each one is due, 0..1; those not named, all of it."""
    reward: Reward | None = None
    """What the value was computed from, so that other functions can be applied to it."""
    task: str = ""
    """Fingerprint of the step's task, its name for retrievals of old versions, or nothing."""
    family: str = ""
    """Family of the step's task."""
    environment: Environment = Environment()
    """Where the step took place; nothing is known of it in older versions."""
    priors: dict[str, float] = {}
    """What the techniques of what was shown promised then, by id."""
    at: float = 0.0
    """When it was earned, Unix seconds."""

    @property
    def run(self) -> str:
        """The run of its step."""
        return self.step.rpartition("/")[0]

    def weight(self, experience: str) -> float:
        """Share of the credit that something shown has earned, 0..1."""
        return self.weights.get(experience, 1.0)


class Value(Frozen):
    """What an experience is worth for one stage: how much better a step goes when it is shown."""

    q: float = 0.0
    """0 at birth (ours; the paper names none). Draft: -1..1. Refine: in standard deviations."""
    visits: int = 0
    """Rewards behind it."""
    evidence: float | None = None
    """Those rewards by weight; None where each counts in full."""
    spread: float | None = None
    """Standard deviation of `q`; None where the rule has none."""


class Change(Frozen):
    """One value that came out differently when it was computed anew."""

    experience: str
    stage: Stage
    before: Value
    after: Value


UNSEEN = Value()


class Learner(ABC):
    """A fold of rewards: give it every event once, in order, and ask it what something is worth."""

    is_weighing = False
    """Whether evidence counts by where it comes from."""

    def __init__(self, rule: RewardRule) -> None:
        self.rule = rule
        """How a step's reward is computed from what was measured."""
        self.watermark = 0
        """Number of the last event folded."""
        self.uncounted: frozenset[str] = frozenset()
        """Steps whose rewards are left out: what earned them was retracted."""
        self._seasoned: Counter[Stage] = Counter()

    def fold(self, events: Iterable[Rewarded]) -> None:
        """Take further events in; those up to the watermark are in already and are skipped."""
        for event in events:
            if event.seq > self.watermark:
                if event.step not in self.uncounted:
                    self._fold_one(event)
                self.watermark = event.seq

    @property
    def uncounted_hash(self) -> str:
        """Knows again what was left out; empty where nothing was."""
        text = "\n".join(sorted(self.uncounted))
        return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""

    @abstractmethod
    def of(
        self, experience: str, stage: Stage, family: str | None = None, prior: float = 0.0
    ) -> Value:
        """The value of one experience for one stage; zero where nothing is known of it.

        Args:
            experience: Its id.
            stage: For which stage.
            family: Family of the task at hand; None is the experience's own.
            prior: What its techniques promise in the situation at hand.
        """

    @property
    @abstractmethod
    def table(self) -> Mapping[tuple[str, Stage], Value]:
        """The value of everything that has earned a reward."""

    @abstractmethod
    def judged(self, least: int) -> Iterator[str]:
        """Ids of what has so many rewards or more in a stage; some may come twice."""

    def seasoned(self, stage: Stage) -> int:
        """Experiences whose value of this stage rests on three rewards or more."""
        return self._seasoned[stage]

    def differences(self, other: "Learner") -> tuple[Change, ...]:
        """Every value that `other` has differently, in a fixed order."""
        mine, others = self.table, other.table
        keys = sorted({*mine, *others})
        pairs = ((key, mine.get(key, UNSEEN), others.get(key, UNSEEN)) for key in keys)
        return tuple(
            Change(experience=id, stage=stage, before=before, after=after)
            for (id, stage), before, after in pairs
            if before != after
        )

    def _fold_one(self, event: Rewarded) -> None:
        reward = self.rule.of(event)
        if reward is not None:
            self._apply(event, reward)

    @abstractmethod
    def _apply(self, event: Rewarded, reward: float) -> None:
        """Take one event in, with its reward as the rule has it."""


class Values(Learner):
    """The paper's rule; also MemRL's, with its own step size and without a scale.

    Args:
        alpha: Constant step size.
        sigma_floor: Smallest standard deviation by which a reward is divided.
        credit: `evidence` (ours) makes alpha smaller for whoever did not contribute.
        rule: The reward; the paper's by default.
    """

    def __init__(
        self,
        alpha: float,
        sigma_floor: float,
        credit: Credit = "equal",
        rule: RewardRule = PAPER,
    ) -> None:
        super().__init__(rule)
        self.alpha = alpha
        self.credit = credit
        self.normaliser = Normaliser(sigma_floor, warm_up=rule.warm_up, clip=rule.clip)
        self._table: dict[tuple[str, Stage], Value] = {}

    def of(
        self, experience: str, stage: Stage, family: str | None = None, prior: float = 0.0
    ) -> Value:
        """One scalar, whatever the task at hand."""
        return self._table.get((experience, stage), UNSEEN)

    @property
    def table(self) -> Mapping[tuple[str, Stage], Value]:
        """The value of everything that has earned a reward."""
        return self._table

    def judged(self, least: int) -> Iterator[str]:
        """Ids of what has so many rewards or more in a stage; some may come twice."""
        return (id for (id, _), value in self._table.items() if value.visits >= least)

    def put(self, experience: str, stage: Stage, value: Value) -> None:
        """Set a value, as a snapshot has it."""
        before = self.of(experience, stage).visits
        self._table[experience, stage] = value
        self._seasoned[stage] += before < SEASONED <= value.visits

    def _apply(self, event: Rewarded, reward: float) -> None:
        """Q <- Q + alpha (r - Q) for everything shown, r standardised where its rule says so.

        The normaliser takes every such reward, also of steps in which nothing was shown.
        """
        if event.stage in self.rule.standardised:
            reward = self.normaliser.standardise(reward)
        for id in event.shown:
            old = self.of(id, event.stage)
            share = event.weight(id) if self.credit == "evidence" else 1.0
            q = old.q + self.alpha * share * (reward - old.q)
            self.put(id, event.stage, Value(q=q, visits=old.visits + 1))
