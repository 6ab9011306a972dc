"""Owns what we expect of each technique on a GPU before anything is measured."""

from __future__ import annotations

from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.cuda.rows import row_bytes
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.halves import HALVES

_LONG = 2**16
"""Bytes of a row from which registers that hold it leave no room for a second one (ours)."""

_USUALLY = {
    "vectorized-loads": 3.0,
    "register-tiling": 2.0,
    "tensor-cores": 3.0,
    "asynchronous-copies": 1.5,
    "row-caching": 2.0,
    "online-softmax": 2.0,
    "split-rows": 1.5,
    "team-size": 1.0,
    "loop-unrolling": 1.0,
    "output-blocking": 1.0,
    "nontemporal-stores": 0.8,
    "streaming-loads": 0.8,
    "persistent-grid": 0.7,
    "block-size": 0.6,
    "shorter-functions": 0.5,
}
"""What techniques gain as a rule (ours); the rest gains little."""


def promise(technique: str, program: Program | Pipeline) -> float:
    """How much a technique should help a program: 0 nothing, 1 a little, 3 a lot."""
    expected = _USUALLY.get(technique, 0.5)
    if isinstance(program, Pipeline):
        return expected
    if technique == "row-caching" and row_bytes(program) > _LONG:
        return 0.5
    if technique == "shorter-functions" and {o.dtype for o in program.outputs} & HALVES:
        return 1.5
    return expected
