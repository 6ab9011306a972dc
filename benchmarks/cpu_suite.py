"""Optimises every built-in task with the templates and measures what came out once more.

For each task: one run with a memory of its own, then a second look by new processes, so that no
number is one that its own selection flattered. The best kernel is timed alternately with eager and
with torch.compile, and, in at least three pairs of fresh processes, with the first feasible draft.

    python benchmarks/cpu_suite.py [TASK ...] [--attempts 12] [--out results/cpu_suite.json]

Tasks that the result file already holds are skipped, so that an interrupted suite goes on where it
stopped. Run it on a quiet machine. Beside the JSON it writes the same as a table, `.txt`; its last
column is the share of the roofline: of memory traffic or of multiply-adds, whichever takes longer.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

from suite_rows import CONTRACTIONS, Row, geometric_mean, measured

from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.optimize.environment import environment
from evokernel.task import Task


def row_of(name: str, attempts: int, seed: int, folder: Path) -> Row:
    """One task's row."""
    config = RunConfig(
        task=name,
        runs=folder / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig(seed=seed),
        memory=MemoryConfig(path=folder / "memory"),
    )
    return measured(Task.load(name), config)[0]


def table(rows: list[Row]) -> str:
    """The rows and their means as text; contractions, which compete with MKL, apart."""
    head = f"{'task':24}{'status':10}{'ms':>8}{'eager':>22}{'compile':>22}{'first draft':>22}"
    parts: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        parts[row["family"] in CONTRACTIONS].append(row)
    lines = [head + f"{'roof':>7}"]
    for name, part in zip(("without contractions", "contractions"), parts, strict=True):
        if part:
            lines += [*map(line, part), *summary(part, name), ""]
    better = sum(1 for row in rows if row.get("over_draft") and row["over_draft"][1] > 1)
    lines.append(f"faster than the first draft, with the whole interval: {better} of {len(rows)}")
    return "\n".join(lines) + "\n"


def summary(rows: list[Row], name: str) -> list[str]:
    """Means and the worst of some rows."""
    lines = []
    for column in ("eager", "compile", "over_draft"):
        mean, count = geometric_mean(rows, column)
        lines.append(f"{name}, geometric mean of {column}: {mean:.3f}x over {count} of {len(rows)}")
    lowest = min((row["eager"][0], row["task"]) for row in rows if row.get("eager"))
    return [*lines, f"{name}, lowest against eager: {lowest[0]:.3f}x ({lowest[1]})"]


def line(row: Row) -> str:
    """One row as text."""
    cells = [f"{row['task']:24}{row['status']:10}{row.get('ms', math.nan):8.2f}"]
    for column in ("eager", "compile", "over_draft"):
        value = row.get(column)
        cells.append(f"{value[0]:.2f}x [{value[1]:.2f}, {value[2]:.2f}]" if value else "-")
    roof = f"{row['roofline']:7.0%}" if row.get("roofline") is not None else f"{'-':>7}"
    return cells[0] + "".join(f"{cell:>22}" for cell in cells[1:]) + roof


def main() -> None:
    """Run the suite and write its results after each task."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tasks", nargs="*", help="built-in tasks; all by default")
    parser.add_argument("--attempts", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu_suite.json"))
    options = parser.parse_args()
    done: list[Row] = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for name in options.tasks or Task.names():
        if any(row["task"] == name for row in done):
            continue
        # A memory of its own for each task: what is shown here is the search, not the transfer.
        with tempfile.TemporaryDirectory() as folder:
            done.append(row_of(name, options.attempts, options.seed, Path(folder)))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        command = f"cpu_suite.py --attempts {options.attempts} --seed {options.seed}"
        head = {"command": command}
        text = json.dumps(head | {"environment": environment(), "rows": done}, indent=1)
        options.out.write_text(text + "\n")
        options.out.with_suffix(".txt").write_text(table(done))
        print(line(done[-1]), flush=True)
    print(table(done))


if __name__ == "__main__":
    main()
