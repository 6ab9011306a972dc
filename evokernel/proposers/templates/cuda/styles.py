"""Owns the choices that several CUDA structures share."""

from __future__ import annotations

from collections.abc import Mapping

from evokernel.proposers.templates.choices import Choice, Needs, Option, Value
from evokernel.proposers.templates.cuda.packs import Caching
from evokernel.proposers.templates.cuda.spelling import SHORT
from evokernel.proposers.templates.cuda.widths import is_shifted, is_straight, moves, widest
from evokernel.proposers.templates.expressions import Level, Load, Map, Program
from evokernel.proposers.templates.halves import HALVES


def numbers(
    name: str, plain: Value, others: tuple[Value, ...], technique: str, needs: Needs | None = None
) -> Choice:
    """A choice of a plain value and others, all of which tune one technique."""
    options = [Option(value=other, technique=technique) for other in others]
    return Choice(name=name, options=(Option(value=plain), *options), needs=needs or {})


def width_choice(program: Program) -> tuple[Choice, ...]:
    """Packs of neighbouring columns, or single elements."""
    if widest(program) == 1:
        return ()
    packs, single = Option(value="packs", technique="vectorized-loads"), Option(value="single")
    options = (single, packs) if _gathers(program) else (packs, single)
    return (Choice(name="access", options=options),)


def _gathers(program: Program) -> bool:
    """Whether most of what is read lies in no packs: shifted images, rows from their ends."""
    loads = [v for v in program.values if isinstance(v, Load) and v.access.step]
    width = widest(program)
    own = [
        is_straight(load) or is_shifted(program, load, width)
        for load in loads
        if moves(program, load)
    ]
    return own.count(False) > own.count(True)


def width_of(program: Program, choices: Mapping[str, Value]) -> int:
    """Columns per pack."""
    return widest(program) if choices.get("access") == "packs" else 1


def functions_choice(program: Program) -> tuple[Choice, ...]:
    """Functions in full, or with fewer instructions: half precision does not see the difference."""
    if shortened(program) == program:
        return ()
    full, short = Option(value="full"), Option(value="short", technique="shorter-functions")
    only_halves = {o.dtype for o in program.outputs} <= HALVES
    options = (short, full) if only_halves else (full, short)
    return (Choice(name="functions", options=options),)


def shortened(program: Program) -> Program:
    """The program with shorter functions of every element."""
    values = [
        v.model_copy(update={"op": SHORT[v.op]})
        if isinstance(v, Map)
        and v.op in SHORT
        and v.dtype == "float32"
        and v.level is Level.ELEMENT
        else v
        for v in program.values
    ]
    return program.model_copy(update={"values": tuple(values)})


def as_chosen(program: Program, choices: Mapping[str, Value]) -> Program:
    """The program with the functions that were chosen."""
    return shortened(program) if choices.get("functions") == "short" else program


def reads_choice(needs: Needs | None = None) -> Choice:
    """Whether what is read once leaves the caches first."""
    return numbers("reads", "cached", ("once",), "streaming-loads", needs)


def writes_choice(needs: Needs | None = None) -> Choice:
    """Whether results leave the caches first."""
    return numbers("writes", "cached", ("once",), "nontemporal-stores", needs)


def caching_of(choices: Mapping[str, Value]) -> Caching:
    """What was chosen."""
    return Caching(
        reads="load_once" if choices.get("reads") == "once" else "load",
        writes="store_once" if choices.get("writes") == "once" else "store",
    )
