"""Times and what is made of them: medians, intervals, signs of disturbance, paired measurement."""

import math
import random
import statistics as standard
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from evokernel.bench import disturbance, race, rounds, statistics, timing
from evokernel.bench.disturbance import Disturbance, Signs, device_lock
from evokernel.bench.messages import WorkerSpec
from evokernel.bench.oracle import Oracle
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker, WorkerPool
from evokernel.bench.series import CANDIDATE, Block, Series
from evokernel.bench.servers import WarmServers
from evokernel.bench.stage import Stage
from evokernel.bench.wallclock import check_clock
from evokernel.compilers.cpp import CppCompiler
from evokernel.errors import WorkerError
from evokernel.evaluation import Status
from evokernel.task import Task

# Statistics


def test_medians_and_spreads_by_hand():
    assert statistics.median([3.0, 1.0, 2.0]) == 2.0
    assert statistics.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    # quartiles of 1..5 are 2 and 4
    assert statistics.spread([5.0, 1.0, 3.0, 2.0, 4.0]) == pytest.approx(2 / 3)
    assert statistics.spread([5.0]) == 0.0
    assert statistics.geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="no values"):
        statistics.median([])
    with pytest.raises(ValueError, match="positive"):
        statistics.geometric_mean([1.0, 0.0])


def test_the_estimate_is_the_median_of_paired_ratios():
    # ratios 2, 2, 4: the drift from 1 to 100 cancels within each block
    pairs = [(2.0, 1.0), (20.0, 10.0), (400.0, 100.0)]
    found = statistics.ratio_interval([pairs])
    assert found.value == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(4.0)


def test_processes_are_averaged_geometrically():
    one, two = [(2.0, 1.0)] * 9, [(8.0, 1.0)] * 9
    found = statistics.ratio_interval([one, two])
    assert found.value == pytest.approx(4.0)
    # Each draw is one of log 2, log 4, log 8, the deviation stretched by sqrt(2) for two processes.
    assert found.low == pytest.approx(4 * 2 ** -math.sqrt(2))
    assert found.high == pytest.approx(4 * 2 ** math.sqrt(2))


def test_an_interval_has_its_coverage():
    """Of many intervals about a known ratio, some 95 % must hold it."""
    rng = random.Random(1)
    held = 0
    for seed in range(400):
        ratios = [1.5 * math.exp(rng.gauss(0, 0.07)) for _ in range(25)]
        pairs = [(ratio, 1.0) for ratio in ratios]
        found = statistics.ratio_interval([pairs], seed=seed, resamples=300)
        held += found.low <= 1.5 <= found.high
    assert 0.9 < held / 400 < 0.98


def test_what_differs_between_processes_widens_the_interval():
    pairs = [(1.0, 1.0)] * 20
    assert statistics.ratio_interval([pairs]).high == 1.0
    wide = statistics.ratio_interval([pairs], between=0.01)
    assert wide.high == pytest.approx(math.exp(1.96 * 0.01), abs=2e-3)
    assert wide.low == pytest.approx(math.exp(-1.96 * 0.01), abs=2e-3)


def test_the_same_blocks_give_the_same_interval():
    pairs = [(1.0 + 0.1 * (i % 7), 1.0 + 0.1 * (i % 3)) for i in range(30)]
    assert statistics.ratio_interval([pairs]) == statistics.ratio_interval([pairs])
    swapped = statistics.ratio_interval([[(b, a) for a, b in pairs]])
    assert swapped.value == pytest.approx(1 / statistics.ratio_interval([pairs]).value)


@pytest.mark.parametrize("processes", [[], [[]], [[(0.0, 1.0)]], [[(1.0, 1.0)], []]])
def test_no_ratio_without_times(processes):
    with pytest.raises(ValueError, match="process"):
        statistics.ratio_interval(processes)


# Disturbance


def signs(**changed: float) -> Signs:
    start = {"clock": 0.0, "stalled_s": 0.0, "stolen_s": 0.0, "busy_s": 0.0, "own_s": 0.0}
    return Signs.model_validate({**start, "throttled_s": 0.0, **changed})


def test_disturbance_is_what_was_not_ours():
    later = signs(clock=2.0, busy_s=3.0, own_s=2.0, stolen_s=0.1, stalled_s=0.5)
    found = disturbance.between(signs(), later)
    assert found.foreign_s == pytest.approx(1.0)
    assert found.foreign_cores == pytest.approx(0.5)
    assert (found.stolen_s, found.stalled_s) == (0.1, 0.5)
    assert "0.50 cores" in found.in_words()
    # counters of different make may disagree by a tick; that is no negative time
    assert disturbance.between(signs(), signs(clock=1.0, own_s=0.01)).foreign_s == 0.0


def test_the_counters_of_this_machine_grow():
    before = disturbance.read()
    deadline = time.monotonic() + 0.05
    while time.monotonic() < deadline:
        pass
    found = disturbance.between(before, disturbance.read(workers_s=0.0))
    assert found.seconds >= 0.05
    assert found.foreign_s >= 0.0


def test_waiting_for_quiet_ends_in_words():
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        found = disturbance.wait_for_quiet(0.2, cores=0.05, window_s=0.3)
    finally:
        loop.kill()
        loop.wait()
    assert isinstance(found, Disturbance)
    assert found.foreign_cores > 0.05


HOLD = """
import sys, time
from pathlib import Path
from evokernel.bench.disturbance import device_lock
with device_lock("cpu", 1.0, Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_device_lock_serialises_and_dies_with_its_holder(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with (
                pytest.raises(WorkerError, match="another EvoKernel process"),
                device_lock("cpu", 0.1, tmp_path),
            ):
                pass
            with device_lock("cuda-0", 0.1, tmp_path):
                pass
        finally:
            holder.kill()
    with device_lock("cpu", 5.0, tmp_path) as waited:
        assert waited < 5.0


# Paired measurement

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


class ModelNew(Model):
    pass


class Slow(nn.Module):
    def forward(self, x):
        for _ in range(400):
            y = torch.relu(x)
        return y


def get_inputs():
    return [torch.randn(64, 256)]
"""
PACE = Pace(limit_s=0.2, least=5, tight=0.0, quiet_s=0.0, is_strict=True, kept=2, warmups=1)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    truth = Oracle(Task.from_source(SOURCE, "relu").program(), seed=3)
    truth.prepare(truth.cases())
    yield truth
    truth.close()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, servers: WarmServers) -> Iterator[WorkerPool]:
    with WorkerPool(tmp_path_factory.mktemp("cache"), servers=servers) as opened:
        yield opened


@pytest.fixture(scope="module")
def stage(pool, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    build = CppCompiler(tmp_path_factory.mktemp("stage")).build
    return Stage.set_up(pool, threads=1, flush_bytes=1 << 20, task_bytes=1 << 17, build=build)


@pytest.fixture
def fork(pool, oracle, tmp_path) -> Iterator:
    workers: list[Worker] = []

    def make(class_name: str = "ModelNew", source: str = SOURCE) -> Worker:
        spec = WorkerSpec(role="candidate", source=source, class_name=class_name, threads=1)
        worker = pool.fork(spec, CppCompiler(tmp_path).build)
        workers.append(worker)
        worker.load([], {}, seed=0)
        for case in oracle.timed_cases():
            worker.put(case.name, oracle.package(case), slots=2)
        return worker

    yield make
    for worker in workers:
        worker.kill()


@pytest.fixture
def measured(oracle, stage) -> Callable[..., Series]:
    def measure(sides: dict[str, Worker], pace: Pace = PACE) -> Series:
        return timing.measure(sides, oracle, pace, stage, random.Random(0))

    return measure


def test_sides_alternate_on_the_same_inputs(fork, measured):
    series = measured({CANDIDATE: fork(), "slow": fork("Slow")})
    assert len(series.blocks) >= PACE.least
    assert all(set(block.seconds) == {CANDIDATE, "slow"} for block in series.blocks)
    ratios = [slow / fast for slow, fast in series.pairs("slow", tolerant=True)]
    assert standard.median(ratios) > 3
    assert series.noise is not None


def test_outputs_of_timed_repetitions_are_right(fork, oracle, measured):
    series = measured({CANDIDATE: fork()})
    assert 1 <= len(series.kept()) <= PACE.kept
    for case, outcome in series.kept():
        assert oracle.judge(case, outcome, are_inputs_told=False).fault is None


def test_work_skipped_when_timed_is_seen(fork, oracle, measured):
    lazy = SOURCE.replace(
        "class ModelNew(Model):\n    pass",
        "class ModelNew(Model):\n    def forward(self, x):\n        return x.clone()",
    )
    series = measured({CANDIDATE: fork(source=lazy)})
    faults = [
        oracle.judge(case, found, are_inputs_told=False).fault for case, found in series.kept()
    ]
    assert any(fault and fault.status is Status.WRONG_VALUES for fault in faults)


def test_an_opponents_failure_is_not_the_candidates(fork, measured):
    broken = SOURCE.replace("y = torch.relu(x)", "raise ValueError")
    with pytest.raises(WorkerError, match="`slow`, which it is timed against"):
        measured({CANDIDATE: fork(), "slow": fork("Slow", broken)})


def test_the_clock_is_checked_from_outside(fork, oracle):
    worker, case = fork("Slow"), oracle.timed_cases()[0]
    rounds.warm_up({CANDIDATE: worker}, oracle, PACE)
    assert check_clock(worker, case, 2e-4).seconds > 4e-4


def test_too_few_clean_blocks_are_no_number():
    def block(is_clean: bool) -> Block:
        return Block({CANDIDATE: 1.0, "eager": 2.0}, {CANDIDATE: is_clean, "eager": True})

    series = Series(blocks=[block(False)] * 20 + [block(True)] * 4)
    failure = race.spoiled(series, PACE)
    assert failure is not None
    assert failure.status is Status.INFRASTRUCTURE
    assert "only 4 of 24 rounds" in failure.reason
    assert race.spoiled(Series(blocks=[block(True)] * 5), PACE) is None
    assert (series.dropped(), len(series.times()), len(series.pairs("eager"))) == (20, 4, 4)


def test_busy_loops_are_noticed(fork, measured):
    """The same kernel against itself beside busy loops: no claim that one side is faster."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    # Long enough for windows in which foreign core time shows: a loop need not take a core from a
    # worker that has slept to make its times wrong.
    pace = replace(PACE, limit_s=0.8)
    try:
        sides = {CANDIDATE: fork("Slow"), "same": fork("Slow")}
        series = measured(sides, pace)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    failure = race.spoiled(series, pace)
    assert failure is not None
    assert failure.status is Status.INFRASTRUCTURE
    assert "busy" in failure.reason
