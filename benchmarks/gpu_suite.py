"""Optimises every built-in task at its GPU size with the templates, and measures what came out.

Rows are made as those of `cpu_suite.py`; device time and wall time of a call stand in two columns,
and beside them the bytes that the operator has to move and their share of the copy bandwidth that
was measured on this device.

    python benchmarks/gpu_suite.py [TASK ...] [--backend cuda] [--precisions fp32,bf16]
        [--attempts 6] [--minutes 9] [--part 1/4] [--out results/gpu_suite.json]
    python benchmarks/gpu_suite.py --join PART.json ... --out results/gpu_suite.json

Rows that the result file already holds are skipped, so that an interrupted suite goes on where it
stopped. With several GPUs, give each process one of them (`CUDA_VISIBLE_DEVICES`) and one part.
Targets: tasks that move at least 256 MB reach 90 % of the copy bandwidth (median); memory-bound
tasks 1.10 times torch.compile in float32, 1.35 times in half precision, 1.9 times eager.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from suite_rows import CONTRACTIONS, Row, geometric_mean, measured

from evokernel.attempt import Backend
from evokernel.bench.gpu import choice
from evokernel.bench.gpu.facts import gpu_facts
from evokernel.compilers.choice import EveryCompiler
from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.errors import EvoKernelError
from evokernel.evaluation import Timing
from evokernel.optimize.environment import environment
from evokernel.task import Precision, Task

LARGE = 256_000_000
"""Bytes from which a task's share of the copy bandwidth counts."""
OPPONENTS = ("eager", "compile")


def row_of(name: str, precision: Precision, chosen: argparse.Namespace, folder: Path) -> Row:
    """One task's row in one precision; one that fails says why."""
    task = Task.load(name, "cuda").in_precision(precision)
    config = RunConfig(
        task=name,
        backend=chosen.backend,
        precision=precision,
        runs=folder / "runs",
        budget=Budget(attempts=chosen.attempts),
        search=SearchConfig(seed=chosen.seed),
        memory=MemoryConfig(path=folder / "memory"),
    )
    key: Row = {"precision": precision, "backend": chosen.backend}
    try:
        row, verdict, graph = measured(task, config)
    except (EvoKernelError, AssertionError) as error:
        return {"task": name, **key, "status": "failed", "why": str(error), "family": ""}
    row |= key | {"bytes": graph.min_bytes}
    return row | (times(verdict.timing, graph.min_bytes, config) if verdict.timing else {})


def times(timing: Timing, min_bytes: int, config: RunConfig) -> Row:
    """What a GPU adds: wall times, how it was timed, and the share of the copy bandwidth."""
    compiler = EveryCompiler(config.bench.cache, config.bench.compile_s, first="cuda")
    copy = gpu_facts(config.bench.cache, 0, compiler).rates[-1].copy_rate
    row: Row = {"wall_ms": timing.wall_ms, "way": timing.way, "copy_rate": copy}
    row["copy_share"] = round(1e-6 * min_bytes / timing.median_ms / copy, 4)
    for speedup in timing.speedups:
        row[f"{speedup.against}_ms"] = speedup.opponent_ms
        row[f"{speedup.against}_wall_ms"] = speedup.opponent_wall_ms
    return row


def table(rows: list[Row]) -> str:
    """The rows and their means as text, by backend and precision; contractions apart."""
    head = f"{'task':23}{'status':10}{'MB':>6}{'device':>9}{'wall':>9}{'copy':>6}"
    lines = [f"{head}{'eager':>24}{'compile':>24}{'first draft':>24}   (times in ms)"]
    for backend, precision in sorted({(row["backend"], row["precision"]) for row in rows}):
        some = [r for r in rows if (r["backend"], r["precision"]) == (backend, precision)]
        for is_product in (False, True):
            part = [row for row in some if (row["family"] in CONTRACTIONS) == is_product]
            if part:
                kind = "contractions" if is_product else "memory-bound"
                lines += ["", f"{backend} {precision}, {kind}", *map(line, part), *summary(part)]
    return "\n".join(lines) + "\n"


def summary(rows: list[Row]) -> list[str]:
    """Means, and the median share of the copy bandwidth of those that move much."""
    lines = []
    for column in (*OPPONENTS, "over_draft"):
        mean, count = geometric_mean(rows, column)
        if count:
            lines.append(f"  geometric mean of {column}: {mean:.3f}x over {count} of {len(rows)}")
    shares = [r["copy_share"] for r in rows if "copy_share" in r and r["bytes"] >= LARGE]
    if shares:
        found = f"median {statistics.median(shares):.1%}, lowest {min(shares):.1%}"
        lines.append(f"  share of the copy bandwidth from 256 MB on: {found} ({len(shares)} tasks)")
    return lines


def line(row: Row) -> str:
    """One row as text."""
    cells = [f"{row['task']:23}{row['status']:10}"]
    if "ms" not in row:
        return cells[0] + str(row.get("why", ""))[:150]
    cells.append(
        f"{row['bytes'] / 1e6:6.0f}{row['ms']:9.4f}{row['wall_ms']:9.4f}{row['copy_share']:6.0%}"
    )
    for column in (*OPPONENTS, "over_draft"):
        value = row.get(column)
        cell = f"{value[0]:.2f}x [{value[1]:.2f}, {value[2]:.2f}]" if value else "-"
        cells.append(f"{cell:>24}")
    return "".join(cells)


def wanted(chosen: argparse.Namespace) -> list[tuple[str, Precision]]:
    """Tasks and precisions of this part, long and short ones mixed."""
    pairs = [
        (name, precision)
        for precision in chosen.precisions.split(",")
        for name in chosen.tasks or Task.names()
    ]
    number, count = map(int, chosen.part.split("/"))
    return pairs[number - 1 :: count]


def write(out: Path, rows: list[Row], head: dict[str, Any]) -> None:
    """Keep the rows as JSON, and as a table beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")
    out.with_suffix(".txt").write_text(f"{json.dumps(head)}\n\n{table(rows)}")


def read(path: Path) -> dict[str, Any]:
    """A result file; empty where there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return found


def join(chosen: argparse.Namespace) -> None:
    """Make one result of several parts."""
    parts = [read(path) for path in chosen.join]
    head = {name: value for name, value in parts[0].items() if name != "rows"}
    rows = [row for part in parts for row in part["rows"]]
    write(chosen.out, sorted(rows, key=lambda row: (row["precision"], row["task"])), head)
    print(table(rows))


def main() -> None:
    """Run the suite and write its results after each task."""
    backend: Backend = "cuda"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tasks", nargs="*", help="built-in tasks; all by default")
    parser.add_argument("--backend", choices=("cuda", "triton"), default=backend)
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--attempts", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no task after this")
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_suite.json"))
    parser.add_argument("--join", nargs="+", type=Path, help="result files of parts")
    chosen = parser.parse_args()
    if chosen.join:
        join(chosen)
        return
    choice.require(chosen.backend)
    command = f"gpu_suite.py --backend {chosen.backend} --attempts {chosen.attempts}"
    head = {"command": command, "environment": environment(chosen.backend)}
    done: list[Row] = read(chosen.out)["rows"]
    began = time.monotonic()
    for name, precision in wanted(chosen):
        key = {"task": name, "precision": precision, "backend": chosen.backend}
        is_known = any(key.items() <= row.items() for row in done)
        if is_known or time.monotonic() - began > 60 * chosen.minutes:
            continue
        # A memory of its own for each task: what is shown here is the search, not the transfer.
        with tempfile.TemporaryDirectory() as folder:
            done.append(row_of(name, precision, chosen, Path(folder)))
        write(chosen.out, done, head)
        print(line(done[-1]), flush=True)
    print(table(done))


if __name__ == "__main__":
    main()
