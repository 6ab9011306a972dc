"""Owns `Joint`: values by joint credit, which tell an experience from its task and its company.

Equal credit (EvoKernel, MemRL) converges to the effect of an experience plus the difficulty of the
tasks on which it was shown plus the effects of what was shown beside it; more data removes neither.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evokernel.attempt import Stage
from evokernel.memory.reward_rules import PARENT, RewardRule
from evokernel.memory.rewards import Normaliser
from evokernel.memory.values import SEASONED, Learner, Rewarded, Value

Vector = NDArray[np.float64]

PRIOR_VISITS = 6.0
"""n0: the prior of an item counts as so many rewards. sigma^2 / tau^2 by empirical Bayes; 6 was not
searched (ours)."""
SHRINKAGE = 5.0
"""kappa: rewards that a task needs to outweigh its family, and a family to outweigh all (ours)."""
RIDGE = 5.0
"""Of the group weights: each needs so many showings to count half (ours)."""
PROMISE = "promise"
"""The feature whose weight says how far technique statistics can be believed; 1 at first."""
LEAPS = 2
"""Improvements of a run after which its progress counts as late (ours)."""


class Traits(NamedTuple):
    """By what an experience is grouped with others."""

    kind: str
    outcome: str
    family: str
    techniques: tuple[str, ...]


class _Row:
    """Sums over the events of one task that have the same weight."""

    def __init__(self, task: str, family: str, weight: float, width: int) -> None:
        self.task, self.family, self.weight = task, family, weight
        self.features: Vector = np.zeros(width)
        """Sum of weight times features."""
        self.products: Vector = np.zeros(width)
        """The same times the reward."""


class _Item:
    """Sums over the events in which one experience was shown."""

    def __init__(self) -> None:
        self.visits = 0
        self.weight = 0.0
        self.rows: dict[int, list[float]] = {}
        """By row: sum of k, and of k times the reward, where k is the share of the surprise."""
        self.features: defaultdict[int, float] = defaultdict(float)
        """Sum of k times features."""


class Sample(NamedTuple):
    """One event as it was taken in, so that its reward can be changed afterwards."""

    row: int
    weight: float
    places: tuple[int, ...]
    amounts: tuple[float, ...]
    shares: dict[str, float]
    """k by experience."""


class JointStage:
    """The joint fit of one stage, in sums that every event adds to."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {PROMISE: 0}
        self.items: dict[str, _Item] = {}
        self._gram: Vector = np.zeros((16, 16))
        self._rows: list[_Row] = []
        self._row_of: dict[tuple[str, str, float], int] = {}
        self._tasks: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._families: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._all = [0.0, 0.0]
        self._weights: Vector | None = None
        self._baselines: list[tuple[float, float]] = []

    def take(
        self, event: Rewarded, reward: float, features: Mapping[str, float], weight: float
    ) -> Sample:
        """Add one event.

        Args:
            event: What was shown for which task.
            reward: On the scale of values.
            features: Of everything shown together, times its share of the credit.
            weight: How far the event counts, 0..1.
        """
        known = {self._place(name): amount for name, amount in features.items() if amount}
        places, amounts = tuple(known), tuple(known.values())
        row = self._row(event.task, event.family, weight)
        grid = np.asarray(places, dtype=np.intp)
        self._gram[np.ix_(grid, grid)] += weight * np.multiply.outer(amounts, amounts)
        self._rows[row].features[grid] += weight * np.asarray(amounts)
        credits = {id: event.weight(id) for id in event.shown}
        company = max(1.0, sum(credits.values()))
        own = min(1.0, 2 / company)
        shares = {id: own * weight * credit for id, credit in credits.items()}
        for id, credit in credits.items():
            item = self.items.setdefault(id, _Item())
            item.visits += 1
            item.weight += weight * credit
            item.rows.setdefault(row, [0.0, 0.0])[0] += shares[id]
            for place, amount in known.items():
                item.features[place] += shares[id] * amount
        for sums in self._sums(row):
            sums[0] += weight
        sample = Sample(row, weight, places, amounts, shares)
        self.shift(sample, reward)
        return sample

    def shift(self, sample: Sample, change: float) -> None:
        """Add to the reward of an event that is in."""
        for sums in self._sums(sample.row):
            sums[1] += sample.weight * change
        grid = np.asarray(sample.places, dtype=np.intp)
        products = self._rows[sample.row].products
        products[grid] += sample.weight * change * np.asarray(sample.amounts)
        for id, share in sample.shares.items():
            self.items[id].rows[sample.row][1] += share * change
        self._weights = None

    def effect(self, features: Mapping[str, float]) -> float:
        """What a group is worth, given its features."""
        weights = self._solved()
        known = (
            (self.places[name], amount) for name, amount in features.items() if name in self.places
        )
        return float(sum(weights[place] * amount for place, amount in known))

    def residual(self, item: _Item) -> float:
        """Sum of the surprises of one experience, by its share: k (advantage - group effects)."""
        weights = self._solved()
        total = 0.0
        for row, (k, k_reward) in item.rows.items():
            scale, offset = self._baselines[row]
            total += scale * k_reward - offset * k
        return total - sum(amount * float(weights[p]) for p, amount in item.features.items())

    def _solved(self) -> Vector:
        """The ridge solution (G + kappa I) w = h + kappa w0, with w0 = 1 for `PROMISE` only."""
        if self._weights is None:
            self._baselines = [self._baseline(row) for row in self._rows]
            target = np.zeros(len(self._gram))
            for row, (scale, offset) in zip(self._rows, self._baselines, strict=True):
                target += scale * row.products - offset * row.features
            target[0] += RIDGE
            whole = self._gram + RIDGE * np.eye(len(self._gram))
            self._weights = np.asarray(np.linalg.solve(whole, target), dtype=np.float64)
        return self._weights

    def _baseline(self, row: _Row) -> tuple[float, float]:
        """Advantage = scale * reward - offset for each event of a row.

        The baseline of an event leaves the event itself out: (S - w r + kappa b) / (n - w + kappa)
        with n, S the sums of its task and b the mean of its family, shrunk alike to that of all.
        """
        all_n, all_sum = self._all
        of_all = all_sum / all_n if all_n else 0.0
        n, total = self._families[row.family]
        of_family = (total + SHRINKAGE * of_all) / (n + SHRINKAGE)
        n, total = self._tasks[row.task, row.family]
        rest = n - row.weight + SHRINKAGE
        return 1 + row.weight / rest, (total + SHRINKAGE * of_family) / rest

    def _sums(self, row: int) -> tuple[list[float], ...]:
        """Weight and weighted reward of the row's task, of its family, and of all."""
        found = self._rows[row]
        return self._tasks[found.task, found.family], self._families[found.family], self._all

    def _row(self, task: str, family: str, weight: float) -> int:
        key = task, family, weight
        if key not in self._row_of:
            self._row_of[key] = len(self._rows)
            self._rows.append(_Row(task, family, weight, len(self._gram)))
        return self._row_of[key]

    def _place(self, name: str) -> int:
        place = self.places.setdefault(name, len(self.places))
        if place == len(self._gram):  # double the room
            self._gram = np.pad(self._gram, (0, place))
            for row in self._rows:
                row.features = np.pad(row.features, (0, place))
                row.products = np.pad(row.products, (0, place))
        return place


class Joint(Learner):
    """Advantage over a shrunk baseline, group weights by ridge on bundles, shrunk item residuals.

    Source: the research notes of this project; no paper has it whole. Its parts:

    - advantage A = r - b with b shrunk from all to the family to the task, per stage, each event
      left out of its own baseline (partial pooling; empirical Bayes);
    - joint credit: A of everything shown together ~ sum of w_g over the groups of what was shown,
      ridge regression with all bundles (as the Bayesian linear bandit's additive effects). Groups:
      kind, outcome and whether the family is the task's own; one for each technique, shared among
      those of an experience; one that takes the promise of technique statistics; three nuisances
      for the progress of the run;
    - item: Q = w_g + sum of k (A - fit) / (n + n0), with k = 2 / N of the surprise for each of N
      shown together, at most all of it. Count-based steps: an early value moves fast, a late one
      slowly;
    - evidence-gated credit: an experience counts by `Reward.weights`, in k, in n and in the bundle
      (the idea is ACE's, arXiv 2510.04618: credit by what was cited);
    - stale evidence counts less, by `weigh`.

    Every constant is ours. Values do not depend on the order of draft events, nor on that of refine
    events before the scale of rewards has warmed up.

    Args:
        traits: By what an experience is grouped.
        sigma_floor: Smallest standard deviation by which a refine reward is divided.
        rule: The reward.
        weigh: How far an event counts, 0..1.
    """

    is_weighing = True

    def __init__(
        self,
        traits: Callable[[str], Traits],
        sigma_floor: float,
        rule: RewardRule = PARENT,
        weigh: Callable[[Rewarded], float] = lambda event: 1.0,
    ) -> None:
        super().__init__(rule)
        self.traits = traits
        self.weigh = weigh
        self.normaliser = Normaliser(sigma_floor, warm_up=rule.warm_up, clip=rule.clip)
        self._stages = {stage: JointStage() for stage in Stage}
        self._leaps: dict[str, int] = {}

    def of(
        self, experience: str, stage: Stage, family: str | None = None, prior: float = 0.0
    ) -> Value:
        """Group effect plus shrunk residual; the group effect alone for what was never shown.

        Args:
            experience: Its id.
            stage: For which stage.
            family: Family of the task at hand; None is the experience's own.
            prior: What its techniques promise in the situation at hand.
        """
        fit = self._stages[stage]
        traits = self.traits(experience)
        features = _features(traits, traits.family if family is None else family, prior)
        group = fit.effect(features)
        item = fit.items.get(experience)
        weight = item.weight if item else 0.0
        pooled = fit.residual(item) / (weight + PRIOR_VISITS) if item else 0.0
        return Value(
            q=group + pooled,
            visits=item.visits if item else 0,
            evidence=weight,
            spread=(weight + PRIOR_VISITS) ** -0.5,
        )

    @property
    def table(self) -> Mapping[tuple[str, Stage], Value]:
        """The value of everything that has earned a reward."""
        return {
            (id, stage): self.of(id, stage)
            for stage, fit in self._stages.items()
            for id in fit.items
        }

    def judged(self, least: int) -> Iterator[str]:
        """Ids of what has so many rewards or more in a stage; some may come twice."""
        for fit in self._stages.values():
            yield from (id for id, item in fit.items.items() if item.visits >= least)

    def _apply(self, event: Rewarded, reward: float) -> None:
        if event.stage in self.rule.standardised:
            reward = self.normaliser.standardise(reward)
        features: defaultdict[str, float] = defaultdict(float)
        for id in event.shown:
            prior = event.priors.get(id, 0.0)
            for name, amount in _features(self.traits(id), event.family, prior).items():
                features[name] += event.weight(id) * amount
        if event.stage is Stage.REFINE:
            features[f"progress {self._progress(event)}"] = 1.0
        fit = self._stages[event.stage]
        before = {id: fit.items[id].visits for id in event.shown if id in fit.items}
        self._took(event.stage, fit.take(event, reward, features, self.weigh(event)), reward)
        for id in event.shown:
            self._seasoned[event.stage] += before.get(id, 0) == SEASONED - 1

    def _took(self, stage: Stage, sample: Sample, reward: float) -> None:
        """What else is done with an event that was taken in."""

    def _progress(self, event: Rewarded) -> int:
        """How often the run had been made faster before this step, up to `LEAPS`."""
        leaps = self._leaps.get(event.run, 0)
        reward = event.reward
        if reward and reward.latency_ms and reward.best_ms and reward.latency_ms < reward.best_ms:
            self._leaps[event.run] = leaps + 1
        return min(leaps, LEAPS)


def _features(traits: Traits, family: str, prior: float) -> dict[str, float]:
    """The groups of one experience before a task of `family`, with the share of each."""
    where = "same" if traits.family == family else "other"
    shares = {f"technique {name}": 1 / len(traits.techniques) for name in traits.techniques}
    return {f"{traits.kind} {traits.outcome} {where}": 1.0, PROMISE: prior, **shares}
