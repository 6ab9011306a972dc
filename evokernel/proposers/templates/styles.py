"""Owns the choices that every loop structure offers: how statements are written and spread."""

from collections.abc import Mapping

from evokernel.proposers.templates import expressions
from evokernel.proposers.templates.choices import Choice, Needs, Option, Value
from evokernel.proposers.templates.emit import vector_problem
from evokernel.proposers.templates.expressions import Level, Map, Program, Reduce
from evokernel.proposers.templates.operators import OPERATORS
from evokernel.proposers.templates.sweep import WIDEST, Style, Work, is_associative, streams

VECTOR: Needs = {"form": ("vector",)}
"""What choices need that only vectors give a meaning to."""


def style_choices(
    program: Program, whole: Needs | None = None, shared: Needs | None = None
) -> tuple[Choice, ...]:
    """How the loops are written: form, functions, unrolling, stores, prefetching, threads.

    Args:
        program: The program.
        whole: What choices need that only a thread with whole rows gives a meaning to.
        shared: What choices need that only the work of several threads gives a meaning to.
    """
    if not program.passes:
        return (_threads(shared or {}),)
    offered = [_form(program)]
    if "vector" in offered[0].values:
        offered += [*_functions(program), _unroll(program), *_stores(program)]
        offered += _prefetch(program, whole or {})
    return (*offered, _threads(shared or {}))


def style_of(choices: Mapping[str, Value]) -> Style:
    """The style that a plan's choices describe."""
    return Style.model_validate(
        {
            "form": choices.get("form", "scalar"),
            "unroll": choices.get("unroll", 1),
            "streaming": choices.get("stores") == "streaming",
        }
    )


def thread_count(choices: Mapping[str, Value]) -> str:
    """C++ expression of the number of threads."""
    return "(threads + 1) / 2" if choices.get("threads") == "half" else "threads"


def _form(program: Program) -> Choice:
    options = [Option(value="scalar")]
    works = [Work.of(sweep) for sweep in program.passes]
    simple = any(is_associative(program, work) for work in works)
    if program.kind == "columns" or (simple and program.kind != "windows"):
        options.append(Option(value="simd", technique="compiler-vectorization"))
    together = program.kind == "windows"  # What follows a window stands in the same loop.
    values = [i for i, v in enumerate(program.values) if together and v.level is Level.ROW]
    if vector_problem(program) is None and vector_problem(program, values) is None:
        options.append(Option(value="vector", technique="vectorized-math"))
    return Choice(name="form", options=tuple(options))


def _functions(program: Program) -> tuple[Choice, ...]:
    if shortened(program) == program:
        return ()
    short = Option(value="short", technique="shorter-functions")
    return (Choice(name="functions", options=(Option(value="full"), short), needs=VECTOR),)


def shortened(program: Program) -> Program:
    """The program with every function in its short form, where it has one; nothing moves."""
    values = tuple(
        value.model_copy(update={"op": f"{value.op}_short"})
        if isinstance(value, Map)
        and value.level is Level.ELEMENT
        and value.dtype == "float32"
        and f"{value.op}_short" in OPERATORS
        else value
        for value in program.values
    )
    return with_values(program, values)


def with_values(program: Program, values: tuple[expressions.Value, ...]) -> Program:
    """The program with other values; a mere copy would keep what was derived from the old ones."""
    return Program(
        domain=program.domain, sources=program.sources, values=values, outputs=program.outputs
    )


def as_chosen(program: Program, choices: Mapping[str, Value]) -> Program:
    """The program with the functions that a plan has chosen."""
    return shortened(program) if choices.get("functions") == "short" else program


def _unroll(program: Program) -> Choice:
    reduces = any(isinstance(v, Reduce) for v in program.values)
    technique = "wide-accumulators" if reduces else "loop-unrolling"
    domain = program.domain
    most = domain.lines if program.kind == "columns" else domain.cols // WIDEST
    factors = [factor for factor in (2, 4, 8) if factor <= most]
    options = [Option(value=1), *(Option(value=f, technique=technique) for f in factors)]
    return Choice(name="unroll", options=tuple(options), needs=VECTOR)


def _stores(program: Program) -> tuple[Choice, ...]:
    """Stores that bypass the caches must be aligned: every line has to begin at a full vector."""
    written = [o for o in program.outputs if program.values[o.value].level is Level.ELEMENT]
    alone = not program.domain.outer and not program.domain.depth
    aligned = alone or program.domain.cols % WIDEST == 0
    forwards = all(o.walk is None or o.walk.step == 1 for o in written)
    if not (aligned and forwards) or not any(o.dtype == "float32" for o in written):
        return ()
    streaming = Option(value="streaming", technique="nontemporal-stores")
    return (Choice(name="stores", options=(Option(value="cached"), streaming), needs=VECTOR),)


def _prefetch(program: Program, whole: Needs) -> tuple[Choice, ...]:
    if program.domain.across or not streams(program):
        return ()
    technique = "software-prefetch"
    options = [Option(value="none")]
    if program.kind == "rows" and len(program.passes) > 1:
        options.append(Option(value="next-row", technique=technique, needs=whole))
    options.append(Option(value=512, technique=technique))
    return (Choice(name="prefetch", options=tuple(options), needs=VECTOR),)


def fetched(work: Work, choices: Mapping[str, Value]) -> Work:
    """The work with fetching ahead, where a plan says by how many elements."""
    distance = choices.get("prefetch", "none")
    return work.model_copy(update={"fetch": distance}) if isinstance(distance, int) else work


def _threads(needs: Needs) -> Choice:
    half = Option(value="half", technique="fewer-threads")
    return Choice(name="threads", options=(Option(value="all"), half), needs=needs)
