"""Owns `evokernel task`: which tasks there are, what is known of one, and whether it is sound."""

import json
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from evokernel.cli import options
from evokernel.cli.groups import group
from evokernel.cli.listing import put, show
from evokernel.cli.waiting import waiting
from evokernel.cli.wording import counted
from evokernel.task import Task

if TYPE_CHECKING:
    from evokernel.bench.examination import Examination
    from evokernel.opgraph import TensorSpec
    from evokernel.program.description import Description, WorkloadDescription

app = group("List the built-in tasks, look at one, or examine it.", "evokernel task show softmax")


@app.command("list")
def list_tasks(as_json: options.AsJson = False) -> None:
    """List the built-in tasks.

    Example: evokernel task list
    """
    suite = Task.suite()
    if as_json:
        rows = [
            {"name": t.name, "level": t.level, "title": t.title, "description": t.description}
            for t in suite
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None)
    table.add_column("task", no_wrap=True)
    table.add_column("level", no_wrap=True)
    table.add_column("what it computes")
    for task in suite:
        table.add_row(task.name, str(task.level or ""), task.description.partition("\n")[0])
    show(table)


@app.command("show")
def show_task(
    task: options.TaskName,
    as_json: options.AsJson = False,
    device: options.Device = "cpu",
) -> None:
    """Show options, shapes, operators, work and memory needs of one task.

    Example: evokernel task show softmax
    """
    found = Task.load(task, device)
    from evokernel.program.description import describe

    with waiting("loading PyTorch, looking at the operators", "task show"):
        description = describe(found)
    if as_json:
        typer.echo(description.model_dump_json(indent=2))
        return
    show(_facts(description))
    for workload in description.workloads:
        show(_work(workload))


@app.command("doctor")
def doctor_task(
    task: options.TaskName,
    as_json: options.AsJson = False,
    device: options.Device = "cpu",
) -> None:
    """Check that a task can tell a right answer from one that took no work.

    Every input, weight and operator has to change the output by more than the tolerance, no output
    may be constant, and zeros, ones, the mean, a copy of an input and the answer to other inputs
    have to be refused. Nothing is compiled; it takes seconds.

    Exit code 1: a check failed. A run on such a task asks for `--force`.

    Example: evokernel task doctor my_task.py
    """
    found = Task.load(task, device)
    from evokernel.bench.checkup import keep
    from evokernel.bench.examination import examine
    from evokernel.config import BenchConfig

    with waiting("trying what a right answer depends on", "task doctor"):
        result = examine(found)
    keep(result, BenchConfig().cache)
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        _show_examination(result)
    if not result.passed:
        raise typer.Exit(1)


def _show_examination(result: "Examination") -> None:
    workloads = dict.fromkeys(check.workload for check in result.checks)
    for workload in workloads:
        table = Table(show_header=False, box=None)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, style="bold")
        table.add_column(overflow="fold")
        for check in result.checks:
            if check.workload == workload:
                table.add_row("ok" if check.passed else "FAILED", check.name, check.detail)
        if len(workloads) > 1:
            put(f"workload {workload}")
        show(table)
    failed = sum(not check.passed for check in result.checks)
    verdict = "nothing is wrong" if result.passed else f"{counted(failed, 'check')} failed"
    put(f"{result.task}: {verdict} ({result.seconds:.1f} s)")


def _facts(description: "Description") -> Table:
    options = description.options.model_dump(mode="json", exclude_defaults=True)
    rows = {
        "task": f"{description.name} ({description.title})",
        "level": description.level or "not given",
        "file": description.path,
        "hash": description.sha,
        "options": ", ".join(f"{k}={_plain(v)}" for k, v in options.items()) or "all default",
        "parameters": _shapes(description.parameters) or "none",
    }
    return _table(rows)


def _work(workload: "WorkloadDescription") -> Table:
    from evokernel.program.estimate import size_text

    memory = workload.memory
    rows = {
        "workload": workload.name + (" (hidden)" if workload.hidden else ""),
        "inputs": _shapes(workload.inputs) or "no tensors",
        "outputs": "depend on values" if workload.outputs is None else _shapes(workload.outputs),
        "memory": f"{size_text(memory.total)} to judge it, of which {size_text(memory.fp64)} for "
        "the fp64 reference",
    }
    known = workload.operators
    if known is None:
        return _table(rows | {"operators": workload.capture_fault})
    calls = [op if count == 1 else f"{op} x{count}" for op, count in known.calls.items()]
    rows |= {
        "operators": f"{', '.join(calls) or 'none'} (captured by {known.captured_by})",
        "family": known.family,
        "work": f"{known.flops / 1e6:.1f} MFLOP, at least {known.min_bytes / 1e6:.1f} MB to move",
        "rows": "independent" if known.rows_independent else "not known to be independent",
        "fingerprint": known.fingerprint,
    }
    return _table(rows)


def _table(rows: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True, min_width=11)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def _shapes(specs: "tuple[TensorSpec, ...]") -> str:
    return ", ".join(
        f"{spec.dtype} {' x '.join(map(str, spec.shape)) or 'scalar'}" for spec in specs
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
