"""Owns what a candidate declares to be tuned: `TUNE`, its values, and the sources they make."""

import ast
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

from evokernel.evaluation import Interval, Status
from evokernel.frozen import Frozen
from evokernel.task.autotune import opened
from evokernel.task.constants import assignments, with_constants

Value = bool | int | float | str
"""What a parameter may be; it is written into the source as Python writes it."""
Values = dict[str, Value]
"""One value for each parameter, by name."""

NAME = "TUNE"
MOST_NAMES, MOST_VALUES = 12, 64
"""Parameters and values that a declaration may have (ours): more says that nobody has thought."""


class Space(Frozen):
    """The parameters of one candidate's source, and the values to try for each."""

    source: str
    """As it was proposed."""
    parameters: dict[str, tuple[Value, ...]]
    """Values by name; the first is the one that stands in the source."""
    notes: tuple[str, ...] = ()
    """What of the declaration cannot be used, and why."""

    @classmethod
    def declared(cls, source: str) -> Self | None:
        """Read `TUNE` from the text, without running anything; None where there is none.

        Parameters that cannot be used are left out and noted. Configurations of `@triton.autotune`
        are a parameter too, where `TUNE` is not declared; `source` then says so (`task.autotune`).
        """
        source = opened(source)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None  # the compile step says so
        known = assignments(tree)
        if NAME not in known:
            return None
        parameters: dict[str, tuple[Value, ...]] = {}
        notes: list[str] = []
        for name, values in _literal(known[NAME], notes).items():
            if found := _usable(name, values, known, notes):
                parameters[name] = found
        return cls(source=source, parameters=parameters, notes=tuple(notes))

    @property
    def first(self) -> Values:
        """The values that stand in the source."""
        return {name: values[0] for name, values in self.parameters.items()}

    @property
    def size(self) -> int:
        """How many combinations of values there are."""
        return math.prod(len(values) for values in self.parameters.values())

    @property
    def is_open(self) -> bool:
        """Whether there is a choice."""
        return self.size > 1

    def near(self, centre: Values) -> Iterator[Values]:
        """All combinations, those that differ from `centre` in the fewest parameters first."""
        for count in range(len(self.parameters) + 1):
            for names in itertools.combinations(self.parameters, count):
                others = [[v for v in self.parameters[n] if v != centre[n]] for n in names]
                for values in itertools.product(*others):
                    yield {**centre, **dict(zip(names, values, strict=True))}

    def frozen(self, values: Values) -> str:
        """The source with these values in place: a plain one, in which nothing is left to tune.

        Every line keeps its number, so that messages point to the text that its author knows.
        """
        left = {name: [value] for name, value in values.items()}
        tree = ast.parse(self.source)
        return with_constants(self.source, tree, {**values, NAME: left}, "the candidate")


class Try(Frozen):
    """One combination of values, judged."""

    values: Values
    candidate: str
    """Content hash of the source with these values in place."""
    status: Status
    """`passed`: it is right and was timed, unless nothing was there to compare it with."""
    reason: str = ""
    """Why it did not pass."""
    against: str | None = None
    """Hash of the best one until then, with which it was timed in alternation."""
    ratio: Interval | None = None
    """The time of `against` over its own; above 1 is faster. None where it was not timed."""
    is_best: bool = False
    """It replaced `against`: its interval lies above 1, or it was the first that is right."""
    seconds: float = 0.0
    """Wall seconds it took when it was tried."""
    is_cached: bool = False
    """The answer of an earlier search: nothing was built, run or measured for it now."""


class Tuning(Frozen):
    """How the values in a candidate's source came to be chosen."""

    source: str
    """The candidate as it was proposed, with all values to choose from."""
    parameters: dict[str, tuple[Value, ...]]
    """What was to choose from, by name; the first is the one that stood in the source."""
    chosen: Values
    """The values now in place; those of the source where none was feasible."""
    tries: tuple[Try, ...]
    """In order; the first has the values of the source."""
    combinations: int
    """How many there are."""
    stopped: str
    """Why the search ended, in words."""
    seconds: float = 0.0
    """Wall seconds of the tries, earlier ones included."""
    notes: tuple[str, ...] = ()
    """What of the declaration could not be used."""

    @property
    def gain(self) -> float | None:
        """How many times faster than the first feasible try, by the quick timings of the search."""
        won = [t.ratio.value for t in self.tries if t.is_best and t.ratio]
        return math.prod(won) if any(t.is_best for t in self.tries) else None

    @property
    def frozen(self) -> str:
        """The source with the chosen values in place."""
        space = Space.declared(self.source)
        return space.frozen(self.chosen) if space else self.source

    def in_words(self) -> str:
        """The outcome in one line, e.g. `BLOCK=128 (6 of 9 tried, 1 failed; 1.42x the first)`."""
        failed = sum(not t.status.is_feasible for t in self.tries)
        counts = f"{len(self.tries)} of {self.combinations} tried"
        counts += f", {failed} failed" if failed else ""
        gain = self.gain
        verdict = "none is feasible" if gain is None else f"{gain:.2f}x as fast as the first"
        return f"{written(self.chosen)} ({counts}; {verdict})"


def written(values: Mapping[str, Value]) -> str:
    """Values for people, e.g. `BLOCK=128, SCHEDULE='static'`."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _literal(found: list[ast.expr], notes: list[str]) -> dict[Any, Any]:
    """The declaration as Python values; empty, with a note, where it is none."""
    try:
        value = ast.literal_eval(found[-1]) if len(found) == 1 else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, dict) or len(value) > MOST_NAMES or not _are_names(value):
        notes.append(
            f"`{NAME}` is not used: expected one literal dictionary of at most {MOST_NAMES} names "
            f"and their values, such as `{NAME} = {{'BLOCK': [64, 128]}}`"
        )
        return {}
    return value


def _are_names(value: dict[Any, Any]) -> bool:
    return all(isinstance(name, str) and name.isidentifier() and name != NAME for name in value)


def _usable(
    name: str, values: Any, known: dict[str, list[ast.expr]], notes: list[str]
) -> tuple[Value, ...]:
    """The values of one parameter, the one in the source first; empty, with a note, if unusable."""
    standing = _standing(known.get(name, []))
    if standing is None:
        notes.append(
            f"`{NAME}` names `{name}`, but the module has no constant of that name: expected one "
            f"assignment of a number or text at its top level, such as `{name} = 64`"
        )
        return ()
    listed = list(values) if isinstance(values, list | tuple | set) else [values]
    bad = [value for value in listed if not _is_value(value)]
    if bad:
        notes.append(f"`{NAME}` gives `{name}` {bad[0]!r:.60}, which is no number or text")
    good = [value for value in listed if _is_value(value)]
    found = tuple(dict.fromkeys((standing, *good)))
    if len(found) > MOST_VALUES:
        notes.append(
            f"`{NAME}` gives `{name}` {len(found)} values; only the first {MOST_VALUES} are used"
        )
    return found[:MOST_VALUES]


def _standing(found: list[ast.expr]) -> Value | None:
    if len(found) != 1:
        return None
    try:
        value = ast.literal_eval(found[0])
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if _is_value(value) else None


def _is_value(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int | str)
