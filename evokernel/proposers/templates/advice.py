"""Owns what shown experiences say to the templates: plans to start from, techniques to try."""

import math
from collections.abc import Sequence

from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience
from evokernel.memory.retraction import CLAIMS
from evokernel.proposers.templates.choices import Plan, Space, read_plan

_PRESENT = 4.0
"""Weight of the first experience; more than all else that speaks for a technique (ours)."""

_NEXT = 0.75
"""Weight of each experience relative to the one before it: memory shows the best first (ours)."""


class Hint(Frozen):
    """What one experience says about one technique."""

    technique: str
    weight: float
    """Positive: it helped. Negative: it failed or slowed down."""
    experience: str
    """Id of the experience."""


class Model(Frozen):
    """A proven plan of a similar kernel, of the same kind of template or of another."""

    plan: Plan
    experience: str
    """Id of the experience."""


class Advice(Frozen):
    """What all shown experiences say together."""

    hints: tuple[Hint, ...] = ()
    models: tuple[Model, ...] = ()
    """Best first."""

    @classmethod
    def of(cls, shown: Sequence[Experience], space: Space) -> "Advice":
        """Read the experiences, best first, for kernels of one program."""
        hints: list[Hint] = []
        models: list[Model] = []
        for rank, experience in enumerate(shown):
            plan = read_plan(experience.payload.get("source", ""))
            hints += _hints(experience, plan, space, _PRESENT * _NEXT**rank)
            proven = experience.kind in CLAIMS
            if plan and proven and experience.outcome == "success":
                models.append(Model(plan=plan, experience=experience.id))
        return cls(hints=tuple(hints), models=_in_order(models, shown, space))

    def weight(self, technique: str) -> float:
        """How much speaks for a technique; negative when more speaks against it."""
        return sum(hint.weight for hint in self.hints if hint.technique == technique)

    def sources(self, technique: str, favourable: bool = True) -> tuple[str, ...]:
        """Ids of the experiences that speak for a technique, or against it."""
        ids = [
            h.experience
            for h in self.hints
            if h.technique == technique and (h.weight > 0) == favourable
        ]
        return tuple(dict.fromkeys(ids))


def _in_order(
    models: Sequence[Model], shown: Sequence[Experience], space: Space
) -> tuple[Model, ...]:
    """Models of the same kind of template first, then task by task as shown, the fastest first.

    What memory shows first of a task may be any of its kernels: values of a draft tell whether it
    passed, not how fast it was. A plan of another kind is a model for the choices that both have.
    """
    known = {experience.id: experience for experience in shown}
    order = list(dict.fromkeys(known[model.experience].fingerprint for model in models))

    def place(model: Model) -> tuple[bool, int, float]:
        experience = known[model.experience]
        is_other = model.plan.family != space.family
        ms = experience.measurement.median_ms
        return is_other, order.index(experience.fingerprint), ms or math.inf

    return tuple(sorted(models, key=place))


def _hints(experience: Experience, plan: Plan | None, space: Space, weight: float) -> list[Hint]:
    """An experience of several techniques cannot tell which mattered: they share its weight."""
    names = experience.techniques
    hints = []
    for name in names:
        share = weight / len(names)
        if experience.outcome == "failure":
            share = -share
        if plan is not None and experience.kind in {"edit", "fix"} and _gives_up(plan, name, space):
            share = -share
        hints.append(Hint(technique=name, weight=share, experience=experience.id))
    return hints


def _gives_up(plan: Plan, technique: str, space: Space) -> bool:
    """Whether a plan decided against a technique: a change away from it is about it too."""
    about = [c for c in space.choices if any(o.technique == technique for o in c.options)]
    values = [(c, plan.choices[c.name]) for c in about if c.name in plan.choices]
    return bool(values) and all(value == choice.values[0] for choice, value in values)
