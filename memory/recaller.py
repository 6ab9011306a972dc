"""Owns `Recaller`: one retrieval, from the query to its record in the journal and back."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evokernel.attempt import Stage
from evokernel.config import MemoryConfig
from evokernel.memory.choice import Choice, Occasion, PoolItem, Selection
from evokernel.memory.experience import Entry
from evokernel.memory.explanation import Asked
from evokernel.memory.journal import Columns, Journal
from evokernel.memory.policies import policy_of
from evokernel.memory.promises import Place, Promises
from evokernel.memory.retrieval import GATE, Decision, Query, Recalled, Retrieval, dice
from evokernel.memory.shelf import Shelf
from evokernel.memory.twins import Twins
from evokernel.memory.values import Learner


class Recaller:
    """Chooses by the configured policy; the caller finds the neighbours and fetches the texts."""

    def __init__(
        self, config: MemoryConfig, journal: Journal, shelf: Shelf, promises: Promises
    ) -> None:
        self._config = config
        self._promises = promises
        self._policy = policy_of(config)
        self._journal = journal
        self._shelf = shelf
        self._twins = Twins(journal, shelf)

    def pool_size(self, stage: Stage, values: Learner) -> int:
        """K = lambda N; with some policies lambda grows with the evidence."""
        factor = self._policy.pool_factor(self._config.pool_factor, values.seasoned(stage))
        return math.ceil(factor * self._slots(stage))

    def choose(self, query: Query, near: Sequence[tuple[str, float]], values: Learner) -> Columns:
        """Choose among the neighbours (ids with similarities, best first) and log it.

        Returns:
            What was logged, by column: another process's choice where it was first.
        """
        pool = self._pool(query, [pair for pair in near if pair[1] >= GATE], values)
        rng = dice(query.seed, query.step, "recall")
        occasion = Occasion(query.stage, self._slots(query.stage), rng, query.spent)
        selection = self._policy.choose(pool, occasion)
        columns: Columns = {
            "step": query.step,
            "run": query.run,
            "task": query.task,
            "stage": query.stage.value,
            "backend": query.backend,
            "policy": self._policy.name,
            "parameters": json.dumps(self._parameters(query.stage, values)),
            "bank_version": self._shelf.watermark,
            "seed": query.seed,
            "pool": json.dumps([item.model_dump() for item in selection.pool]),
            "chosen": json.dumps([_plain(choice) for choice in selection.choices]),
        }
        is_new = self._journal.add_retrieval(
            columns, self._asked(query).model_dump_json(), _decision(selection).model_dump_json()
        )
        return columns if is_new else self._journal.retrieval(query.step) or columns

    def _asked(self, query: Query) -> Asked:
        return Asked(
            family=query.family,
            fingerprint=query.fingerprint,
            bottleneck=query.bottleneck,
            techniques=query.techniques,
            exclude=query.exclude,
            holdout=tuple(self._config.holdout),
            environment=query.environment,
            hides_stale=self._config.stale == "hide",
        )

    def _slots(self, stage: Stage) -> int:
        config = self._config
        return config.shown_draft if stage is Stage.DRAFT else config.shown_refine

    def _parameters(self, stage: Stage, values: Learner) -> dict[str, float]:
        """Every constant that had a say in the choice or in the values."""
        return {
            "slots": self._slots(stage),
            "pool_factor": self._config.pool_factor,
            "pool_size": self.pool_size(stage, values),
            "gate": GATE,
            "alpha": self._config.alpha,
            "sigma_floor": self._config.sigma_floor,
            **({"evidence": 1.0} if self._config.credit == "evidence" else {}),
            **self._policy.parameters,
        }

    def _pool(
        self, query: Query, near: Sequence[tuple[str, float]], values: Learner
    ) -> tuple[PoolItem, ...]:
        keys = self._twins.keys([id for id, _ in near])
        return tuple(self._items(query, near, values, keys))

    def _items(
        self,
        query: Query,
        near: Sequence[tuple[str, float]],
        values: Learner,
        keys: Mapping[str, dict[str, str]],
    ) -> Iterator[PoolItem]:
        for id, similarity in near:
            prior = self._prior(id, query)
            value = values.of(id, query.stage, query.family, prior)
            yield PoolItem(
                id=id,
                kind=self._shelf.cards[id].kind,
                similarity=similarity,
                q=value.q,
                n=value.visits,
                evidence=value.evidence,
                spread=value.spread,
                prior=prior,
                is_pinned=id in self._shelf.pinned,
                keys=keys[id],
            )

    def _prior(self, id: str, query: Query) -> float:
        """What technique statistics say of an experience where the query stands."""
        place = Place(query.backend, query.family, query.bottleneck)
        techniques = self._shelf.traits(id).techniques
        return self._promises.of(self._shelf.cards[id], techniques, query.stage, place)


def chosen_ids(row: Columns) -> tuple[str, ...]:
    """Ids of what a recorded retrieval showed."""
    return tuple(choice["id"] for choice in json.loads(row["chosen"]))


def read_back(row: Columns, entries: Sequence[Entry], decided: str | None) -> Retrieval:
    """A recorded retrieval, with the experiences of `chosen_ids` and the JSON of its decision."""
    pairs = zip(entries, json.loads(row["chosen"]), strict=True)
    return Retrieval(
        step=row["step"],
        stage=Stage(row["stage"]),
        policy=row["policy"],
        parameters=json.loads(row["parameters"]),
        bank_version=row["bank_version"],
        seed=row["seed"],
        pool=tuple(PoolItem(**item) for item in json.loads(row["pool"])),
        chosen=tuple(
            Recalled(experience=entry.experience, **_recalled(choice)) for entry, choice in pairs
        ),
        decision=Decision.model_validate_json(decided) if decided else Decision(),
    )


def _decision(selection: Selection) -> Decision:
    return Decision(
        arm=selection.arm,
        arm_chance=selection.arm_chance,
        shown_chance=selection.shown_chance,
        withheld={choice.item.id: choice.propensity for choice in selection.withheld},
        propensity=selection.propensity,
    )


def _plain(choice: Choice) -> dict[str, Any]:
    item = choice.item
    plain = {
        "id": item.id,
        "similarity": item.similarity,
        "q": item.q,
        "n": item.n,
        "propensity": choice.propensity,
        "reason": choice.reason,
    }
    return plain | ({"prior": item.prior} if item.prior else {})


def _recalled(choice: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if name not in {"id", "prior"}}
