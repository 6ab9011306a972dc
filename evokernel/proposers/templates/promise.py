"""Owns what we expect of each technique before anything is measured."""

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.expressions import Level, Map, Program, Reduce, Scan
from evokernel.proposers.templates.operators import OPERATORS

_CACHE = 16 * 2**20
"""Bytes of output from which a last-level cache no longer holds it until it is read (ours)."""


def promise(technique: str, program: Program) -> float:
    """How much a technique should help a program: 0 nothing, 1 a little, 3 a lot.

    These numbers order the first steps of a search that knows nothing yet; measurements and memory
    outweigh them. They come from the structure of the program alone.
    """
    match technique:
        case "vectorized-math":
            return 3.0 if _resists_compilers(program) else 1.5
        case "compiler-vectorization":
            return 0.5 if _resists_compilers(program) else 1.5
        case "nontemporal-stores":
            return 2.0 if _written(program) >= _CACHE else 0.5
        case "row-caching" | "row-interleaving":
            return 1.5
        case "software-prefetch" | "wide-accumulators" | "two-level-scan" | "split-rows":
            return 1.0
        case "online-softmax" | "single-pass-moments":
            return 1.0 if program.domain.cols * 4 > 2**16 else 0.5
        case _:
            return 0.5


def _resists_compilers(program: Program) -> bool:
    """Whether there are functions, maxima or scans, at which compilers give up."""
    return any(
        isinstance(v, Scan)
        or (isinstance(v, Map) and v.level is Level.ELEMENT and OPERATORS[v.op].group == "function")
        or (isinstance(v, Reduce) and v.op not in ("sum", "prod"))
        for v in program.values
    )


def _written(program: Program) -> int:
    """Bytes of its results."""
    return sum(
        program.domain.size * itemsize(o.dtype)
        for o in program.outputs
        if program.values[o.value].level is Level.ELEMENT
    )
