"""Owns which plan comes next: drafts, single and double moves from a plan, recombinations."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from evokernel.attempt import Attempt
from evokernel.frozen import Frozen
from evokernel.proposers.techniques import catalogue
from evokernel.proposers.templates.advice import Advice
from evokernel.proposers.templates.choices import Move, Plan, Space, Value, read_plan

Promise = Callable[[str], float]

_BOUND = 0.75
"""What a technique gains that helps against the bottleneck which the profile names (ours)."""
_SEEN_SLOWER = 2.0
"""What a move loses whose child was slower or failed (ours)."""
_SEEN_FASTER = 1.0
"""What it gains if the child was faster (ours)."""
_TUNING = 0.5
"""Share of a technique's promise for another value of what is applied already (ours)."""
_NOISE = 0.4
"""Spread of the seeded noise that lets equal moves take turns (ours)."""
_SECOND = 1.5
"""A second move goes along with the first if its score reaches this (ours)."""
_PAIR = 0.25
"""Chance that it goes along anyway (ours)."""
_RANDOM_DRAFTS = 24


class Step(Frozen):
    """A plan to propose, and why."""

    plan: Plan
    changed: tuple[str, ...] = ()
    """Techniques that it applies, tunes or gives up."""
    used: tuple[str, ...] = ()
    """Ids of experiences that led to it."""
    parents: int = 1
    """How many of the parents at hand it was made from."""
    reason: str
    """In a sentence or two."""


class Scored(NamedTuple):
    """A move and what speaks for it."""

    score: float
    move: Move


class Search:
    """Orders plans for one step; the same arguments give the same order."""

    def __init__(self, space: Space, promise: Promise, advice: Advice, dice: random.Random) -> None:
        self._space = space
        self._promise = promise
        self._advice = advice
        self._dice = dice

    # Drafts.

    def drafts(self) -> Iterator[Step]:
        """First plans: what memory proved and what is near, the plain way, vectors, then any."""
        yield from self._proven()
        for start, words in ((self._space.plain(), "the plain way"), (self._vector(), "vectors")):
            plan = self._advised(start)
            used = self._hinted(plan, start)
            also = f", with what {_listed(used)} found" if used else " first"
            yield Step(
                plan=plan,
                used=used,
                reason=f"{words}{also}",
                changed=self._space.techniques(plan) if used else (),
            )
            yield Step(plan=start, reason=f"{words} first")
        for _ in range(_RANDOM_DRAFTS):
            wish = {c.name: self._dice.choice(c.values) for c in self._space.choices}
            yield Step(plan=self._space.settle(wish), reason="another start, drawn at random")

    def _proven(self) -> Iterator[Step]:
        """The plans of models as advised, as they are, and one change away from the first."""
        settled = [(m.experience, self._space.settle(m.plan.choices)) for m in self._advice.models]
        models = [(experience, plan) for experience, plan in settled if plan != self._space.plain()]
        for experience, plan in models:
            yield self._from(experience, self._advised(plan))
        for experience, plan in models:
            yield self._from(experience, plan)
        for experience, plan in models[:1]:
            for step in self.moves(plan, "unknown", (), None):
                reason = f"starts from the plan of `{experience}`; {step.reason}"
                used = (experience, *step.used)
                yield step.model_copy(update={"used": used, "reason": reason})

    def _from(self, experience: str, plan: Plan) -> Step:
        return Step(
            plan=plan,
            changed=self._space.techniques(plan),
            used=(experience, *self._hinted(plan, self._space.plain())),
            reason=f"starts from the plan of `{experience}`",
        )

    def repairs(self, failed: Plan, reason: str) -> Iterator[Step]:
        """Away from a plan that failed: each technique taken back, then all of them."""
        back = [move for move in self._space.moves(failed) if move.option.technique is None]
        back.sort(key=lambda move: (self._advice.weight(move.technique), move.choice.name))
        for move in back:
            yield Step(
                plan=move.on(self._space, failed),
                changed=(move.technique,),
                used=self._advice.sources(move.technique, favourable=False),
                reason=f"takes back `{move.technique}`, because {reason}",
            )
        yield from self.drafts()

    def _vector(self) -> Plan:
        return self._space.settle({"form": "vector"})

    def _advised(self, plan: Plan) -> Plan:
        """The plan with every technique that memory speaks for, and without those it warns of."""
        for _ in range(2):  # the first round may give choices a meaning that the second one makes
            for move in list(self._space.moves(plan)):
                weight = self._advice.weight(move.technique)
                is_plain = move.choice.technique(plan.choices.get(move.choice.name, "")) is None
                wanted = weight > 0 and move.applies and is_plain
                unwanted = weight < 0 and not move.applies and not is_plain
                if (wanted or unwanted) and move.choice.name in plan.choices:
                    plan = move.on(self._space, plan)
        return plan

    def _hinted(self, plan: Plan, start: Plan) -> tuple[str, ...]:
        """Experiences whose technique a plan has and its start has not."""
        new = [t for t in self._space.techniques(plan) if t not in self._space.techniques(start)]
        return tuple(dict.fromkeys(s for t in new for s in self._advice.sources(t)))

    # Refinements.

    def moves(
        self, plan: Plan, bound_by: str, children: Sequence[Attempt], parent_ms: float | None
    ) -> Iterator[Step]:
        """Plans that differ from a plan in one choice or two, the most promising first."""
        history = _history(self._space, plan, children, parent_ms)
        scored = [
            Scored(self._score(move, bound_by, history), move) for move in self._space.moves(plan)
        ]
        scored.sort(key=lambda item: -item.score)
        together = self._dice.random() < _PAIR
        for first, second in zip(scored, scored[1:] + scored[:1], strict=True):
            if first.move.choice != second.move.choice and (together or second.score >= _SECOND):
                yield self._double(plan, first.move, second.move, bound_by)
            yield self._single(plan, first.move, bound_by)
            together = False
        pairs = list(combinations(scored, 2))
        pairs.sort(key=lambda pair: -(pair[0].score + pair[1].score))
        for first, second in pairs:
            if first.move.choice != second.move.choice:
                yield self._double(plan, first.move, second.move, bound_by)

    def recombinations(self, first: Plan, second: Plan) -> Iterator[Step]:
        """Plans that have each choice from one of two plans."""
        for _ in range(_RANDOM_DRAFTS):
            wish: dict[str, Value] = {}
            for choice in self._space.choices:
                donor, other = (first, second) if self._dice.random() < 0.5 else (second, first)
                value = donor.choices.get(choice.name, other.choices.get(choice.name))
                if value is not None:
                    wish[choice.name] = value
            plan = self._space.settle(wish)
            if plan not in (first, second):
                yield Step(
                    plan=plan,
                    changed=self._changed(first, plan),
                    parents=2,
                    reason="recombines two start points",
                )

    def _score(self, move: Move, bound_by: str, history: dict[tuple[str, Value], float]) -> float:
        score = self._dice.gauss(0.0, _NOISE) + _remembered(move, history)
        before, after = move.choice.technique(move.before), move.option.technique
        if before == after:
            return score + _TUNING * self._worth(after, bound_by)
        return score + self._worth(after, bound_by) - self._worth(before, bound_by)

    def _worth(self, technique: str | None, bound_by: str) -> float:
        """What speaks for a technique: its promise, the bottleneck, memory."""
        if technique is None:
            return 0.0
        known = catalogue().get(technique)
        helps = known is not None and bound_by in known.bottlenecks
        expected = self._promise(technique) + (_BOUND if helps else 0.0)
        return expected + self._advice.weight(technique)

    def _single(self, plan: Plan, move: Move, bound_by: str) -> Step:
        return Step(
            plan=move.on(self._space, plan),
            changed=(move.technique,),
            used=self._reasons(move),
            reason=self._because(move, bound_by),
        )

    def _double(self, plan: Plan, first: Move, second: Move, bound_by: str) -> Step:
        both = second.on(self._space, first.on(self._space, plan))
        return Step(
            plan=both,
            changed=tuple(dict.fromkeys((first.technique, second.technique))),
            used=tuple(dict.fromkeys((*self._reasons(first), *self._reasons(second)))),
            reason=f"{self._because(first, bound_by)}; {self._because(second, bound_by)}",
        )

    def _reasons(self, move: Move) -> tuple[str, ...]:
        return self._advice.sources(move.technique, favourable=move.applies)

    def _because(self, move: Move, bound_by: str) -> str:
        verb = "applies" if move.applies else "gives up"
        text = (
            f"{verb} `{move.technique}` ({move.choice.name}: {move.before} -> {move.option.value})"
        )
        if sources := self._reasons(move):
            return f"{text}, as {_listed(sources)} suggests"
        known = catalogue().get(move.technique)
        if move.applies and known and bound_by in known.bottlenecks and bound_by != "unknown":
            return f"{text}, because the parent is bound by {bound_by}"
        return text

    def _changed(self, plan: Plan, other: Plan) -> tuple[str, ...]:
        names = set(self._space.differing(plan, other))
        found = [
            c.technique(other.choices[c.name]) or c.technique(plan.choices[c.name]) or c.name
            for c in self._space.choices
            if c.name in names
        ]
        return tuple(dict.fromkeys(found))


def _history(
    space: Space, plan: Plan, children: Sequence[Attempt], parent_ms: float | None
) -> dict[tuple[str, Value], float]:
    """What a plan's children say about moving to a value."""
    said: dict[tuple[str, Value], float] = {}
    for child in children:
        other = read_plan(child.proposal.candidate.source)
        if other is None or not child.evaluation.status.is_charged:
            continue
        faster = (
            child.median_ms is not None and parent_ms is not None and child.median_ms < parent_ms
        )
        names = space.differing(plan, other)
        for name in names:
            weight = _SEEN_FASTER if faster else -_SEEN_SLOWER
            said[name, other.choices[name]] = weight / len(names)
    return said


def _remembered(move: Move, history: dict[tuple[str, Value], float]) -> float:
    """What the children say about a move; what they say about another value counts half."""
    same = history.get((move.choice.name, move.option.value))
    if same is not None:
        return same
    others = [w for (name, _), w in history.items() if name == move.choice.name]
    return 0.5 * sum(others) / len(others) if others and move.applies else 0.0


def _listed(ids: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in ids)
