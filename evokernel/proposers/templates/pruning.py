"""Owns what is left of a program once its outputs are known."""

from __future__ import annotations

from typing import Any

from evokernel.proposers.templates.expressions import (
    Level,
    Load,
    Map,
    Pick,
    Program,
    Reduce,
    Scan,
    Unsupported,
    Value,
    arguments,
)


def pruned(program: Program) -> Program:
    """Without values that no output needs, and without sources that nothing reads."""
    kept = program.closure(o.value for o in program.outputs)
    place = {old: new for new, old in enumerate(kept)}
    values = [program.values[i] for i in kept]
    read = sorted({v.access.source for v in values if isinstance(v, Load | Pick)})
    return program.model_copy(
        update={
            "values": tuple(_moved(v, place, read) for v in values),
            "sources": tuple(program.sources[s] for s in read),
            "outputs": tuple(
                o.model_copy(update={"value": place[o.value]}) for o in program.outputs
            ),
        }
    )


def _moved(value: Value, place: dict[int, int], read: list[int]) -> Value:
    changes: dict[str, Any] = {}
    if isinstance(value, Map):
        changes["args"] = tuple(place[a] for a in value.args)
    elif isinstance(value, Reduce | Scan):
        changes["arg"] = place[value.arg]
    if isinstance(value, Pick):
        changes["index"] = place[value.index]
    if isinstance(value, Load | Pick):
        changes["access"] = value.access.model_copy(
            update={"source": read.index(value.access.source)}
        )
    return value.model_copy(update=changes)


def require_one_kernel(program: Program) -> None:
    """Refuse what needs all rows to be done before a row can go on.

    Raises:
        Unsupported: names the value.
    """
    late = set(program.last)
    for value in program.values:
        used = [a for a in arguments(value) if a in late]
        if used and value.level is not Level.SCALAR:
            name = program.values[used[0]].name
            raise Unsupported(
                f"a number made from all rows (`{name}`) that every row needs again is not "
                "covered in one kernel"
            )
