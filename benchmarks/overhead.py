"""Measures what a run costs beside compiling, measuring and proposing: milliseconds an attempt.

Real are the workflow, its durable checkpoints, the run folder and the memory on disk; the proposer
and the evaluator are fakes that answer in well under a millisecond. Each attempt proposes a kernel
of realistic size, so that files, diffs and experiences have theirs.

    python benchmarks/overhead.py [--attempts 60] [--folder DIR] [--json]

Run it on a quiet machine; the target is a median of at most 25 ms. Everything is written below the
current folder, as a run does: a temporary folder may lie in memory, or among so many deleted files
that making one takes ten times as long.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

from evokernel.bench import processor
from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.optimize import optimize
from evokernel.proposers import Request
from evokernel.record import Event
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_task, wander

TARGET_MS = 25.0
BODY = "\n".join(f"//   out[i] = fma(in[i], {line}.0f, bias[i % width]);" for line in range(120))
"""Ballast: a kernel of the templates has around 6 kB."""


def sizeable(request: Request) -> str:
    """A kernel like a real one in size."""
    return f"{wander(request)}\n{BODY}\n"


def measure(folder: Path, attempts: int) -> list[float]:
    """Milliseconds from the end of each attempt to the end of the next.

    The first attempt is left out: it pays for what is loaded once a process.
    """
    task = fake_task()
    config = RunConfig(
        task=task.name,
        runs=folder / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig(width=2, seed=1),
        memory=MemoryConfig(path=folder / "memory"),
    )
    marks: list[float] = []

    def on_event(event: Event) -> None:
        if event["kind"] == "attempt":
            marks.append(time.perf_counter())

    optimize(
        task,
        config,
        evaluator=FakeEvaluator(task),
        proposer=ScriptedProposer(sizeable),
        graph=fake_graph(),
        on_event=on_event,
    )
    return [1000 * (after - before) for before, after in zip(marks, marks[1:], strict=False)]


def main() -> None:
    """Measure, print and compare with the target."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--attempts", type=int, default=60)
    arguments.add_argument("--folder", type=Path, help="where to write; here if not")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix=".overhead-", dir=given.folder or Path()) as folder:
        times = measure(Path(folder), given.attempts)
    cuts = statistics.quantiles(times, n=20)
    numbers = {
        "attempts": len(times),
        "median_ms": round(statistics.median(times), 2),
        "p5_ms": round(cuts[0], 2),
        "p95_ms": round(cuts[-1], 2),
        "target_ms": TARGET_MS,
    }
    if given.json:
        print(json.dumps(numbers))
        return
    print(
        f"device: {processor.name()}, {len(os.sched_getaffinity(0))} cores, {platform.platform()}"
    )
    print(", ".join(f"{name} {number}" for name, number in numbers.items()))
    print("met" if numbers["median_ms"] <= TARGET_MS else "missed")


if __name__ == "__main__":
    main()
