"""Owns the numbers that the harness may change: sizes of blocks, warps, stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evokernel.proposers.templates.choices import Choice, Needs, Option, Value
from evokernel.proposers.templates.triton.kernel import Parameter

TECHNIQUE = "block-size"
"""What another size of a block, or another number of warps, is called."""


def number(
    name: str,
    plain: int,
    others: Sequence[int],
    technique: str = TECHNIQUE,
    needs: Needs | None = None,
) -> Choice:
    """A choice of a number, the plain one first."""
    rest = [Option(value=n, technique=technique) for n in others if n != plain]
    return Choice(name=name, options=(Option(value=plain), *rest), needs=needs or {})


def constants(
    choices: Sequence[Choice], chosen: Mapping[str, Value], wanted: Sequence[str]
) -> tuple[Parameter, ...]:
    """The numbers of a plan with what else each may be.

    Args:
        choices: What can be chosen.
        chosen: A plan's choices.
        wanted: Names of constants, each the choice of the same name in small letters; what was not
            chosen is left out.
    """
    found = []
    for name in wanted:
        which = name.lower()
        if which in chosen:
            choice = next(c for c in choices if c.name == which)
            value = chosen[which]
            others = tuple(v for v in choice.values if v != value)
            found.append(Parameter(name=name, value=value, others=others))
    return tuple(found)


def around(plain: int, least: int, most: int, factors: Sequence[float] = (0.5, 2)) -> list[int]:
    """A number's neighbours within limits."""
    found = [int(plain * factor) for factor in factors]
    return [n for n in found if least <= n <= most and n != plain]
