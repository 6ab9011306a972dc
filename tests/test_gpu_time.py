"""Time on a GPU: the clock in the worker, the measured peaks. All of it needs a device."""

import ctypes
import gc
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch

from evokernel.bench.messages import TimePlan, Variant
from evokernel.compilers.choice import EveryCompiler

pytestmark = pytest.mark.gpu

MIB = 1 << 20


class Inputs:
    """One tensor with several slots on the device, as an input set of a worker has them."""

    def __init__(self, numbers: int, slots: int = 2) -> None:
        self.pristine = torch.randn(numbers, device="cuda")
        self.slots = [torch.empty_like(self.pristine) for _ in range(slots)]

    def arguments(self, slot: int, variant: Variant | None = None) -> tuple[Any, ...]:
        buffer = self.slots[slot % len(self.slots)]
        buffer.copy_(self.pristine)
        if variant is not None:
            buffer.mul_(variant.sign * variant.scale)
        return self.present(slot)

    def present(self, slot: int) -> tuple[Any, ...]:
        return (self.slots[slot % len(self.slots)],)


@pytest.fixture
def clock():
    from evokernel.bench.gpu.clock import CudaClock

    yield CudaClock(0)
    gc.collect()
    torch.cuda.empty_cache()


@pytest.fixture(scope="module")
def l2_bytes() -> int:
    known: Any = torch.cuda.get_device_properties(0)
    return int(known.L2_cache_size)


def plan(count: int = 1, **changed: Any) -> TimePlan:
    variants = tuple(Variant(slot=n, scale=1.0 + n / 8) for n in range(count))
    return TimePlan(variants=variants, **changed)


def median_ns(found: list[Any]) -> float:
    return statistics.median(each.nanoseconds for each in found)


def test_events_and_wall_agree_on_long_calls(clock):
    inputs: Any = Inputs(64 * MIB)  # 256 MiB, read and written
    wish = plan(5, warmups=2, wall=Variant(scale=3.0))
    found = clock.time(lambda x: x * 2, inputs, wish)
    assert {each.way for each in found} == {"single"}
    assert found[0].wall_ns == pytest.approx(median_ns(found), rel=0.3)
    assert max(each.late_ns for each in found) < 8_000
    assert torch.equal(clock.kept, inputs.pristine * wish.variants[-1].scale * 2)
    assert clock.where == (inputs, 4)


def test_short_calls_come_out_of_a_graph(clock, l2_bytes):
    inputs: Any = Inputs(MIB)
    wish = plan(16, way="graph", warmups=2, flush_bytes=2 * l2_bytes, wall=Variant(scale=3.0))
    found = clock.time(lambda x: x * 2, inputs, wish)
    assert {each.way for each in found} == {"graph"}
    assert len(found) == 16
    assert 500 < median_ns(found) < 50_000
    last = wish.variants[-1]
    assert torch.equal(clock.kept, inputs.pristine * last.scale * 2)
    assert clock.replay(lambda x: x * 2, inputs, 64, 0) == "graph"


def test_what_cannot_be_captured_is_timed_in_batches(clock):
    def waits(x: torch.Tensor) -> torch.Tensor:
        return x * float(x[0].item() > 0)

    inputs: Any = Inputs(MIB)
    found = clock.time(waits, inputs, plan(4, way="graph", warmups=1))
    assert {each.way for each in found} == {"batch"}
    assert clock.replay(waits, inputs, 16, 0) == "batch"
    again = clock.time(lambda x: x + 1, inputs, plan(1, warmups=1))
    assert torch.equal(clock.kept, inputs.pristine + 1)
    assert len(again) == 1


def test_what_a_capture_does_not_see_is_no_graph(clock):
    side = torch.cuda.Stream()
    made = torch.empty(MIB, device="cuda")

    def beside(x: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(side):
            torch.mul(x, 2, out=made)
        return made

    inputs: Any = Inputs(MIB)
    found = clock.time(beside, inputs, plan(4, way="graph", warmups=1))
    assert {each.way for each in found} == {"batch"}


def test_work_left_on_another_stream_is_noticed(clock):
    side = torch.cuda.Stream()

    def leaves(x: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
        return x + 1

    inputs: Any = Inputs(MIB)
    (found,) = clock.time(leaves, inputs, plan(warmups=1))
    assert found.late_ns > 200_000
    assert found.nanoseconds < found.late_ns
    (honest,) = clock.time(lambda x: x + 1, inputs, plan(warmups=1))
    assert honest.late_ns < 20_000


def test_the_flush_empties_the_cache(clock, l2_bytes):
    inputs: Any = Inputs(l2_bytes // 4 // 4, slots=1)
    result = torch.empty_like(inputs.pristine)

    def reads(x: torch.Tensor) -> torch.Tensor:
        return torch.mul(x, 2, out=result)

    warm = clock.time(reads, inputs, plan(16, way="graph", warmups=2))
    cold = clock.time(reads, inputs, plan(16, way="graph", flush_bytes=2 * l2_bytes))
    assert median_ns(cold) > 1.1 * median_ns(warm)


def test_the_host_is_no_part_of_device_time(clock):
    import time

    def slow_host(x: torch.Tensor) -> torch.Tensor:
        time.sleep(3e-4)
        return x + 1

    inputs: Any = Inputs(4 * MIB)
    wish = plan(8, warmups=1, wall=Variant(scale=3.0))
    found = clock.time(slow_host, inputs, wish)
    assert median_ns(found) < 1.5e5
    assert found[0].wall_ns > 3e5


def test_who_lets_lines_persist_is_timed_call_by_call(clock, l2_bytes):
    def persists(x: torch.Tensor) -> torch.Tensor:
        assert ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(6, ctypes.c_size_t(1 << 20)) == 0
        return x + 1

    inputs: Any = Inputs(MIB)
    wish = plan(4, way="graph", warmups=1, flush_bytes=2 * l2_bytes)
    assert {each.way for each in clock.time(persists, inputs, wish)} == {"batch"}
    assert clock.replay(persists, inputs, 16, 0) == "batch"


def test_a_prepared_call(clock, l2_bytes):
    inputs: Any = Inputs(MIB)
    inputs.arguments(1)
    clock.flush(2 * l2_bytes)
    clock.ready(lambda x: x + 1, inputs, 1)
    told = clock.go()
    assert 500 < told["nanoseconds"] < 1e6
    assert clock.where == (inputs, 1)
    clock.batch(lambda x: x + 2, inputs, 3, 1)
    assert torch.equal(clock.kept, inputs.pristine + 2)


def test_a_failing_call_can_be_followed_by_others(clock):
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not today")

    inputs: Any = Inputs(MIB)
    with pytest.raises(ValueError, match="not today"):
        clock.time(fails, inputs, plan(2, way="graph"))
    assert len(clock.time(lambda x: x + 1, inputs, plan(2, way="graph"))) == 2


def test_a_kernel_with_random_numbers_stays_as_it_was(clock):
    inputs: Any = Inputs(MIB)
    call: Callable[..., Any] = torch.nn.functional.dropout
    found = clock.time(call, inputs, plan(2, way="graph"))
    assert {each.way for each in found} == {"batch"}
    torch.manual_seed(1)
    assert call(inputs.pristine).shape == inputs.pristine.shape


def test_peaks_are_measured_once_and_kept(tmp_path):
    from evokernel.bench.gpu.facts import gpu_facts, measure_again
    from evokernel.bench.gpu.lock import lock_name, physical

    compiler = EveryCompiler(tmp_path, first="cuda")
    found = gpu_facts(tmp_path, 0, compiler)
    known: Any = torch.cuda.get_device_properties(0)
    assert physical(0).uuid == found.uuid
    assert lock_name(0) == found.uuid.lower()
    assert found.l2_bytes == known.L2_cache_size
    assert found.rates[0].best > found.rates[-1].best > 0
    assert found.matrix["fp32"] > 0
    assert 0 < found.launch_s < 1e-3
    assert gpu_facts(tmp_path, 0, compiler) == found
    better = measure_again(tmp_path, 0, compiler, found)
    assert better.fingerprint == found.fingerprint
    assert better.rates[-1].best >= found.rates[-1].best
