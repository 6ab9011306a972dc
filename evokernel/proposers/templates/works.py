"""Owns which sweeps a row needs, in which order: what is merged, what is kept for later."""

from collections.abc import Mapping
from typing import Literal

from evokernel.frozen import Frozen
from evokernel.proposers.templates.choices import Value
from evokernel.proposers.templates.expressions import Level, Map, Program, Reduce, arguments
from evokernel.proposers.templates.operators import OPERATORS
from evokernel.proposers.templates.styles import fetched
from evokernel.proposers.templates.sweep import Work


class Pair(Frozen):
    """Two reductions of which the second needs the first, and which one sweep can do."""

    kind: Literal["online", "moments"]
    """`online`: maximum, then sum of exponentials. `moments`: sum, then squared deviations."""
    first: int
    second: int
    element: int
    """The value that both are about."""
    base: int
    """The value at rest that is subtracted from it: the maximum or the mean."""


def pair(program: Program) -> Pair | None:
    """The first two sweeps as one, if they have that form."""
    if len(program.passes) < 2:
        return None
    first, second = program.passes[:2]
    alone = not (first.outputs or first.scans or second.outputs or second.scans)
    if not alone or len(first.reductions) != 1 or len(second.reductions) != 1:
        return None
    return _pair(program, first.reductions[0], second.reductions[0])


def _pair(program: Program, first: int, second: int) -> Pair | None:
    one, two = program.values[first], program.values[second]
    if not isinstance(one, Reduce) or not isinstance(two, Reduce) or two.op != "sum":
        return None
    top = program.values[two.arg]
    if one.dtype != "float32" or not isinstance(top, Map):
        return None
    shifted = program.values[top.args[0]]
    if not isinstance(shifted, Map) or shifted.op != "sub" or shifted.args[0] != one.arg:
        return None
    if first not in program.closure([shifted.args[1]]):
        return None
    kind = _kind(one, top, program)
    if kind is None:
        return None
    return Pair(kind=kind, first=first, second=second, element=one.arg, base=shifted.args[1])


def _kind(one: Reduce, top: Map, program: Program) -> Literal["online", "moments"] | None:
    if one.op in ("max", "fmax") and top.op in ("exp", "exp_short"):
        return "online"
    rows = any(program.values[o.value].level is Level.ROW for o in program.outputs)
    if one.op == "sum" and top.op == "mul" and top.args[0] == top.args[1] and not rows:
        return "moments"
    return None


def works(program: Program, choices: Mapping[str, Value]) -> list[Work]:
    """The sweeps of a row program, as a plan's choices have them."""
    found = _merged(program, choices)
    pool = _worth_keeping(program, choices.get("keep", "none"))
    found = _keeping(program, found, pool)
    return _fetching(program, found, choices)


def kept(program: Program, choices: Mapping[str, Value]) -> tuple[int, ...]:
    """Values that later sweeps read from a buffer instead of computing them again."""
    return tuple(i for work in works(program, choices) for i in work.keep)


def _merged(program: Program, choices: Mapping[str, Value]) -> list[Work]:
    all_ = [Work.of(sweep) for sweep in program.passes]
    both = pair(program)
    if both is None or choices.get("sweeps") != "merged":
        return all_
    one = Work(
        reductions=(both.first, both.second),
        elements=(both.element,),
        between=all_[0].after,
        after=all_[1].after,
    )
    return [one, *all_[2:]]


def _worth_keeping(program: Program, which: Value) -> set[int]:
    """Values that several sweeps compute: all of them, or those that need a function."""
    if which not in ("dear", "all"):
        return set()
    repeated = [i for i in program.repeated() if program.values[i].dtype == "float32"]
    return {i for i in repeated if which == "all" or is_dear(program, i)}


def _keeping(program: Program, found: list[Work], pool: set[int]) -> list[Work]:
    computed: set[int] = set()
    wanted: set[int] = set()
    for work in found:
        wanted |= _met_first(program, work.wanted(program), computed & pool)
        computed |= set(program.elements(work.wanted(program)))
    ready: set[int] = set()
    result: list[Work] = []
    for work in found:
        here = program.elements(work.wanted(program), ready)
        keep = tuple(i for i in here if i in wanted and i not in ready)
        update = {"keep": keep, "kept": tuple(sorted(ready))}
        result.append(work.model_copy(update=update))
        ready |= set(keep)
    return result


def _met_first(program: Program, wanted: tuple[int, ...], pool: set[int]) -> set[int]:
    """Values of the pool that are met on the way down from what is wanted."""
    met: set[int] = set()
    todo = list(wanted)
    while todo:
        index = todo.pop()
        if index in pool:
            met.add(index)
        elif program.values[index].level is Level.ELEMENT:
            todo.extend(arguments(program.values[index]))
    return met


def _fetching(program: Program, found: list[Work], choices: Mapping[str, Value]) -> list[Work]:
    """Let one sweep fetch ahead.

    The first one reads memory and may fetch a little ahead; or the one that computes most fetches
    the next row, so that memory and arithmetic are busy at the same time.
    """
    if choices.get("prefetch") != "next-row":
        return [fetched(work, choices) if n == 0 else work for n, work in enumerate(found)]
    busiest = max(range(len(found)), key=lambda n: (_functions(program, found[n]), n))
    update = {"fetch": program.domain.cols}
    return [w.model_copy(update=update) if n == busiest else w for n, w in enumerate(found)]


def _functions(program: Program, work: Work) -> int:
    values = program.elements(work.wanted(program), work.kept)
    return sum(_is_function(program, i) for i in values)


def _is_function(program: Program, value: int) -> bool:
    found = program.values[value]
    return isinstance(found, Map) and OPERATORS[found.op].group == "function"


def is_dear(program: Program, value: int) -> bool:
    """Whether computing a value at every column needs a function such as exp."""
    return any(_is_function(program, i) for i in program.elements([value]))
