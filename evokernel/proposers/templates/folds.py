"""Owns how reductions and scans accumulate in C++."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from evokernel.frozen import Frozen
from evokernel.proposers.templates.expressions import Program, Reduce, Scan
from evokernel.proposers.templates.literals import C_TYPES, identity

PLACES = frozenset({"argmax", "argmin"})
"""Reductions that give the place of an element."""

Form = Literal["vector", "scalar"]
"""Whether a statement handles `LANES` columns, or one."""


def carry_type(scan: Scan) -> str:
    """Type of a scan's carry: float sums and products run in double, as torch's do on a CPU."""
    wide = scan.op in ("sum", "prod") and scan.dtype == "float32"
    return "double" if wide else C_TYPES[scan.dtype]


def carries(program: Program, scans: Iterable[int]) -> tuple[str, ...]:
    """Declarations that must stand before a row's sweep which runs these scans."""
    lines = []
    for index in scans:
        scan = program.values[index]
        if isinstance(scan, Scan):
            kind = carry_type(scan)
            lines.append(f"{kind} {scan.name}_carry = {kind}({identity(scan.op, scan.dtype)});")
    return tuple(lines)


class Fold(Frozen):
    """How a reduction accumulates: `<type> acc = <identity>;`, steps, merges, the result."""

    type: str
    """C++ type of an accumulator in this form."""
    identity: str
    """What an accumulator begins with."""
    combine: str
    """Expression of `{0}` (accumulator) and `{1}` (value or other accumulator)."""
    total: str
    """Expression that turns the accumulator `{0}` into the result, a plain number."""

    @classmethod
    def of(cls, program: Program, index: int, form: Form) -> Fold:
        """The fold of the reduction `program.values[index]`."""
        value = program.values[index]
        assert isinstance(value, Reduce)
        vector = form == "vector"
        kind = ("M" if value.dtype == "bool" else "V") if vector else C_TYPES[value.dtype]
        return cls(
            type=kind,
            identity=f"{kind}({identity(value.op, value.dtype)})",
            combine=combination(value.op, vector),
            total=f"reduce_{value.op}({{0}})" if vector else "{0}",
        )

    def step(self, accumulator: str, value: str, count: str = "") -> str:
        """A statement that takes in a value; with `count`, only its first lanes."""
        if count:
            value = f"select(first({count}), {value}, {self.identity})"
        return f"{accumulator} = {self.combine.format(accumulator, value)};"

    def finish(self, accumulator: str) -> str:
        """The result as an expression."""
        return self.total.format(accumulator)


def combination(op: str, vector: bool) -> str:
    """Expression of `{0}` and `{1}` that a reduction or scan takes in one step."""
    infix = {
        "sum": "{0} + {1}",
        "prod": "{0} * {1}",
        "any": "{0} | {1}" if vector else "{0} || {1}",
        "all": "{0} & {1}" if vector else "{0} && {1}",
    }
    prefix = "" if vector else "scalar::"
    calls = {"max": "maximum", "min": "minimum", "fmax": "fast_max", "fmin": "fast_min"}
    return infix.get(op) or f"{prefix}{calls[op]}({{0}}, {{1}})"


def keep_place(reduction: Reduce, form: Form, best: str, at: str, other: str, place: str) -> str:
    """The statement by which a better element, and where it is, replace the best one so far.

    Args:
        reduction: One of `PLACES`.
        form: Whether these are vectors.
        best: Variable of the best element.
        at: Variable of its place.
        other: The element that may be better.
        place: Where that one is; as a vector, `Ints`.
    """
    prefix = "" if form == "vector" else "scalar::"
    order = "above" if reduction.op == "argmax" else "below"
    return f"{prefix}keep_{order}({best}, {at}, {other}, {place});"
