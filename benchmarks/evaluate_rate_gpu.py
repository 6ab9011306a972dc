"""Measures how many evaluations a minute a GPU gives, beside a plain loop in KernelBench's way.

Ours: mixed CUDA and Triton candidates of four tasks (a kernel by hand in new versions, and plans of
the templates), each compiled, checked with every family of inputs, timed against prepared
baselines, and given a digest of what bounds it. Baselines are prepared before the clock runs.

The loop: for some of the same kernels, a fresh process that builds the kernel with torch's
`load_inline` in a folder of its own, compares five random inputs (`allclose`, 1e-2), and times 100
calls of it and of the reference with events. It is written here, after that harness's description.

    python benchmarks/evaluate_rate_gpu.py [--each 16] [--loops 2] [--out FILE]

Targets: 40 evaluations a minute, and 30 times the loop's rate.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpu_kernels
from gpu_kernels import KERNELS, RowKernel

from evokernel.attempt import Backend, Candidate
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.bench.gpu import choice
from evokernel.config import BenchConfig
from evokernel.opgraph import capture
from evokernel.optimize.environment import environment
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

TARGET_A_MINUTE, TARGET_TIMES = 40, 30
TRIALS, RUNS = 5, 100
"""Of the plain loop."""


def candidates(task: Task, kernel: RowKernel, count: int) -> list[Candidate]:
    """So many, a third each by hand, of the CUDA templates and of the Triton templates."""
    graph = capture(task.program())
    sources = [
        (Candidate(source=gpu_kernels.ours(kernel, time.time_ns() + n), backend="cuda"))
        for n in range(count)
    ]
    kinds = [iter(sources), plans(task, graph, "cuda"), plans(task, graph, "triton")]
    return [next(kinds[number % 3]) for number in range(count)]


def plans(task: Task, graph: Any, backend: Backend) -> Iterator[Candidate]:
    """The plain plan, then random walks from it; each has a comment that makes it new."""
    template = Template(task, graph, backend)
    dice = random.Random(task.name)
    plan = template.space.plain()
    while True:
        text = f"{template.source(plan)}\n# {time.time_ns()}\n"
        yield Candidate(source=text, backend=backend)
        moves = list(template.space.moves(plan))
        plan = dice.choice(moves).on(template.space, plan) if moves else plan


def judged(kernel: RowKernel, count: int, config: BenchConfig) -> dict[str, Any]:
    """One task's evaluations: seconds of all of them, and each with its phases."""
    task = gpu_kernels.task(kernel)
    wanted = candidates(task, kernel, count)
    with LocalEvaluator(task, config, "cuda") as evaluator:
        began = time.perf_counter()
        evaluator.baselines()
        first = evaluator.compile(wanted[0]) or evaluator.verify(wanted[0])  # warms the digest up
        evaluator.profile(wanted[0], first)
        prepared = time.perf_counter() - began
        rows, began = [], time.perf_counter()
        for number, candidate in enumerate(wanted[1:], start=1):
            evaluator.expect(wanted[number + 1 : number + 3])
            rows.append(row_of(evaluator, candidate))
        seconds = time.perf_counter() - began
    print(
        f"{kernel.name}: {len(rows)} in {seconds:.1f} s, prepared in {prepared:.1f} s", flush=True
    )
    return {"task": kernel.name, "prepared_s": prepared, "seconds": seconds, "rows": rows}


def row_of(evaluator: LocalEvaluator, candidate: Candidate) -> dict[str, Any]:
    """One evaluation: status, seconds, phases."""
    began = time.perf_counter()
    evaluation = evaluator.compile(candidate) or evaluator.verify(candidate)
    evaluation = evaluator.profile(candidate, evaluation)
    took = time.perf_counter() - began
    timing = evaluation.timing
    row = {
        "backend": candidate.backend,
        "by_hand": "MODULE = cuda_module" in candidate.source,
        "seconds": round(took, 3),
        "status": evaluation.status.value,
        "reason": evaluation.reason[:200],
        "phases": evaluation.seconds,
        "ms": timing.median_ms if timing else None,
        "bound_by": evaluation.profile.bound_by if evaluation.profile else None,
    }
    print(f"  {took:6.2f} s  {candidate.backend:7}{row['status']:10}{row['phases']}", flush=True)
    return row


def looped(kernel: RowKernel) -> dict[str, Any]:
    """The plain loop's evaluation of one kernel: a fresh process from birth to end."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "reference.py").write_text(gpu_kernels.task(kernel).source)
        (place / "candidate.py").write_text(gpu_kernels.inline(kernel, time.time_ns()))
        command = [sys.executable, __file__, "--loop-in", folder]
        began = time.perf_counter()
        variables = os.environ | {"TORCH_EXTENSIONS_DIR": folder}
        ended = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
        took = time.perf_counter() - began
    told = json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else {}
    trouble = "" if ended.returncode == 0 else ended.stderr[-400:]
    print(f"  {took:6.2f} s  load_inline {kernel.name} {told or trouble}", flush=True)
    return {"task": kernel.name, "seconds": took, "trouble": trouble, **told}


def loop(folder: Path) -> None:
    """What the fresh process does: build, compare, time; one line of JSON."""
    import torch

    parts: dict[str, Any] = {}
    for name in ("reference", "candidate"):
        scope: dict[str, Any] = {"__name__": name}
        began = time.perf_counter()
        exec((folder / f"{name}.py").read_text(), scope)
        parts |= scope | {f"{name}_s": time.perf_counter() - began}
    model, new = parts["Model"]().cuda(), parts["ModelNew"]().cuda()
    is_right = True
    for seed in range(TRIALS):
        torch.manual_seed(seed)
        inputs = [x.cuda() for x in parts["get_inputs"]()]
        got, expected = new(*inputs), model(*inputs)
        is_right &= bool(torch.allclose(got, expected, rtol=1e-2, atol=1e-2))
    times = {name: timed(call, inputs) for name, call in (("new_ms", new), ("ms", model))}
    print(json.dumps({"is_right": is_right, "build_s": parts["candidate_s"], **times}))


def timed(call: Any, inputs: list[Any]) -> float:
    """Mean milliseconds of a call, by events."""
    import torch

    for _ in range(3):
        call(*inputs)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(RUNS):
        start.record()
        call(*inputs)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.mean(times)


def summary(tasks: list[dict[str, Any]], loops: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates, and where the time goes."""
    rows = [row for task in tasks for row in task["rows"]]
    seconds = sum(task["seconds"] for task in tasks)
    phases: dict[str, float] = {}
    for row in rows:
        for name, value in row["phases"].items():
            phases[name] = phases.get(name, 0.0) + value / len(rows)
    passed = sum(row["status"] == "passed" for row in rows)
    found: dict[str, Any] = {
        "evaluations": len(rows),
        "passed": passed,
        "a_minute": round(60 * len(rows) / seconds, 1),
        "median_s": statistics.median(row["seconds"] for row in rows),
        "mean_phases_s": {name: round(value, 3) for name, value in phases.items()},
        "by_backend_s": {
            backend: statistics.median(r["seconds"] for r in rows if r["backend"] == backend)
            for backend in sorted({row["backend"] for row in rows})
        },
    }
    if good := [one["seconds"] for one in loops if not one["trouble"]]:
        found["loop_median_s"] = round(statistics.median(good), 2)
        found["times_the_loop"] = round(found["a_minute"] / 60 * statistics.median(good), 1)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--each", type=int, default=16, help="candidates of each of four tasks")
    parser.add_argument("--loops", type=int, default=2, help="kernels for the plain loop")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument("--loop-in", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.loop_in:
        loop(chosen.loop_in)
        return
    choice.require("cuda")
    with tempfile.TemporaryDirectory() as folder:
        config = BenchConfig(contract="own_kernels_only", cache=Path(folder))
        tasks = [judged(kernel, chosen.each, config) for kernel in KERNELS]
    loops = [looped(kernel) for kernel in KERNELS[: chosen.loops]]
    result = summary(tasks, loops)
    print(json.dumps(result, indent=1))
    print(f"targets: {TARGET_A_MINUTE} a minute, {TARGET_TIMES} times the loop")
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        whole = {"environment": environment("cuda"), **result, "tasks": tasks, "loops": loops}
        chosen.out.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
