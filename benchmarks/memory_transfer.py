"""Measures what a memory of one task saves on a related one: attempts until a kernel is good.

For each pair: one run on the first task fills a memory; then runs on the second start from a copy
of it, and as many from an empty one, with the same seeds. Counted are the attempts until a kernel
is within a tenth of the best that any run on that task found; a run that never gets there counts as
one attempt more than it had.

    python benchmarks/memory_transfer.py [--attempts 10] [--seeds 4] [--out results/...json]
    python benchmarks/memory_transfer.py --held-out [--seeds 3]      # one bank, eight other tasks

With `--held-out` the memory is filled by runs on six tasks, and eight others that it has never seen
are run with a copy of it and without, each seed once: real runs, not simulated ones.

Kernels are timed by the quick measurement and against eager only, which is why the limit is wide.
What the output file already holds is not run again. Run it on a quiet machine.
"""

import argparse
import json
import math
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from evokernel.config import BenchConfig, Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.optimize import optimize
from evokernel.optimize.environment import environment
from evokernel.record import RunRecord

PAIRS = (
    ("rms_norm", "residual_layer_norm"),
    ("gelu", "mish"),
    ("log_softmax", "scale_mask_softmax"),
    ("row_mean", "l2_normalize"),
)
TRAINING = ("softmax", "gelu", "layer_norm", "logsumexp", "swiglu", "kl_div")
"""Tasks whose runs fill the bank of `--held-out`."""
HELD_OUT = (
    *("log_softmax", "mish", "rms_norm", "row_mean"),
    *("bias_gelu", "huber_loss", "scale_mask_softmax", "residual_layer_norm"),
)
NEAR = 1.10
"""A kernel is good when it takes at most this much of the best time known."""
Times = list[float | None]
"""Milliseconds of each attempt of a run, None where it was not feasible."""


class Pair(NamedTuple):
    """The runs on one second task."""

    first: str
    second: str
    warm: list[Times]
    """By seed, from a copy of the first task's memory."""
    empty: list[Times]
    """By seed, from an empty memory."""


def run(task: str, memory: Path, attempts: int, seed: int, folder: Path) -> Times:
    """One run; the times of its attempts."""
    config = RunConfig(
        task=task,
        runs=folder / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig(seed=seed),
        memory=MemoryConfig(path=memory),
        bench=BenchConfig(measurement="quick", baselines=("eager",)),
    )
    result = optimize(task, config)
    return [attempt.median_ms for attempt in RunRecord.open(result.path).attempts()]


def compared(
    first: str, second: str, attempts: int, seeds: int, folder: Path, bank: Path | None = None
) -> Pair:
    """Fill a memory with the first task, then run the second with and without it, in turns.

    A memory that is given as `bank` is taken instead.
    """
    source = bank or folder / "memory"
    if bank is None:
        run(first, source, 2 * attempts, 0, folder)
    pair = Pair(first, second, [], [])
    for seed in range(1, seeds + 1):
        copy = folder / f"warm-{seed}"
        shutil.copytree(source, copy)
        pair.warm.append(run(second, copy, attempts, seed, folder))
        pair.empty.append(run(second, folder / f"empty-{seed}", attempts, seed, folder))
    return pair


def fill(bank: Path, attempts: int) -> None:
    """Carry out the runs that a bank is made of; those that it has are not repeated."""
    for task in TRAINING:
        done = bank / f"{task}.done"
        if not done.exists():
            run(task, bank, 2 * attempts, 0, bank)
            done.touch()


def needed(times: Times, limit_ms: float) -> int:
    """Attempts until the first that is good; one more than there were if none is."""
    good = (n for n, ms in enumerate(times, 1) if ms is not None and ms <= limit_ms)
    return next(good, len(times) + 1)


def counts(pair: Pair) -> tuple[list[int], list[int]]:
    """Attempts needed with the memory and without, by seed."""
    limit = NEAR * min(ms for times in (*pair.warm, *pair.empty) for ms in times if ms is not None)
    return [needed(times, limit) for times in pair.warm], [
        needed(times, limit) for times in pair.empty
    ]


def table(pairs: list[Pair]) -> str:
    """What was counted, as text."""
    lines = [f"{'memory of':14}{'task':22}{'with':>20}{'without':>20}{'ratio of means':>17}"]
    ratios = []
    for pair in pairs:
        warm, empty = counts(pair)
        ratios.append(statistics.mean(warm) / statistics.mean(empty))
        shown = [" ".join(map(str, found)) for found in (warm, empty)]
        lines.append(
            f"{pair.first:14}{pair.second:22}{shown[0]:>20}{shown[1]:>20}{ratios[-1]:>17.2f}"
        )
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    lines.append(f"attempts with memory over without, geometric mean of {len(ratios)}: {mean:.2f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the pairs that are missing and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--bank", type=Path, default=Path("memory-of-six"), help="made if missing")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/memory_transfer.json"))
    options = parser.parse_args()
    wanted = PAIRS
    if options.held_out:
        wanted = tuple(("six tasks", task) for task in HELD_OUT)
        fill(options.bank, options.attempts)
    held = json.loads(options.out.read_text())["pairs"] if options.out.exists() else []
    pairs = [Pair(**pair) for pair in held]
    bank = options.bank if options.held_out else None
    for first, second in wanted[len(pairs) :]:
        with tempfile.TemporaryDirectory() as folder:
            pairs.append(
                compared(first, second, options.attempts, options.seeds, Path(folder), bank)
            )
        command = f"memory_transfer.py --attempts {options.attempts} --seeds {options.seeds}"
        head = {"command": command, "environment": environment()}
        text = json.dumps(head | {"pairs": [pair._asdict() for pair in pairs]}, indent=1)
        options.out.write_text(text + "\n")
        options.out.with_suffix(".txt").write_text(table(pairs))
        print(table(pairs[-1:]), flush=True)
    print(table(pairs))


if __name__ == "__main__":
    main()
