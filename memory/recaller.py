"""Owns `Recaller`: one retrieval, from the query to its record in the journal and back."""

import json
from collections.abc import Sequence
from typing import Any

from evokernel.attempt import Stage
from evokernel.config import MemoryConfig
from evokernel.memory.experience import Entry
from evokernel.memory.explanation import Asked
from evokernel.memory.journal import Columns, Journal
from evokernel.memory.policies import PoolItem, policy_of
from evokernel.memory.retrieval import GATE, Choice, Query, Recalled, Retrieval, dice, fill
from evokernel.memory.shelf import Shelf
from evokernel.memory.values import Values


class Recaller:
    """Chooses by the configured policy; the caller finds the neighbours and fetches the texts."""

    def __init__(self, config: MemoryConfig, journal: Journal, shelf: Shelf) -> None:
        self._config = config
        self._policy = policy_of(config)
        self._journal = journal
        self._shelf = shelf

    def pool_size(self, stage: Stage) -> int:
        """K = lambda N."""
        return self._config.pool_factor * self._slots(stage)

    def choose(self, query: Query, near: Sequence[tuple[str, float]], values: Values) -> Columns:
        """Choose among the neighbours (ids with similarities, best first) and log it.

        Returns:
            What was logged, by column: another process's choice where it was first.
        """
        pool = tuple(
            self._item(id, similarity, query.stage, values)
            for id, similarity in near
            if similarity >= GATE
        )
        contents = [self._shelf.cards[item.id].content for item in pool]
        rng = dice(query.seed, query.step, "recall")
        slots = self._slots(query.stage)
        choices, pool = fill(pool, contents, self._policy, slots, rng)
        columns: Columns = {
            "step": query.step,
            "run": query.run,
            "task": query.task,
            "stage": query.stage.value,
            "backend": query.backend,
            "policy": self._policy.name,
            "parameters": json.dumps(self._parameters(query.stage)),
            "bank_version": self._shelf.watermark,
            "seed": query.seed,
            "pool": json.dumps([item.model_dump() for item in pool]),
            "chosen": json.dumps([_plain(choice) for choice in choices]),
        }
        asked = Asked(
            family=query.family,
            fingerprint=query.fingerprint,
            bottleneck=query.bottleneck,
            techniques=query.techniques,
            exclude=query.exclude,
            holdout=tuple(self._config.holdout),
        )
        is_new = self._journal.add_retrieval(columns, asked.model_dump_json())
        return columns if is_new else self._journal.retrieval(query.step) or columns

    def _slots(self, stage: Stage) -> int:
        config = self._config
        return config.shown_draft if stage is Stage.DRAFT else config.shown_refine

    def _parameters(self, stage: Stage) -> dict[str, float]:
        """Every constant that had a say in the choice or in the values."""
        return {
            "slots": self._slots(stage),
            "pool_factor": self._config.pool_factor,
            "gate": GATE,
            "alpha": self._config.alpha,
            "sigma_floor": self._config.sigma_floor,
            **({"evidence": 1.0} if self._config.credit == "evidence" else {}),
            **self._policy.parameters,
        }

    def _item(self, id: str, similarity: float, stage: Stage, values: Values) -> PoolItem:
        value, kind = values.of(id, stage), self._shelf.cards[id].kind
        item = PoolItem(
            id=id,
            kind=kind,
            similarity=similarity,
            q=value.q,
            n=value.visits,
            is_pinned=id in self._shelf.pinned,
        )
        return item.model_copy(update={"score": self._policy.score(item)})


def chosen_ids(row: Columns) -> tuple[str, ...]:
    """Ids of what a recorded retrieval showed."""
    return tuple(choice["id"] for choice in json.loads(row["chosen"]))


def read_back(row: Columns, entries: Sequence[Entry]) -> Retrieval:
    """A recorded retrieval, with the experiences of `chosen_ids`."""
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
            Recalled(experience=entry.experience, **_without_id(choice)) for entry, choice in pairs
        ),
    )


def _plain(choice: Choice) -> dict[str, Any]:
    item = choice.item
    return {
        "id": item.id,
        "similarity": item.similarity,
        "q": item.q,
        "n": item.n,
        "propensity": choice.propensity,
        "reason": choice.reason,
    }


def _without_id(choice: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if name != "id"}
