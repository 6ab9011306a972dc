"""Owns the part of a task's template space that is recorded: small enough to be measured whole.

The rule for thinning looks at the space and at what the templates promise, never at a time:

1. Choices named by the caller (threads and schedule, where one thread is used) keep the plain way.
2. While there are more plans than the limit: of the choice with the most options, the last one
   that is only another value of a technique which an earlier option applies already is dropped.
3. Then, one after the other, the choices whose techniques promise least keep the plain way only.

What is left is a space like any other: every plan of it is recorded, and the proposer that is
given it proposes nothing else.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import islice

from evokernel.proposers.templates.choices import Choice, Option, Plan, Space, Value

Promise = Callable[[str], float]

MOST = 200
"""Plans of a declared space at most."""


def plans(space: Space) -> Iterator[Plan]:
    """Every plan of a space, each once, the plain one first."""
    return _plans(space, 0, {})


def size(space: Space, most: int) -> int:
    """How many plans a space has, counted up to one more than `most`."""
    return sum(1 for _ in islice(plans(space), most + 1))


def thinned(
    space: Space, promise: Promise, limit: int = MOST, plain: Collection[str] = ()
) -> Space:
    """The declared part of a space, with at most `limit` plans; see the rule above.

    Args:
        space: All that a template offers for a task.
        promise: How much a technique should help, by name.
        limit: Most plans.
        plain: Choices that are not varied at all.
    """
    choices = {c.name: _plain(c) if c.name in plain else c for c in space.choices}
    while size(small := _with(space, choices), limit) > limit:
        repeating = [c for c in small.choices if _last_repeat(c) is not None]
        if repeating:
            most = max(repeating, key=lambda choice: len(choice.options))
            last = _last_repeat(most)
            kept = tuple(option for option in most.options if option is not last)
            choices[most.name] = most.model_copy(update={"options": kept})
        else:
            open_ones = [c for c in small.choices if len(c.options) > 1]
            least = min(open_ones, key=lambda choice: _hope(choice, promise))
            choices[least.name] = _plain(least)
    return small


def _plans(space: Space, place: int, chosen: dict[str, Value]) -> Iterator[Plan]:
    if place == len(space.choices):
        yield space.settle(chosen)
        return
    choice = space.choices[place]
    if all(chosen.get(name) in values for name, values in choice.needs.items()):
        for option in choice.options:
            wish = {**chosen, choice.name: option.value}
            if space.settle(wish).choices[choice.name] == option.value:
                yield from _plans(space, place + 1, wish)
    else:
        yield from _plans(space, place + 1, chosen)


def _with(space: Space, choices: dict[str, Choice]) -> Space:
    return space.model_copy(update={"choices": tuple(choices[c.name] for c in space.choices)})


def _plain(choice: Choice) -> Choice:
    return choice.model_copy(update={"options": choice.options[:1]})


def _last_repeat(choice: Choice) -> Option | None:
    """The last option that is another value of a technique which an earlier one applies."""
    for place in range(len(choice.options) - 1, 0, -1):
        option = choice.options[place]
        if any(earlier.technique == option.technique for earlier in choice.options[:place]):
            return option
    return None


def _hope(choice: Choice, promise: Promise) -> float:
    return max(promise(o.technique) for o in choice.options if o.technique) if _names(choice) else 0


def _names(choice: Choice) -> bool:
    return any(option.technique for option in choice.options)
