"""Owns numbers made from all rows: a second kernel of one block combines what each row gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evokernel.proposers.templates.cuda.accumulators import finished, fold, single
from evokernel.proposers.templates.cuda.kernel import Launch, Workspace, head, names, parameters
from evokernel.proposers.templates.cuda.spelling import C_TYPES
from evokernel.proposers.templates.cuda.statements import Where, statements
from evokernel.proposers.templates.expressions import Program, Reduce, arguments
from evokernel.proposers.templates.lines import Lines

_THREADS = 1024


def over_rows(program: Program, size: str = "rows") -> dict[int, Workspace]:
    """Reductions over all rows, each with the memory that holds what the rows gave."""
    found = {}
    for i in program.last:
        value = program.values[i]
        if isinstance(value, Reduce):
            dtype = program.values[value.arg].dtype
            found[i] = Workspace(name=f"{value.name}_of_rows_", size=size, dtype=dtype)
    return found


def given(program: Program, reduction: int) -> int:
    """What a row gives to a reduction over all rows."""
    return arguments(program.values[reduction])[0]


def write(
    program: Program,
    function: str,
    found: Mapping[int, Workspace],
    outputs: Sequence[int],
    text: Lines,
) -> None:
    """Write the second kernel; the order of the rows fixes the order of its sums."""
    rows_of = [f"const {C_TYPES[w.dtype]}* {w.name}" for w in found.values()]
    declared = [*parameters(program, outputs), *rows_of, "int rows"]
    text.add("")
    with text.block(head(f"{function}_total", _THREADS, declared)):
        known: dict[int, str] = {}
        for i, workspace in found.items():
            each = single(program, i)
            text.add(f"__shared__ {each.type} {each.name}_room_[{_THREADS // 32}];")
            text.add(each.declared())
            taken = {given(program, i): f"{workspace.name}[n_]"}
            with text.block(f"for (int n_ = threadIdx.x; n_ < rows; n_ += {_THREADS})"):
                text.extend(fold(program, each, taken, "n_"))
            total = f"gpu::of_block<{_THREADS}>({each.variable}, {each.combine}(), "
            text.extend(finished(program, each, f"{total}{each.name}_room_)"))
            known[i] = program.values[i].name
        wanted = [program.outputs[n].value for n in outputs]
        block = statements(program, wanted, Where(), known)
        text.extend(block.lines)
        for number in outputs:
            output = program.outputs[number]
            put = f"gpu::put({output.name}, {block.names[output.value]});"
            text.add(f"if (threadIdx.x == 0) {put}")


def launch(
    program: Program, function: str, found: Mapping[int, Workspace], outputs: Sequence[int]
) -> Launch:
    """The launch of the second kernel."""
    return Launch(
        function=f"{function}_total",
        grid="1",
        block=_THREADS,
        tensors=(*names(program, outputs), *(w.name for w in found.values())),
        sizes=("rows",),
    )
