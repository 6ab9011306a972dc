"""Owns what there is to see of who did the work of a candidate on a GPU."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from evokernel.bench import contract
from evokernel.bench.evidence import Evidence

if TYPE_CHECKING:
    from evokernel.bench.provenance import Subject

NO_TRACE = "what its GPU ran could not be traced: coverage is the process's own log of launches"


def seen(subject: Subject, is_traced: bool) -> Evidence:
    """What there is to see of a worker on a GPU.

    Samples and machine code tell of the processor only. A trace changes how later launches are
    timed, so that there is none before the timing; and it takes seconds, so that there is one only
    where the log cannot say whose the time is: where others compute or move data, too.

    Raises:
        Faulted: It failed meanwhile.
    """
    found = Evidence(
        handed=subject.handed, declared=declared(subject.candidate.source), is_on_gpu=True
    )
    operators = subject.instrumented.operators
    is_mixed = bool(contract.computing(operators) or contract.moving(operators))
    if not is_traced or not (is_mixed or not subject.instrumented.launches):
        return found
    case, oracle = subject.cases[0], subject.session.oracle
    sizes = oracle.expected(case).output_bytes
    subject.worker.put(case.name, oracle.package(case), output_bytes=sizes)
    trace = subject.worker.trace(case.name)
    subject.worker.drop(case.name)
    notes = () if trace else (NO_TRACE,)
    return replace(found, trace=trace or None, notes=notes)


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


def _is_triton(decorator: ast.expr) -> bool:
    text = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return text in {"triton.jit", "jit"} or text.endswith(".jit")
