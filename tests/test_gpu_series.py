"""What becomes of times that a GPU told: dropped blocks, late work, clocks that disagree."""

import pytest

from evokernel.bench import race
from evokernel.bench.gpu import timing, wallclock
from evokernel.bench.gpu.monitor import GpuDisturbance
from evokernel.bench.messages import Repetition
from evokernel.bench.pace import QUICK, STANDARD
from evokernel.bench.series import CANDIDATE, Block, Series
from evokernel.bench.wallclock import ClockCheck
from evokernel.evaluation import Status
from evokernel.wording import call_time

SURE = (2e-4, 2.02e-4, 2.05e-4)


def signs(**changed: object) -> GpuDisturbance:
    known = {
        "seconds": 0.4,
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "temperature_c": 40,
        "reasons": 0,
        "others": 0,
        "idle_others": 0,
    }
    return GpuDisturbance.model_validate({**known, **changed})


def block(seconds: float = 1e-4, late: float = 0.0, **changed: object) -> Block:
    return Block(
        seconds={CANDIDATE: seconds, "eager": 2e-4},
        clean={CANDIDATE: True, "eager": True},
        walls={CANDIDATE: 5e-4, "eager": 6e-4},
        late={CANDIDATE: late, "eager": 0.0},
        signs=signs(**changed),
    )


def kept(*blocks: Block) -> list[bool]:
    return [all(each.clean.values()) for each in timing.dropped(blocks)]


def test_calls_in_a_repetition():
    assert timing.shots_of("graph", 1e-5) == timing.SHOTS
    assert timing.shots_of("batch", 1e-5) == timing.SHOTS
    assert timing.shots_of("single", 5e-5) == 4
    assert timing.shots_of("single", 3e-5) == timing.MOST_SHOTS
    assert timing.shots_of("single", 0.2) == 1


def test_what_a_repetition_tells():
    shared = {"calls": 1, "involuntary": 0, "faults": 0, "cpu_ns": 0}
    found = [
        Repetition(nanoseconds=ns, wall_ns=50_000, late_ns=late, **shared)
        for ns, late in ((9_000, 10), (10_000, 20), (30_000, 30))
    ]
    assert timing.told(found) == pytest.approx((1e-5, 5e-5, 2e-8))
    assert timing.told([Repetition(nanoseconds=9, **shared)])[1] is None


def test_held_back_and_slow_blocks_are_dropped():
    usual = [block()] * 4
    assert kept(*usual, block(reasons=0x40), block(sm_mhz=1500)) == [True] * 4 + [False] * 2
    assert kept(*usual, block(reasons=0x4), block(sm_mhz=1905)) == [True] * 6


def test_others_spoil_what_was_measured_within_the_second_before():
    blocks = [block()] * 5
    assert kept(*blocks, block(others=1), block()) == [True] * 3 + [False] * 3 + [True]
    again = timing.dropped(timing.dropped([*blocks, block(others=1)]))
    assert [each.clean[CANDIDATE] for each in again] == [True] * 3 + [False] * 3


def test_series_keeps_both_times():
    series = Series(blocks=[block(), block(1.2e-4)], way="single")
    assert series.times() == [1e-4, 1.2e-4]
    assert series.walls("eager") == [6e-4, 6e-4]
    series.count_walls(CANDIDATE)
    assert series.times() == [5e-4, 5e-4]
    assert series.pairs("eager") == [(2e-4, 5e-4)] * 2
    assert series.on_walls == {CANDIDATE}
    assert Series(blocks=[Block({CANDIDATE: 1.0}, {CANDIDATE: True})]).walls() == []


@pytest.mark.parametrize(
    ("late", "count", "is_second", "pace", "status"),
    [
        (5e-6, 20, True, STANDARD, None),
        (1e-4, 20, True, STANDARD, Status.CONTRACT),
        (1e-4, 20, False, STANDARD, Status.INFRASTRUCTURE),
        (1e-4, 5, True, STANDARD, Status.INFRASTRUCTURE),
        (1e-4, 5, True, QUICK, None),
    ],
)
def test_work_left_on_other_streams(late, count, is_second, pace, status):
    series = Series(blocks=[block(late=late)] * count, way="single")
    found = wallclock.late(series, 1e-4)
    failure = wallclock.left_behind(found, is_second, pace)
    assert (failure.status if failure else None) == status
    if status is Status.CONTRACT:
        assert failure is not None
        assert "leaves work behind" in failure.reason


@pytest.mark.parametrize(
    ("seconds", "looks", "pace", "status"),
    [
        (1.2e-4, (), STANDARD, None),
        (2e-4, SURE, STANDARD, Status.CONTRACT),
        (2e-4, SURE[:2], STANDARD, Status.INFRASTRUCTURE),
        (2e-4, (2e-4, 4e-4, 9e-4), STANDARD, Status.INFRASTRUCTURE),
        (2e-4, SURE[:2], QUICK, None),
    ],
)
def test_replays_from_outside(seconds, looks, pace, status):
    failure = wallclock.wrong_replays(ClockCheck(seconds, looks), 1e-4, pace)
    assert (failure.status if failure else None) == status


def test_short_calls_differ_more_between_processes():
    assert wallclock.between(1e-5, "graph") == pytest.approx(0.0065)
    assert wallclock.between(1e-5, "batch") == pytest.approx(0.0115)
    assert wallclock.between(1e-3, "single") < 0.0017
    pairs = [Block({CANDIDATE: 1e-5, "eager": 1e-5}, {CANDIDATE: True, "eager": True})] * 9
    on_gpu, on_cpu = (
        race.interval([Series(blocks=pairs, way=way)], "eager") for way in ("graph", None)
    )
    assert on_gpu.high - on_gpu.low > on_cpu.high - on_cpu.low


def test_a_call_in_words():
    assert call_time(0.01234) == "0.01234 ms"
    assert call_time(0.01234, 0.0456) == "0.01234 ms on the device, 0.04560 ms wall"
