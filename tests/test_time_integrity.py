"""Time that a candidate cannot edit: its clock, work before and after it, the time of others."""

import random
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from evokernel.bench import doubts, race, timing
from evokernel.bench.favour import favour
from evokernel.bench.messages import Repetition, Turn, WorkerSpec
from evokernel.bench.oracle import Oracle
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker, WorkerPool
from evokernel.bench.series import CANDIDATE, IDLE, Block, Series
from evokernel.bench.servers import WarmServers
from evokernel.bench.stage import Stage
from evokernel.bench.wallclock import ClockCheck, allowed, excess_cores, extra, lower_bound
from evokernel.compilers.cpp import CppCompiler
from evokernel.evaluation import Status
from evokernel.opgraph import capture
from evokernel.task import Task

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(512, 1024)]
"""
PACE = Pace(limit_s=0.3, least=8, tight=0.0, quiet_s=0.0, is_strict=False, kept=3, warmups=1)


def module(forward: str, top: str = "", init: str = "pass") -> str:
    return f"""
import torch
from torch import nn
{textwrap.dedent(top)}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
{textwrap.indent(textwrap.dedent(init), " " * 8)}

    def forward(self, x):
{textwrap.indent(textwrap.dedent(forward), " " * 8)}
"""


LONG = """
for _ in range(20):
    y = torch.relu(x)
return y
"""
"""Some milliseconds of work."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    truth = Oracle(Task.from_source(TASK, "relu").program(), seed=3)
    truth.prepare(truth.cases(("normal", "negated")))
    yield truth
    truth.close()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, servers: WarmServers) -> Iterator[WorkerPool]:
    with WorkerPool(tmp_path_factory.mktemp("cache"), servers=servers) as opened:
        yield opened


@pytest.fixture(scope="module")
def stage(pool, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    build = CppCompiler(tmp_path_factory.mktemp("stage")).build
    return Stage.set_up(pool, threads=2, flush_bytes=8 << 20, task_bytes=4 << 20, build=build)


@pytest.fixture
def fork(pool, oracle, tmp_path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def make(source: str) -> Worker:
        spec = WorkerSpec(role="candidate", source=source, threads=2)
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
    def measure(**sides: Worker) -> Series:
        return timing.measure(sides, oracle, PACE, stage, random.Random(0))

    return measure


@pytest.fixture
def mixed(oracle, stage) -> Callable[..., Series]:
    """As `standard` does: most blocks are supplied by the workers themselves."""

    def measure(**sides: Worker) -> Series:
        pace = replace(PACE, watched=3, kept=6)
        return timing.measure(sides, oracle, pace, stage, random.Random(0))

    return measure


def seconds(series: Series) -> float:
    return sorted(series.times(tolerant=True))[len(series.counted) // 2]


def wrong(series: Series, oracle: Oracle) -> set[Status]:
    judged = [oracle.judge(case, seen, are_inputs_told=False) for case, seen in series.kept()]
    return {found.fault.status for found in judged if found.fault}


# The clock

EDITS = {
    "a name that the clock looks up": """
        import evokernel.bench.clock as ours
        real = ours.perf_counter_ns
        ours.perf_counter_ns = lambda: real() // 2
    """,
    "the code of a function": """
        import evokernel.bench.clock as ours
        def go(self):
            call, arguments, inputs, slot = self._next
            self.kept, self.kept_from = call(*arguments), (inputs, slot)
            numbers = ("nanoseconds", "calls", "involuntary", "faults", "cpu_ns")
            return dict.fromkeys(numbers, 1)
        ours.Clock.go.__code__ = go.__code__
    """,
    "a method": """
        import evokernel.bench.worker as ours
        real = ours.Worker.do_go
        def do_go(self, message):
            reply = real(self, message)
            reply["repetition"]["nanoseconds"] //= 2
            return reply
        ours.Worker.do_go = do_go
    """,
}


@pytest.mark.parametrize("top", EDITS.values(), ids=EDITS)
def test_an_edited_clock_is_seen_from_outside(fork, measured, top):
    worker = fork(module(LONG, top))
    series = measured(candidate=worker)
    found = extra(series, seconds(series))
    assert found.median_s > found.allowed_s
    assert worker.edited()
    failure = race.edited(worker)
    assert failure is not None
    assert failure.status is Status.CONTRACT
    assert "evokernel.bench" in failure.reason


def test_the_module_time_is_not_asked(fork, measured):
    top = """
    import gc, resource, time
    time.perf_counter_ns = time.perf_counter = time.monotonic = lambda: 7
    """
    worker = fork(module(LONG, top))
    series = measured(candidate=worker)
    assert seconds(series) > 1e-4
    assert worker.edited() == []


def test_an_honest_module_edits_nothing(fork, measured):
    worker = fork(module(LONG))
    series = measured(candidate=worker)
    assert worker.edited() == []
    assert series.is_outside
    assert race.edited(worker) is None


# Before the start and after the end


def test_output_that_comes_late_is_not_there(fork, oracle, measured):
    """A thread of its own finishes what `forward` returned; it is read while nothing runs."""
    forward = """
    y = torch.empty_like(x)
    def work():
        for _ in range(60):
            z = torch.relu(x)
        y.copy_(z)
    if self.calls > 1:  # the calls that warm up are honest
        threading.Thread(target=work).start()
    else:
        y = torch.relu(x)
    self.calls += 1
    return y
    """
    worker = fork(module(forward, "import threading", "self.calls = 0"))
    assert Status.WRONG_VALUES in wrong(measured(candidate=worker), oracle)


def test_output_that_comes_late_where_a_worker_supplies_itself_is_not_there(fork, oracle, mixed):
    """What it tells apart by its callers: a thread finishes only calls that it prepared itself."""
    forward = """
    caller = sys._getframe(1)
    while caller and caller.f_code.co_name != "do_go":
        caller = caller.f_back
    if caller is None or "name" not in caller.f_locals["message"]:
        return torch.relu(x)
    y = torch.empty_like(x)
    def work():
        for _ in range(60):
            z = torch.relu(x)
        y.copy_(z)
    threading.Thread(target=work).start()
    return y
    """
    worker = fork(module(forward, "import sys, threading"))
    assert Status.WRONG_VALUES in wrong(mixed(candidate=worker), oracle)


PARTIAL = """
import sys

def is_alone():
    caller = sys._getframe(1)
    while caller and caller.f_code.co_name != "do_go":
        caller = caller.f_back
    return caller is not None and "name" in caller.f_locals["message"]
"""
"""Whether its own process prepares the call, as the frames of its callers show."""


def test_who_is_faster_in_the_blocks_that_make_the_number_is_seen(fork, mixed):
    """Whatever it does there: here it does without most of its work."""
    lazy = LONG.replace("20", "2 if is_alone() else 20")
    series = mixed(candidate=fork(module(lazy, PARTIAL)), eager=fork(module(LONG)))
    found = favour(series, seconds(series), ("eager",))
    assert found is not None
    assert found.alone > 3 * found.watched
    quiet = replace(found, count=9, least=found.alone / found.watched)  # where nobody disturbs
    failure = doubts.wrong_kind(quiet, is_second=True, pace=STRICT)
    assert failure is not None
    assert failure.status is Status.CONTRACT
    assert "`eager`" in failure.reason


def test_who_cannot_tell_the_blocks_apart_gains_nothing(fork, mixed):
    series = mixed(candidate=fork(module(LONG)), eager=fork(module(LONG)))
    found = favour(series, seconds(series), ("eager",))
    assert found is not None
    assert not found.is_too_much


def test_numbers_come_from_one_kind_of_blocks_and_evidence_from_the_other(fork, oracle, mixed):
    series = mixed(candidate=fork(module(LONG)))
    kinds = {block.is_watched for block in series.blocks}
    assert kinds == {True, False}
    assert not any(block.is_watched for block in series.counted)
    assert len(series.times(tolerant=True)) == len(series.counted) < len(series.blocks)
    assert 0 <= extra(series, seconds(series)).count <= len(series.blocks) - len(series.counted)
    assert not wrong(series, oracle)


def test_who_does_not_rest_between_its_own_blocks_is_held_too(fork, mixed):
    restless, other = fork(module("return torch.relu(x)", SPINNER)), fork(module(LONG))
    series = mixed(candidate=restless, other=other)
    assert all(block.turns[CANDIDATE].is_held for block in series.blocks[1:])
    assert len(series.blocks) >= PACE.least


SPINNER = """
import threading
def spin():
    while True:
        sum(range(10_000))
for _ in range(2):
    threading.Thread(target=spin, daemon=True).start()
"""


def test_who_does_not_rest_is_held_while_others_are_timed(fork, measured):
    restless, other = fork(module("return torch.relu(x)", SPINNER)), fork(module(LONG))
    series = measured(candidate=restless, other=other)
    assert all(block.turns[CANDIDATE].is_held for block in series.blocks[1:])
    assert not any(block.turns["other"].is_held for block in series.blocks)
    assert len(series.blocks) >= PACE.least


def test_who_is_held_does_not_run(fork):
    worker = fork(module("return torch.relu(x)", SPINNER))
    worker.hold.stop()
    time.sleep(0.1)
    before = worker.usage().cpu_s
    time.sleep(0.1)
    assert worker.usage().cpu_s == before
    worker.hold.release()
    time.sleep(0.1)
    assert worker.usage().cpu_s > before


def test_who_rests_is_left_alone(fork, measured):
    series = measured(candidate=fork(module(LONG)))
    assert not any(block.turns[CANDIDATE].is_held for block in series.blocks)


def test_a_constructor_does_not_see_the_inputs(fork, oracle, measured):
    init = """
    import gc
    held = [t for t in gc.get_objects() if isinstance(t, torch.Tensor)]
    self.seen = any(t.numel() >= 512 * 1024 for t in held)
    """
    worker = fork(module("return torch.relu(x) * (0 if self.seen else 1)", "", init))
    assert not wrong(measured(candidate=worker), oracle)


# What is made of it


def turn(wall_s: float, inside_s: float) -> Turn:
    repetition = Repetition(
        nanoseconds=round(1e9 * inside_s), calls=1, involuntary=0, faults=0, cpu_ns=0
    )
    return Turn(repetition=repetition, wall_s=wall_s, cpu_s=0, early_s=0, late_s=0)


def told(inside_s: float, beyond_s: float, blocks: int = 9, is_clean: bool = True) -> Series:
    """A series whose calls the parent saw take so much longer than the worker said."""
    return Series(
        blocks=[
            Block(
                {CANDIDATE: inside_s},
                {CANDIDATE: is_clean},
                {
                    CANDIDATE: turn(inside_s + beyond_s + 1e-3 + 1e-5 * number, inside_s),
                    IDLE: turn(1e-3 + 1e-4, 1e-4),
                },
            )
            for number in range(blocks)
        ]
    )


def test_clocks_may_differ_by_what_is_stated_and_no_more():
    assert not extra(told(4e-3, 2e-4), 4e-3).is_too_much
    found = extra(told(4e-3, 4e-3), 4e-3)
    assert found.is_too_much
    assert found.median_s == pytest.approx(4e-3, rel=0.05)


def test_a_lower_bound_of_the_median_by_hand():
    assert lower_bound([3.0]) == 3.0
    assert lower_bound([5.0, 1.0, 4.0]) == 1.0
    # P(0 heads of 9) = 0.002, P(at most 1) = 0.0195: the smallest
    assert lower_bound(range(1, 10)) == 1
    # P(at most 5 heads of 20) = 0.0207, P(at most 4) = 0.0059: the fifth
    assert lower_bound(range(1, 21)) == 5


STRICT = Pace(limit_s=1.0, least=9, tight=0.0, quiet_s=0.0, is_strict=True, kept=2)


@pytest.mark.parametrize(
    ("clean", "is_second", "pace", "status"),
    [
        (9, True, STRICT, Status.CONTRACT),
        (9, False, STRICT, Status.INFRASTRUCTURE),
        (3, True, STRICT, Status.INFRASTRUCTURE),
        (3, True, PACE, None),
    ],
)
def test_a_busy_machine_accuses_nobody(clean, is_second, pace, status):
    found = extra(told(1e-3, 1e-2, blocks=clean), 1e-3)
    failure = doubts.wrong_turns(found, 1e-3, is_second, pace)
    assert (failure and failure.status) == status


def test_disturbed_blocks_accuse_nobody():
    found = extra(told(1e-3, 1e-2, is_clean=False), 1e-3)
    assert found.is_too_much
    assert not found.is_sure


def kinds(alone: float, watched: float, blocks: int = 9, is_clean: bool = True) -> Series:
    """A series in which the candidate takes so many milliseconds in the blocks of each kind."""
    clean = {CANDIDATE: is_clean, "eager": True}
    made = []
    for number in range(blocks):
        noise = 1 + 1e-3 * number
        made.append(Block({CANDIDATE: 1e-3 * alone * noise, "eager": 4e-3}, clean))
        watch = {IDLE: turn(1e-3, 1e-4)}
        made.append(Block({CANDIDATE: 1e-3 * watched * noise, "eager": 4e-3}, clean, watch))
    return Series(blocks=made)


@pytest.mark.parametrize(
    ("series", "is_second", "status"),
    [
        (kinds(2.0, 4.0), True, Status.CONTRACT),
        (kinds(2.0, 4.0), False, Status.INFRASTRUCTURE),
        (kinds(2.0, 4.0, blocks=3), True, Status.INFRASTRUCTURE),
        (kinds(2.0, 4.0, is_clean=False), True, Status.INFRASTRUCTURE),
        (kinds(2.0, 2.2), True, None),
        (kinds(4.0, 2.0), True, None),
    ],
)
def test_kinds_of_blocks_may_differ_by_what_is_stated_and_no_more(series, is_second, status):
    found = favour(series, 2e-3, ("eager",))
    failure = doubts.wrong_kind(found, is_second, STRICT)
    assert (failure and failure.status) == status


@pytest.mark.parametrize(
    ("cores", "blocks", "status"),
    [
        (1.9, 9, Status.CONTRACT),
        (1.1, 9, None),
        (1.0, 9, None),
        (0.2, 9, None),
        (1.9, 3, None),
    ],
)
def test_more_cores_than_threads_were_given_are_no_speed(cores, blocks, status):
    busy = turn(1e-2, 1e-2).model_copy(update={"cpu_s": 9e-3 * cores})
    block = Block({CANDIDATE: 1e-2}, {CANDIDATE: True}, {CANDIDATE: busy, IDLE: turn(1e-3, 1e-4)})
    failure = doubts.wrong_cores(excess_cores(Series(blocks=[block] * blocks), threads=1), 1)
    assert (failure and failure.status) == status


def test_one_kind_of_blocks_says_nothing_of_another():
    assert favour(told(1e-3, 0.0), 1e-3, ()) is None
    assert doubts.wrong_kind(None, is_second=True, pace=STRICT) is None


@pytest.mark.parametrize(
    ("looks", "status"),
    [
        ((2e-2, 2.1e-2, 2e-2), Status.CONTRACT),
        ((2e-2, 2.1e-2), Status.INFRASTRUCTURE),
        ((2e-2, 4e-2, 2e-2), Status.INFRASTRUCTURE),
        ((), Status.INFRASTRUCTURE),
    ],
)
def test_batches_accuse_only_when_undisturbed_looks_agree(looks, status):
    failure = doubts.wrong_batch(ClockCheck(2e-2, looks), 1e-3, STRICT)
    assert failure is not None
    assert failure.status is status
    assert doubts.wrong_batch(ClockCheck(allowed(1e-2), looks), 1e-2, STRICT) is None


# The memory floor counts what the result needs

NEEDS = {
    "a reduction writes next to nothing": (
        "return x.sum(-1)",
        "torch.randn(64, 1000)",
        64 * 1000 * 4 + 64 * 4,
    ),
    "a part of the input": (
        "return x[:, :10] * 2",
        "torch.randn(64, 1000)",
        2 * 64 * 10 * 4,
    ),
    "one of two inputs": (
        "return x[0] * 2",
        "torch.randn(2, 64, 100)",
        2 * 64 * 100 * 4,
    ),
    "a broadcast input": (
        "return x.sum(0)",
        "torch.randn(1, 1000).expand(64, 1000)",
        2 * 1000 * 4,
    ),
}


@pytest.mark.parametrize(("body", "inputs", "most"), NEEDS.values(), ids=NEEDS)
def test_the_floor_counts_no_more_than_is_needed(body, inputs, most):
    source = f"""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [{inputs}]
"""
    graph = capture(Task.from_source(source, "needs").program())
    assert 0 < graph.min_bytes <= most
