"""Owns `Kernel`: the CUDA text of a candidate and how it is launched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evokernel.frozen import Frozen
from evokernel.proposers.templates.cuda.header import preamble
from evokernel.proposers.templates.cuda.spelling import C_TYPES
from evokernel.proposers.templates.expressions import Level, Program


class Workspace(Frozen):
    """Device memory that one launch writes and a later one reads."""

    name: str
    size: str
    """Number of elements, as a Python expression of `rows` and `cols`."""
    dtype: str


class Launch(Frozen):
    """One launch of a kernel."""

    function: str
    grid: str
    """A Python expression of `rows`, `cols` and `wave`, the number of multiprocessors."""
    block: int
    tensors: tuple[str, ...]
    """Names of sources, outputs and workspaces that it takes, in order."""
    sizes: tuple[str, ...] = ()
    """What it takes behind them: Python expressions of `rows` and `cols`."""
    shared: int = 0
    """Bytes of shared memory beside that of fixed size."""


class Kernel(Frozen):
    """A CUDA source, and the launches that make one call of it."""

    source: str
    """The whole file."""
    launches: tuple[Launch, ...]
    workspaces: tuple[Workspace, ...] = ()


class Part(Frozen):
    """A kernel without the device functions that it uses: parts of one file share them."""

    text: str
    launches: tuple[Launch, ...]
    workspaces: tuple[Workspace, ...] = ()


def joined(parts: Iterable[Part]) -> Kernel:
    """One file of several parts, launched one after the other."""
    parts = tuple(parts)
    body = "\n".join(part.text for part in parts)
    return Kernel(
        source=f"{preamble(body)}\n{body}",
        launches=tuple(launch for part in parts for launch in part.launches),
        workspaces=tuple(workspace for part in parts for workspace in part.workspaces),
    )


def parameters(program: Program, outputs: Sequence[int] | None = None) -> list[str]:
    """Sources, then outputs (of those numbers, or all), as C declarations."""
    read = [f"const {C_TYPES[s.dtype]}* __restrict__ {s.name}" for s in program.sources]
    chosen = [o for n, o in enumerate(program.outputs) if outputs is None or n in outputs]
    return read + [f"{C_TYPES[o.dtype]}* __restrict__ {o.name}" for o in chosen]


def names(program: Program, outputs: Sequence[int] | None = None) -> list[str]:
    """The same by name."""
    chosen = [o for n, o in enumerate(program.outputs) if outputs is None or n in outputs]
    return [s.name for s in program.sources] + [o.name for o in chosen]


def head(function: str, threads: int, declarations: Iterable[str], blocks: int = 0) -> str:
    """A kernel's first line."""
    bounds = f"{threads}, {blocks}" if blocks else f"{threads}"
    listed = ", ".join(declarations)
    return f'extern "C" __global__ void __launch_bounds__({bounds}) {function}({listed})'


def outputs_at(program: Program, level: Level) -> tuple[int, ...]:
    """Outputs with one number per element, per row, or at all."""
    return tuple(n for n, o in enumerate(program.outputs) if program.values[o.value].level is level)
