"""Owns how partial results of reductions are kept, combined and finished in CUDA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evokernel.frozen import Frozen
from evokernel.opgraph import itemsize
from evokernel.proposers.templates.cuda.spelling import C_TYPES, COMBINE, identity
from evokernel.proposers.templates.expressions import Program, Reduce, Scan
from evokernel.proposers.templates.folds import PLACES
from evokernel.proposers.templates.works import Pair


class Accumulator(Frozen):
    """What threads keep of a reduction, or of two that one sweep does together."""

    name: str
    """Stem of its variables."""
    type: str
    start: str
    """Value of nothing, in C."""
    combine: str
    """Type of the function that combines two of them."""
    bytes: int
    reductions: tuple[int, ...]
    """The values that it gives; two for a pair."""

    @property
    def variable(self) -> str:
        """What a thread has so far."""
        return f"{self.name}_acc_"

    def declared(self) -> str:
        """The statement before the loop."""
        return f"{self.type} {self.variable} = {self.start};"

    @property
    def restart(self) -> str:
        """The value of nothing, as it is assigned."""
        return f"{self.type}{self.start}" if self.start.startswith("{") else self.start

    def combined(self, left: str, right: str) -> str:
        """An expression of two of them."""
        return f"{self.combine}()({left}, {right})"


def single(program: Program, reduction: int) -> Accumulator:
    """The accumulator of one reduction."""
    value = program.values[reduction]
    assert isinstance(value, Reduce)
    dtype = program.values[value.arg].dtype
    kind, start = C_TYPES[dtype], identity(value.op.removeprefix("arg"), dtype)
    size = itemsize(dtype)
    if value.op in PLACES:
        kind, start, size = f"gpu::Place<{kind}>", f"{{{start}, -1}}", max(2 * size, 8)
    return Accumulator(
        name=value.name,
        type=kind,
        start=start,
        combine=COMBINE[value.op],
        bytes=size,
        reductions=(reduction,),
    )


def total_of(program: Program, scan: int) -> Accumulator:
    """The accumulator of all that a scan runs over."""
    value = program.values[scan]
    assert isinstance(value, Scan)
    made = Reduce(name=value.name, level=value.level, dtype=value.dtype, op=value.op, arg=value.arg)
    values = (*program.values[:scan], made, *program.values[scan + 1 :])
    return single(program.model_copy(update={"values": values}), scan)


def carry_type(scan: Scan) -> str:
    """What a scan adds line after line in: thousands of floats need more than a float."""
    is_wide = scan.op in ("sum", "prod") and scan.dtype == "float32"
    return "double" if is_wide else C_TYPES[scan.dtype]


def both(program: Program, pair: Pair) -> Accumulator:
    """The accumulator of two reductions of which the second needs the first."""
    online = pair.kind == "online"
    return Accumulator(
        name=program.values[pair.second].name,
        type="gpu::Weighed" if online else "gpu::Moments",
        start="{-INFINITY, 0.0f}" if online else "{0.0f, 0.0f, 0.0f}",
        combine="gpu::Weigh" if online else "gpu::Merge",
        bytes=8 if online else 12,
        reductions=(pair.first, pair.second),
    )


def fold(
    program: Program,
    accumulator: Accumulator,
    names: Mapping[int, str],
    place: str,
    so_far: str = "",
) -> Iterator[str]:
    """Statements that take one element in.

    Args:
        program: The program.
        accumulator: Of one reduction.
        names: Values by name.
        place: Where in the row the element is, as a C expression.
        so_far: What it is taken into; the accumulator's own variable if empty.
    """
    value = program.values[accumulator.reductions[0]]
    assert isinstance(value, Reduce)
    taken, so_far = names[value.arg], so_far or accumulator.variable
    if value.op in PLACES:
        taken = f"{accumulator.type}{{{taken}, {place}}}"
    elif value.op in ("sum", "prod"):
        yield f"{so_far} {'+' if value.op == 'sum' else '*'}= {taken};"
        return
    yield f"{so_far} = {accumulator.combined(so_far, taken)};"


def finished(program: Program, accumulator: Accumulator, total: str) -> Iterator[str]:
    """Statements that declare a reduction's value from all of it."""
    value = program.values[accumulator.reductions[0]]
    assert isinstance(value, Reduce)
    at = ".at" if value.op in PLACES else ""
    yield f"const {C_TYPES[value.dtype]} {value.name} = {total}{at};"
