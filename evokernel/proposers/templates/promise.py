"""Owns what we expect of each technique before anything is measured."""

from evokernel.opgraph import itemsize
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Level, Map, Program, Reduce, Scan
from evokernel.proposers.templates.operators import OPERATORS
from evokernel.proposers.templates.works import is_dear

_LAST_LEVEL = 16 * 2**20
"""Bytes of output from which a last-level cache no longer holds it until it is read (ours)."""

_OWN_CACHE = 256 * 2**10
"""Bytes of a row that a core's own cache holds from one sweep to the next (ours)."""

_SMALL = 2**16
"""Elements below which starting threads costs as much as what they do (ours)."""

_USUALLY = {
    "software-prefetch": 1.2,
    "wide-accumulators": 1.0,
    "two-level-scan": 1.0,
    "split-rows": 1.0,
    "shorter-functions": 1.0,
    "single-pass-moments": 0.8,
    "loop-unrolling": 0.5,
    "dynamic-scheduling": 0.2,
}


_PRODUCTS = {
    "register-tiling": 3.0,
    "vectorized-math": 3.0,
    "panel-packing": 2.0,
    "output-blocking": 1.0,
    "cache-blocking": 1.0,
    "dynamic-scheduling": 0.2,
}
"""What products gain (ours); the rest is about the stages between them."""

_BETWEEN = 0.3
"""Share of a pipeline's time that its other stages have at most, as a rule (ours)."""

_FEW_OPERATIONS = 2**21
"""Operations of a product below which starting threads costs as much as they do (ours)."""


def promise(technique: str, program: Program | Pipeline) -> float:
    """How much a technique should help a program: 0 nothing, 1 a little, 3 a lot.

    These numbers order the first steps of a search that knows nothing yet; measurements and memory
    outweigh them. They come from the structure of the program alone.
    """
    if isinstance(program, Pipeline):
        return _of_pipeline(technique, program)
    match technique:
        case "vectorized-math":
            return 3.0 if _resists_compilers(program) else 1.5
        case "compiler-vectorization":
            return 0.5 if _resists_compilers(program) else 1.4
        case "nontemporal-stores":
            return 2.0 if _written(program) >= _LAST_LEVEL else 0.5
        case "row-caching":
            return 2.0 if any(is_dear(program, i) for i in program.repeated()) else 0.7
        case "online-softmax":
            return 0.1 if program.domain.cols * 4 <= _OWN_CACHE else 1.0
        case "column-blocking":
            return 0.2 if program.domain.cols * 4 <= _OWN_CACHE else 0.6
        case "fewer-threads":
            return 0.1 if program.domain.size > _SMALL else 0.8
    return _USUALLY.get(technique, 0.5)


def _of_pipeline(technique: str, pipeline: Pipeline) -> float:
    between = [promise(technique, program) for program in pipeline.fused]
    expected = max(between, default=_USUALLY.get(technique, 0.5))
    product = pipeline.heaviest
    if product is None:
        return expected
    if technique == "fewer-threads":
        return 0.8 if product.operations < _FEW_OPERATIONS else 0.1
    return _PRODUCTS.get(technique, _BETWEEN * expected)


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
