"""Owns what is known of who did the work of a candidate on a GPU: whose kernels ran, how long."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

from evokernel.bench.evidence import Evidence

if TYPE_CHECKING:
    from evokernel.bench.messages import Traced
    from evokernel.bench.provenance import Subject

FOREIGN_SHARE = 0.05
"""Share of the device time that kernels of others may have beside copies and fills."""
_MOVES = re.compile(r"Memcpy|Memset|memcpy|memset|FillFunctor|direct_copy|CatArray|copy_device")
NO_TRACE = "what its GPU ran could not be traced: coverage is the process's own log of launches"


def seen(subject: Subject, is_traced: bool) -> Evidence:
    """What there is to see of a worker on a GPU.

    Samples and machine code tell of the processor only. A trace changes how later launches are
    timed, so that there is none before the timing.

    Raises:
        Faulted: It failed meanwhile.
    """
    found = Evidence(handed=subject.handed, declared=declared(subject.candidate.source))
    if not is_traced:
        return found
    case, oracle = subject.cases[0], subject.session.oracle
    sizes = oracle.expected(case).output_bytes
    subject.worker.put(case.name, oracle.package(case), output_bytes=sizes)
    trace = subject.worker.trace(case.name)
    subject.worker.drop(case.name)
    notes = () if trace else (NO_TRACE,)
    return Evidence(
        handed=subject.handed, declared=found.declared, trace=trace or None, notes=notes
    )


def declared(source: str) -> tuple[str, ...]:
    """Names of the functions that a text gives to Triton to compile."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    return tuple(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(_is_triton(decorator) for decorator in node.decorator_list)
    )


def coverage(trace: tuple[Traced, ...], own: tuple[str, ...]) -> float | None:
    """Share of the device time in a candidate's own kernels."""
    total = sum(event.ns for event in trace)
    return sum(event.ns for event in trace if event.name in own) / total if total else None


def foreign(trace: tuple[Traced, ...], own: tuple[str, ...]) -> tuple[str, float] | None:
    """The kernel of others that took the most time, with the share of all of them."""
    total = sum(event.ns for event in trace)
    others: Counter[str] = Counter()
    for event in trace:
        if event.name not in own and not _MOVES.search(event.name):
            others[event.name] += event.ns
    if not others or sum(others.values()) <= FOREIGN_SHARE * total:
        return None
    return others.most_common(1)[0][0], sum(others.values()) / total


def _is_triton(decorator: ast.expr) -> bool:
    text = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return text in {"triton.jit", "jit"} or text.endswith(".jit")
