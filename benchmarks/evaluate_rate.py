"""Measures what judging one candidate costs: seconds, with a warm pool and prepared baselines.

Every candidate is the same C++ softmax with another comment in it, so that each is compiled and
judged anew. Beside it stands the same kernel as an extension of torch's `load_inline`, which takes
one to two minutes each; `--inline 0` leaves it out.

    python benchmarks/evaluate_rate.py [--count 10] [--inline 1] [--quick] [--out FILE]

Run it on a quiet machine; the target is a median of at most 6 s for the standard measurement.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from evokernel.attempt import Candidate
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.config import BenchConfig
from evokernel.task import Task

TARGET_S = 6.0
KERNELS = Path(__file__).with_name("kernels")
INLINE_S = 600.0
"""Wall limit of a worker's call: `load_inline` compiles inside it."""


def versions(name: str, count: int) -> list[Candidate]:
    """The kernel of that file, each time with another comment inside the C++ source."""
    text, line = (KERNELS / name).read_text(), "#include <cmath>"
    stamps = range(time.time_ns(), time.time_ns() + count)
    sources = [text.replace(line, f"{line}  // {stamp}") for stamp in stamps]
    return [Candidate(source=source, backend="cpp") for source in sources[:count]]


def judged(evaluator: LocalEvaluator, candidates: list[Candidate]) -> list[dict[str, Any]]:
    """One row for each candidate: status, wall seconds, and seconds of each phase."""
    rows = []
    for candidate in candidates:
        began = time.perf_counter()
        evaluation = evaluator.compile(candidate) or evaluator.verify(candidate)
        took = time.perf_counter() - began
        timing = evaluation.timing
        rows.append(
            {
                "seconds": round(took, 3),
                "status": evaluation.status.value,
                "reason": evaluation.reason,
                "phases": evaluation.seconds,
                "ms": timing.median_ms if timing else None,
            }
        )
        print(f"  {took:7.2f} s  {evaluation.status.value}  {evaluation.seconds}", flush=True)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=10, help="candidates built by cpp_module")
    parser.add_argument("--inline", type=int, default=1, help="candidates built by load_inline")
    parser.add_argument("--task", default="softmax", help="a task with softmax(x) of 2-D inputs")
    parser.add_argument("--quick", action="store_true", help="the quick measurement")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = BenchConfig(
            measurement="quick" if chosen.quick else "standard",
            contract="library_allowed",
            cache=Path(folder),
            run_s=INLINE_S,
        )
        result = measure(chosen, config)
    print(
        f"median {result['median_s']:.2f} s a candidate (target {TARGET_S:g} s), "
        f"preparation {result['preparation_s']:.1f} s once"
    )
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")


def measure(chosen: argparse.Namespace, config: BenchConfig) -> dict[str, Any]:
    """Prepare once, then judge both kinds."""
    with LocalEvaluator(Task.load(chosen.task), config) as evaluator:
        began = time.perf_counter()
        baselines = evaluator.baselines()
        preparation = time.perf_counter() - began
        for baseline in baselines:
            print(
                f"{baseline.name}: {baseline.median_ms:.3f} ms, ready in {baseline.seconds:.1f} s"
            )
        print("cpp_module")
        ours = judged(evaluator, versions("softmax_jit.py", chosen.count))
        print("load_inline")
        theirs = judged(evaluator, versions("softmax_load_inline.py", chosen.inline))
        facts = evaluator.facts()
    return {
        "median_s": statistics.median(row["seconds"] for row in ours),
        "preparation_s": round(preparation, 2),
        "baselines": [baseline.model_dump() for baseline in baselines],
        "facts": facts.model_dump(mode="json"),
        "cpp_module": ours,
        "load_inline": theirs,
    }


if __name__ == "__main__":
    main()
