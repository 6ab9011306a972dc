"""Owns what can be chosen in a kernel: `Choice`, `Space`, and `Plan`, which a source carries."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import ValidationError

from evokernel.frozen import Frozen

Family = Literal[
    "elementwise", "rows", "flat", "planes", "columns", "windows", "contraction", "sequence"
]
Value = str | int
Needs = dict[str, tuple[Value, ...]]

_MARK = "# evokernel-template: "
_TUNE = re.compile(r"^TUNE = (\{.*\})", re.MULTILINE)
_CONSTANT = re.compile(r"^([A-Z][A-Z_]*) = (\d+)$", re.MULTILINE)
_LINE = re.compile(rf"^{re.escape(_MARK)}(\{{.*\}})\s*$", re.MULTILINE)


class Option(Frozen):
    """One value of a choice."""

    value: Value
    technique: str | None = None
    """The technique that it applies; None for the plain way."""
    needs: Needs = {}
    """As for `Choice`, but a choice that is not made counts as plain."""


class Choice(Frozen):
    """One decision about how a kernel is written."""

    name: str
    options: tuple[Option, ...]
    """The plain one first; all of them can be used for the program at hand."""
    needs: Needs = {}
    """Other choices, and their values for which this one has a meaning."""

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value, the plain one first."""
        return tuple(option.value for option in self.options)

    def technique(self, value: Value) -> str | None:
        """The technique that a value applies."""
        return next((o.technique for o in self.options if o.value == value), None)


class Plan(Frozen):
    """How a kernel is written: a loop structure and a value per choice that has a meaning."""

    family: Family
    choices: dict[str, Value]

    @property
    def line(self) -> str:
        """The comment by which a source carries its plan."""
        return _MARK + json.dumps(self.model_dump(), sort_keys=True)


def read_plan(source: str) -> Plan | None:
    """The plan that a source was written by; None for a source that no template wrote."""
    for found in _LINE.finditer(source):
        try:
            return Plan.model_validate_json(found[1], strict=True)
        except ValidationError:
            continue
    return None


def tuned(plan: Plan, source: str) -> Plan:
    """The plan with the numbers that stand in a source: a constant `BLOCK` is the choice `block`.

    The harness writes what it found best into the constants of `TUNE`, not into the plan.
    """
    declared = _TUNE.search(source)
    names = re.findall(r"""['\"](\w+)['\"]:""", declared[1]) if declared else []
    found = {name: text for name, text in _CONSTANT.findall(source) if name in names}
    known = {name.lower().rstrip("_"): int(text) for name, text in found.items()}
    numbers = {name: known[name] for name in plan.choices if name in known}
    return Plan(family=plan.family, choices={**plan.choices, **numbers})


class Space(Frozen):
    """Every plan that one loop structure offers for one program."""

    family: Family
    choices: tuple[Choice, ...]
    """What others need stands before them."""

    def settle(self, wished: Mapping[str, Value]) -> Plan:
        """The plan nearest to a wish: what is not offered becomes plain, the idle goes."""
        chosen: dict[str, Value] = {}
        for choice in self.choices:
            if all(chosen.get(name) in values for name, values in choice.needs.items()):
                value = wished.get(choice.name, choice.values[0])
                wanted = next((o for o in choice.options if o.value == value), None)
                is_offered = wanted is not None and self._makes_sense(wanted, chosen)
                chosen[choice.name] = value if is_offered else choice.values[0]
        return Plan(family=self.family, choices=chosen)

    def _makes_sense(self, option: Option, chosen: Mapping[str, Value]) -> bool:
        if not option.needs:
            return True
        plain = {choice.name: choice.values[0] for choice in self.choices}
        return all({**plain, **chosen}[name] in values for name, values in option.needs.items())

    def plain(self) -> Plan:
        """The plan without any technique."""
        return self.settle({})

    def techniques(self, plan: Plan) -> tuple[str, ...]:
        """Techniques that a plan applies, in the order of the choices, each once."""
        named = (c.technique(plan.choices[c.name]) for c in self.choices if c.name in plan.choices)
        return tuple(dict.fromkeys(name for name in named if name))

    def moves(self, plan: Plan) -> Iterator["Move"]:
        """Every other value of every choice that has a meaning in a plan."""
        for choice in self.choices:
            for option in choice.options:
                now = plan.choices.get(choice.name)
                if now in (None, option.value):
                    continue
                if self._makes_sense(option, plan.choices):
                    yield Move(choice=choice, option=option, before=now)

    def differing(self, plan: Plan, other: Plan) -> tuple[str, ...]:
        """Choices with different values; one that lost its meaning does not count as different."""
        return tuple(
            c.name
            for c in self.choices
            if c.name in plan.choices
            and c.name in other.choices
            and plan.choices[c.name] != other.choices[c.name]
        )


class Move(Frozen):
    """Another value for one choice of a plan."""

    choice: Choice
    option: Option
    before: Value

    @property
    def technique(self) -> str:
        """What it is about: the technique that it applies or tunes, else the one it gives up."""
        return self.option.technique or self.choice.technique(self.before) or self.choice.name

    @property
    def applies(self) -> bool:
        """Whether it brings a technique in rather than giving one up."""
        return self.option.technique is not None

    def on(self, space: Space, plan: Plan) -> Plan:
        """The plan after this move."""
        return space.settle({**plan.choices, self.choice.name: self.option.value})
