"""Measures how far times can be trusted: a kernel against itself, and a speedup again and again.

A/A: pairs of fresh processes run the same kernel; how often one is declared faster is the share of
false wins. Speedup: pairs of one fresh process of the kernel and one of eager; the spread of the
ratio over them is what another day's measurement may differ by.

    python benchmarks/repeatability.py [--pairs 100] [--processes 20] [--task softmax] [--out FILE]
    python benchmarks/repeatability.py --device cuda [--pairs 10] [--out FILE]

Run it on a quiet machine. Targets: at most 2 % false wins at a margin of 1 %, and 90 % of the
speedups within 5 % of their median. On a GPU, a kernel of about 10 us, one of 100 us and one of
1 ms: device times from fresh processes within 2 %, 0.5 % and 0.5 % of their median.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evokernel.attempt import Candidate
from evokernel.bench import promotion, race
from evokernel.bench.pace import QUICK, STANDARD, Pace
from evokernel.bench.series import CANDIDATE, Series
from evokernel.bench.session import Session
from evokernel.config import BenchConfig
from evokernel.task import Task

KERNEL = Path(__file__).with_name("kernels") / "softmax_jit.py"
OPPONENT = "opponent"
TRIES = 5
ON_GPU = Path(__file__).with_name("kernels") / "scale_cuda.py"
SIZES = {"10 us": (5_000_000, 0.02), "100 us": (50_000_000, 0.005), "1 ms": (500_000_000, 0.005)}
"""Elements of a float32 tensor that is read, and as many written; and the share by which times from
fresh processes may lie off their median."""
GPU_TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 1.5 + 0.25


def get_inputs():
    return [torch.randn({size})]


def get_init_inputs():
    return []
"""


def fresh(
    session: Session, first: Candidate | None, second: Candidate, pace: Pace | None = None
) -> Series | None:
    """Blocks of one pair of fresh processes; None if the machine spoiled all tries."""
    pace = pace or session.pace
    for _ in range(TRIES):
        series = promotion.pair(session, first, second, pace)
        failure = race.spoiled(series, pace)
        if failure is None:
            return series
        print(f"  again: {failure.reason}", flush=True)
    return None


def false_wins(
    session: Session,
    kernel: Candidate,
    pairs: int,
    seen: list[Series] | None = None,
    pace: Pace | None = None,
) -> dict[str, Any]:
    """The same kernel on both sides; the series are added to `seen`."""
    pace = pace or session.pace
    margin = session.config.margin
    rows: list[tuple[float, float, float]] = []
    for number in range(pairs):
        series = fresh(session, kernel, kernel, pace)
        if series is None:
            continue
        if seen is not None:
            seen.append(series)
        found = race.interval([series], OPPONENT, race.is_tolerant([series], pace))
        rows.append((found.value, found.low, found.high))
        print(
            f"  A/A {number + 1}: {found.value:.4f} [{found.low:.4f}, {found.high:.4f}]", flush=True
        )
    wins = sum(low > 1 + margin for _, low, _ in rows)
    losses = sum(high < 1 - margin for _, _, high in rows)
    logs = np.log([value for value, _, _ in rows])
    return {
        "pairs": len(rows),
        "spoiled": pairs - len(rows),
        "declared_faster": wins,
        "declared_slower": losses,
        "share_faster": wins / max(len(rows), 1),
        "log_ratio_sd": float(logs.std(ddof=1)) if len(rows) > 1 else None,
        "half_width": float(np.median([(high - low) / 2 for _, low, high in rows])),
        "ratios": rows,
    }


def device_times(seen: Sequence[Series]) -> dict[str, Any]:
    """Device and wall time of the kernel in each fresh process, two of each pair."""
    sides = [(series, side) for series in seen for side in (CANDIDATE, OPPONENT)]
    device = [median(one.times(side), one.times(side, tolerant=True)) for one, side in sides]
    wall = [median(one.walls(side), one.walls(side, tolerant=True)) for one, side in sides]
    middle = float(np.median(device))
    return {
        "processes": len(device),
        "way": seen[0].way,
        "device_us": 1e6 * middle,
        "wall_us": 1e6 * float(np.median(wall)),
        "worst": max(abs(one / middle - 1) for one in device),
        "device": device,
        "wall": wall,
    }


def median(clean: Sequence[float], every: Sequence[float]) -> float:
    """The median of what was left alone, if there is any."""
    return float(np.median(clean or every))


def on_gpu(pairs: int, pace: Pace, names: Sequence[str]) -> dict[str, Any]:
    """All sizes, one after the other."""
    kernel = Candidate(source=ON_GPU.read_text(), backend="cuda")
    found: dict[str, Any] = {"device": "", "fingerprint": "", "sizes": {}}
    for name in names:
        size, target = SIZES[name]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scale.py"
            path.write_text(GPU_TASK.format(size=size))
            # Nothing is judged, so that few families of inputs are enough.
            config = BenchConfig(measurement="quick")
            session = Session(Task.load(str(path)), config, backend="cuda")
            try:
                found |= {
                    "device": session.device.in_words(),
                    "fingerprint": session.device.fingerprint,
                }
                seen: list[Series] = []
                same = false_wins(session, kernel, pairs, seen, pace)
                times = device_times(seen)
            finally:
                session.close()
        found["sizes"][name] = {"target": target, "times": times, "same": same}
        print(
            f"{name}: {times['device_us']:.3f} us on the device, {times['wall_us']:.2f} us wall "
            f"({times['way']}); {times['processes']} processes within {times['worst']:.2%} "
            f"(target {target:.1%}); {same['declared_faster']} of {same['pairs']} pairs declared "
            f"faster (target 2 %)",
            flush=True,
        )
    return found


def speedups(session: Session, kernel: Candidate, processes: int) -> dict[str, Any]:
    """The kernel against eager, both fresh each time."""
    ratios = []
    for number in range(processes):
        series = fresh(session, None, kernel)
        if series is not None:
            tolerant = race.is_tolerant([series], session.pace)
            ratios.append(race.interval([series], OPPONENT, tolerant).value)
            print(f"  speedup {number + 1}: {ratios[-1]:.4f}", flush=True)
    low, middle, high = np.quantile(ratios, (0.05, 0.5, 0.95))
    return {
        "processes": len(ratios),
        "median": float(middle),
        "p5": float(low / middle - 1),
        "p95": float(high / middle - 1),
        "ratios": ratios,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=100, help="pairs of a kernel with itself")
    parser.add_argument("--processes", type=int, default=20, help="processes for the speedup")
    parser.add_argument("--task", default="softmax", help="a task with softmax(x) of 2-D inputs")
    parser.add_argument("--kernel", type=Path, default=KERNEL, help="a candidate for the task")
    parser.add_argument("--quick", action="store_true", help="the quick measurement")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=tuple(SIZES))
    chosen = parser.parse_args()
    if chosen.device == "cuda":
        began = time.perf_counter()
        result = on_gpu(chosen.pairs, QUICK if chosen.quick else STANDARD, chosen.sizes)
        write(chosen.out, result | {"seconds": round(time.perf_counter() - began, 1)})
        return
    kernel = Candidate(source=chosen.kernel.read_text(), backend="cpp")
    measurement = "quick" if chosen.quick else "standard"
    session = Session(
        Task.load(chosen.task), BenchConfig.model_validate({"measurement": measurement})
    )
    began = time.perf_counter()
    try:
        result = {
            "task": chosen.task,
            "device": session.device.in_words(),
            "fingerprint": session.device.fingerprint,
            "same": false_wins(session, kernel, chosen.pairs),
            "speedup": speedups(session, kernel, chosen.processes),
            "seconds": round(time.perf_counter() - began, 1),
        }
    finally:
        session.close()
    same, speedup = result["same"], result["speedup"]
    print(
        f"{same['declared_faster']} of {same['pairs']} pairs declared faster "
        f"({same['share_faster']:.1%}, target 2 %); speedup {speedup['median']:.3f} "
        f"[{speedup['p5']:+.1%}, {speedup['p95']:+.1%}] over {speedup['processes']} processes "
        "(target 5 %)"
    )
    write(chosen.out, result)


def write(path: Path | None, result: dict[str, Any]) -> None:
    """Keep the result, if it is wanted."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
