"""Measures a memory of many experiences: insertion, opening, retrieval, refit, disk.

    python benchmarks/memory_scale.py [--sizes 1000 10000 100000] [--folder KEPT] [--out F]

Experiences are those of some invented tasks with sources of a usual length, half of them kernels
and half edits, all active; every tenth step is rewarded. Retrieval is timed over steps of tasks
that are in the bank and of such that are not, the vector index open, each step logged as in a run;
then eight processes give 200 rewards each to one memory: each has to be counted once, and every
experience has to be found. A memory in a folder that was named is kept, and filled further by the
next call: 100,000 take minutes.
"""

import argparse
import json
import multiprocessing
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evokernel.attempt import Stage
from evokernel.config import MemoryConfig
from evokernel.evaluation import Interval
from evokernel.memory.embedding import Situation
from evokernel.memory.events import Verdict
from evokernel.memory.experience import Experience, ExperienceStatus, Measurement, Origin
from evokernel.memory.retrieval import Query
from evokernel.memory.rewards import Reward
from evokernel.memory.store import Memory
from evokernel.opgraph import Node, OpGraph, Ref, TensorSpec
from evokernel.optimize.environment import environment

TARGET_MS = 15.0
"""95th percentile of a retrieval at 100,000."""
OPERATORS = (
    "add",
    "mul",
    "exp",
    "sum",
    "amax",
    "div",
    "rsqrt",
    "erf",
    "tanh",
    "sub",
    "mean",
    "log",
)
TECHNIQUES = ("vectorized-math", "loop-unrolling", "row-caching", "wide-accumulators")
TASKS = 400
BATCH = 500
SOURCE = "\n".join(f"    float value_{n} = input[{n}] * scale + offset;  // {n}" for n in range(60))
PROCESSES, REWARDS = 8, 200


def graph(number: int) -> OpGraph:
    """A chain of operators, another one for each number."""
    rng = random.Random(number)
    spec = TensorSpec(shape=(rng.choice((64, 512)), rng.choice((256, 2048))), dtype="float32")
    nodes = [Node(name="x", kind="input", op="0", outputs=(spec,))]
    for place in range(rng.randrange(2, 9)):
        args = (Ref(node=nodes[-1].name),)
        op = rng.choice(OPERATORS)
        nodes.append(Node(name=f"n{place}", kind="call", op=op, args=args, outputs=(spec,)))
    family = rng.choice(("elementwise", "softmax", "normalization", "reduction", "loss"))
    return OpGraph(
        nodes=tuple(nodes),
        results=(Ref(node=nodes[-1].name),),
        source="export",
        flops=1,
        min_bytes=1,
        family=family,
        fingerprint=f"invented-{number}",
    )


def experience(number: int, task: OpGraph) -> Experience:
    """One kernel or edit."""
    rng = random.Random(f"experience {number}")
    kind = "edit" if number % 2 else "kernel"
    ratio = Interval(value=1.2, low=1.1, high=1.3)
    return Experience(
        kind=kind,
        stage=Stage.REFINE,
        backend="cpp",
        family=task.family,
        fingerprint=task.fingerprint,
        bottleneck=rng.choice(("memory", "compute", "latency")),
        techniques=tuple(rng.sample(TECHNIQUES, 2)),
        summary=f"invented {number}",
        payload={"source": f"// {number}\n{SOURCE}"},
        origin=Origin(
            run=f"run-{number // 50}",
            step=f"run-{number // 50}/{number}",
            task=task.fingerprint,
            candidate=f"{number:016x}",
        ),
        measurement=Measurement(median_ms=1.0, speedup=ratio),
    )


def fill(memory: Memory, first: int, last: int, graphs: list[OpGraph]) -> None:
    """Add experiences, all active."""
    for number in range(first, last, BATCH):
        with memory.together():
            ids = []
            for each in range(number, min(number + BATCH, last)):
                task = graphs[each % len(graphs)]
                found = experience(each, task)
                ids += memory.add([found], found.origin.step, task)
            verdicts = [Verdict(id, ExperienceStatus.ACTIVE, "invented") for id in ids]
            memory._journal.add_statuses(verdicts, f"active/{number}")  # a promotion of all at once


def query(number: int, run: str) -> Query:
    """A step on some task; every second one has no experience in the bank."""
    task = graph(number % TASKS if number % 2 else TASKS + number)
    return Query(
        task=task.fingerprint,
        graph=task,
        stage=Stage.REFINE,
        backend="cpp",
        family=task.family,
        fingerprint=task.fingerprint,
        bottleneck="memory",
        run=run,
        step=f"{run}/{number}",
        seed=number,
    )


def disk_mb(folder: Path) -> float:
    """Megabytes (1e6) below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def sized(folder: Path, sizes: list[int], policy: str, steps: int) -> Iterator[dict[str, float]]:
    """Grow one memory, and measure it at each size."""
    config = MemoryConfig(path=folder, policy=policy)
    graphs = [graph(number) for number in range(TASKS)]
    have = 0
    if folder.exists():
        with Memory.open(config) as memory:
            have = memory.stats().experiences
    for size in (size for size in sizes if size >= have):
        began = time.perf_counter()
        with Memory.open(config) as memory:
            fill(memory, have, size, graphs)
        inserted = time.perf_counter() - began
        have, added = size, size - have
        began = time.perf_counter()
        memory = Memory.open(config)
        opened = time.perf_counter() - began
        run = f"timed-{size}-{time.time():.0f}"
        with memory:
            memory.flush()
            memory.recall(query(0, f"warm-{run}"))
            times = []
            for number in range(1, steps + 1):
                asked = query(number, run)
                began = time.perf_counter()
                memory.recall(asked)
                times.append(time.perf_counter() - began)
                if number % 10 == 0:
                    reward = Reward(value=random.Random(number).uniform(-1, 1), feasible=True)
                    memory.reinforce(asked.step, Stage.REFINE, reward)
            began = time.perf_counter()
            report = memory.refit()
            refit = time.perf_counter() - began
        yield {
            "experiences": size,
            "insert_ms": 1e3 * inserted / added if added else float("nan"),
            "open_s": opened,
            "recall_p50_ms": 1e3 * float(np.percentile(times, 50)),
            "recall_p95_ms": 1e3 * float(np.percentile(times, 95)),
            "refit_s": refit,
            "refit_rewards": report.rewards,
            "disk_mb": disk_mb(folder),
        }


def reward_many(path: Path, process: int) -> None:
    """One of the processes: retrievals and rewards on the shared memory, each told twice."""
    with Memory.open(MemoryConfig(path=path)) as memory:
        for number in range(REWARDS):
            asked = query(number, f"process-{process}")
            memory.recall(asked)
            reward = Reward(value=0.5, feasible=True)
            assert memory.reinforce(asked.step, Stage.REFINE, reward)
            assert not memory.reinforce(asked.step, Stage.REFINE, reward)


def crowded(folder: Path) -> dict[str, float]:
    """Eight processes on one memory: what was counted."""
    graphs = [graph(number) for number in range(TASKS)]
    with Memory.open(MemoryConfig(path=folder)) as memory:
        fill(memory, 0, 400, graphs)
    spawn = multiprocessing.get_context("spawn")
    began = time.perf_counter()
    processes = [
        spawn.Process(target=reward_many, args=(folder, number)) for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - began
    with Memory.open(MemoryConfig(path=folder)) as memory:
        stats = memory.stats()
        counted = sum(stage.rewards for stage in stats.stages)
        found = 0
        for number in range(400):
            experienced = experience(number, graphs[number % TASKS])
            situation = Situation(
                graph=graphs[number % TASKS],
                family=experienced.family,
                bottleneck=experienced.bottleneck,
                techniques=experienced.techniques,
            )
            hits = memory.search(situation=situation, limit=8)
            found += any(hit.entry.experience.id == experienced.id for hit in hits)
        changed = len(memory.refit().changes)
    return {
        "exit_codes": sum(abs(process.exitcode or 0) for process in processes),
        "rewards": counted,
        "wanted": PROCESSES * REWARDS,
        "found": found,
        "experiences": 400,
        "changed_by_refit": changed,
        "seconds": seconds,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--policy", default=MemoryConfig().policy)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="keep the memory there, and go on with it")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/memory_scale.txt"))
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    lines = [f"memory_scale.py --policy {options.policy} --steps {options.steps}"]
    lines.append(", ".join(f"{name}: {fact}" for name, fact in environment().items()))
    try:
        many = crowded(folder / "many")
        lines.append("eight processes: " + json.dumps(many))
        print(lines[-1], flush=True)
        for row in sized(folder / "one", options.sizes, options.policy, options.steps):
            lines.append(", ".join(f"{name} {value:.4g}" for name, value in row.items()))
            print(lines[-1], flush=True)
            if row["experiences"] >= 100_000:
                met = "met" if row["recall_p95_ms"] <= TARGET_MS else "missed"
                lines.append(f"target p95 <= {TARGET_MS} ms: {met}")
    finally:
        shutil.rmtree(folder / "many", ignore_errors=True)
        if options.folder is None:
            shutil.rmtree(folder)
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
