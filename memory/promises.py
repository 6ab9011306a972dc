"""Owns `Promises`: what techniques have been worth where, as the prior of what carries them.

Few experiences are shown often, but every attempt says something of its techniques; stores at the
level of techniques learn within tens of steps (KernelBlaster, arXiv 2602.14293; KernelBand,
arXiv 2511.18868), values of single experiences do not. Shrinkage and scale are ours.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from evokernel.attempt import Stage
from evokernel.memory.card import Card
from evokernel.memory.joint import SHRINKAGE
from evokernel.memory.reward_rules import RESOLUTION


class Place(NamedTuple):
    """Where a technique was applied, or is about to be."""

    backend: str
    family: str
    bottleneck: str


class _Effect(NamedTuple):
    """One thing that a technique did."""

    stage: Stage
    technique: str
    """Empty for what any technique would have done: the average."""
    place: Place
    worth: float
    weight: float


class Promises:
    """Counts what every judged candidate says of its techniques; exact when statuses change.

    Args:
        card_of: The card of a kernel by run and candidate; None where there is none.
        holdout: Fingerprints of tasks of which nothing is taken.
    """

    def __init__(
        self,
        card_of: Callable[[str, str], Card | None],
        holdout: Collection[str] = (),
    ) -> None:
        self._card_of = card_of
        self._holdout = frozenset(holdout)
        self._effects: dict[str, tuple[_Effect, ...]] = {}
        self._sums: defaultdict[tuple[object, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])

    def count(self, card: Card, gain: float | None, weight: float = 1.0) -> None:
        """Take an experience in; what was taken in of it before is replaced.

        Args:
            card: What it is.
            gain: ln(parent / child) of an edit, as measured last.
            weight: How far it counts, 0..1.
        """
        self.drop(card.id)
        if card.fingerprint not in self._holdout:
            self._effects[card.id] = effects = tuple(self._read(card, gain, weight))
            self._add(effects, 1)

    def drop(self, id: str) -> None:
        """Take an experience out: it was withdrawn, or not confirmed."""
        self._add(self._effects.pop(id, ()), -1)

    def of(self, card: Card, techniques: tuple[str, ...], stage: Stage, place: Place) -> float:
        """How much better than the average technique those of an experience went, -1..1.

        Draft: the share that passed, on the scale of -1 to 1. Refine: tanh(gain / 0.3). A failure
        warns of its techniques: what is bad there is good to know.

        Args:
            card: The experience.
            techniques: Its techniques, as people have revised them.
            stage: For which stage.
            place: The situation at hand.
        """
        if not techniques:
            return 0.0
        average = self._shrunk(stage, "", place)
        known = [self._shrunk(stage, name, place) - average for name in techniques]
        promise = sum(known) / len(known)
        return -promise if card.outcome == "failure" else promise

    def _shrunk(self, stage: Stage, technique: str, place: Place) -> float:
        """From all tasks of the backend to the family to the bottleneck, each shrunk to the last.

        The first is shrunk to the average of the backend, and that to nothing.
        """
        above = self._shrunk(stage, "", Place(place.backend, "", "")) if technique else 0.0
        for key in _keys(stage, technique, place):
            n, total = self._sums.get(key, (0.0, 0.0))
            above = (total + SHRINKAGE * above) / (n + SHRINKAGE)
        return above

    def _read(self, card: Card, gain: float | None, weight: float) -> Iterator[_Effect]:
        place = Place(card.backend, card.family, card.bottleneck)
        if card.kind in {"kernel", "lesson"}:  # every judged candidate left one of the two
            worth = 1.0 if card.kind == "kernel" else -1.0
            for name in (*card.techniques, ""):
                yield _Effect(Stage.DRAFT, name, place, worth, weight)
        parent, child = (
            self._card_of(card.run, card.parent),
            self._card_of(card.run, card.candidate),
        )
        if card.kind != "edit" or gain is None or parent is None or child is None:
            return
        place = place._replace(bottleneck=parent.bottleneck)
        worth = math.tanh(gain / RESOLUTION)
        yield _Effect(Stage.REFINE, "", place, worth, weight)
        for name in card.techniques:
            is_in, was_in = name in child.techniques, name in parent.techniques
            if is_in != was_in:  # an edit that took it out counts the other way round
                yield _Effect(Stage.REFINE, name, place, worth if is_in else -worth, weight)

    def _add(self, effects: tuple[_Effect, ...], sign: int) -> None:
        for effect in effects:
            for key in _keys(effect.stage, effect.technique, effect.place):
                sums = self._sums[key]
                sums[0] += sign * effect.weight
                sums[1] += sign * effect.weight * effect.worth


def _keys(stage: Stage, technique: str, place: Place) -> Iterator[tuple[object, ...]]:
    """From the widest to the narrowest group; an empty part of a place ends it."""
    yield stage, technique, place.backend
    if place.family:
        yield stage, technique, place.backend, place.family
        if place.bottleneck:
            yield stage, technique, place.backend, place.family, place.bottleneck
