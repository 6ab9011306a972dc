"""Counts what the templates cover: the built-in tasks, and problems in the format of KernelBench.

For each task: is a first draft offered, and if not, what is missing. With `--check` the draft is
compiled, compared and timed against eager by the quick measurement: is it `passed`?

    python benchmarks/coverage.py [TASK|FILE|FOLDER ...] [--check] [--out results/coverage.txt]

Without arguments it goes through the built-in suite and `tests/kernelbench`. A count takes seconds,
a check some seconds a task.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from evokernel.attempt import Candidate, Stage
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.config import BenchConfig
from evokernel.errors import NoTemplate
from evokernel.opgraph import CaptureFailed, OpGraph, capture
from evokernel.proposers import Request
from evokernel.proposers.templates import TemplateProposer
from evokernel.task import Task

PROBLEMS = Path(__file__).parent.parent / "tests" / "kernelbench"


class Row(NamedTuple):
    """What became of one task."""

    group: str
    """`tasks`, or the folder of a file."""
    name: str
    family: str
    is_offered: bool
    status: str
    """The verdict on the draft; empty where it was not asked for."""
    remark: str
    """Why there is no draft, why it failed, or its time and speedup."""


def chosen(places: list[str]) -> Iterator[tuple[str, Task]]:
    """The tasks to look at, each with its group."""
    if not places:
        yield from (("tasks", task) for task in Task.suite())
        places = [str(folder) for folder in sorted(PROBLEMS.iterdir()) if folder.is_dir()]
    for place in places:
        if Path(place).is_dir():
            files = sorted(Path(place).glob("*.py"), key=number)
            yield from ((Path(place).name, Task.load(file)) for file in files)
        else:
            yield ("tasks" if place in Task.names() else Path(place).parent.name), Task.load(place)


def number(file: Path) -> tuple[int, str]:
    """KernelBench begins the names of its problems with their numbers."""
    digits = file.stem.partition("_")[0]
    return (int(digits) if digits.isdigit() else 0), file.stem


def looked_at(group: str, task: Task, is_checked: bool, cache: Path) -> Row:
    """Whether a draft is offered and, if asked, what the evaluator says of it."""
    graph = captured(task)
    family = graph.family if graph else "not captured"
    try:
        candidate = draft(task, graph)
    except NoTemplate as why:
        reason = str(why.__cause__ or "its graph could not be captured")
        return Row(group, task.name, family, False, "", reason)
    status, remark = verdict(task, candidate, cache) if is_checked else ("", "")
    return Row(group, task.name, family, True, status, remark)


def captured(task: Task) -> OpGraph | None:
    """The operator graph, or None where there is none."""
    try:
        return capture(task.program())
    except CaptureFailed:
        return None


def draft(task: Task, graph: OpGraph | None) -> Candidate:
    """The first draft of the templates.

    Raises:
        NoTemplate: there is none.
    """
    request = Request(
        task=task, graph=graph, backend="cpp", stage=Stage.DRAFT, step="coverage/0", seed=0
    )
    return TemplateProposer().propose(request).candidate


def verdict(task: Task, candidate: Candidate, cache: Path) -> tuple[str, str]:
    """Status of a candidate under the quick measurement, with its time or its fault."""
    config = BenchConfig(measurement="quick", baselines=("eager",), cache=cache)
    with LocalEvaluator(task, config) as evaluator:
        found = evaluator.compile(candidate) or evaluator.verify(candidate)
    if found.timing is None:
        return str(found.status), " ".join(found.reason.split())
    ratios = ", ".join(f"{s.ratio.value:.2f}x {s.against}" for s in found.timing.speedups)
    return str(found.status), f"{found.timing.median_ms:.3f} ms, {ratios}"


def line(row: Row) -> str:
    """One row as text."""
    offer = "draft" if row.is_offered else "-"
    return f"{row.group:8}{row.name:46}{row.family:15}{offer:7}{row.status:15}{row.remark}".rstrip()


def totals(rows: list[Row]) -> str:
    """How many of each group are covered."""
    lines = []
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        text = f"{group}: drafts for {sum(row.is_offered for row in own)} of {len(own)}"
        if any(row.status for row in own):
            text += f", {sum(row.status == 'passed' for row in own)} passed"
        lines.append(text)
    return "\n".join(lines)


def main() -> None:
    """Look at each task and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("places", nargs="*", help="built-in tasks, files, folders; all by default")
    parser.add_argument("--check", action="store_true", help="compile, compare and time each draft")
    parser.add_argument("--out", type=Path, help="write the table, as text")
    options = parser.parse_args()
    cache = BenchConfig().cache
    rows: list[Row] = []
    for group, task in chosen(options.places):
        rows.append(looked_at(group, task, options.check, cache))
        print(line(rows[-1]), flush=True)
    print(totals(rows))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n".join([*map(line, rows), totals(rows)]) + "\n")


if __name__ == "__main__":
    main()
