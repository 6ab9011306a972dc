"""What the processor can do at most: measured peaks, the roofline's floor, the digest."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from evokernel.bench import device as devices
from evokernel.bench import profiler
from evokernel.bench.device import DeviceFacts, Rates, device_facts
from evokernel.bench.peaks import Peaks
from evokernel.compilers.cpp import CppCompiler
from evokernel.testing import fake_graph


def facts(**changed: object) -> DeviceFacts:
    rates = tuple(
        Rates(working_set=size, copy_rate=copy, read_rate=1.0, fill_rate=1.0)
        for size, copy in ((1 << 20, 100.0), (1 << 24, 40.0), (1 << 28, 10.0))
    )
    known = {
        "name": "Some CPU (R) 9000",
        "threads": 2,
        "l2_bytes": 1 << 20,
        "l3_bytes": 1 << 24,
        "memory_bytes": 1 << 34,
        "compiler": "g++ 12",
        "rates": rates,
        "gflops": 200.0,
    }
    return DeviceFacts.model_validate({**known, **changed})


def test_rates_are_interpolated_along_the_logarithm_of_the_size():
    known = facts()
    assert known.bandwidth(1 << 10) == 100.0
    assert known.bandwidth(1 << 20) == 100.0
    assert known.bandwidth(1 << 22) == pytest.approx(70.0)
    assert known.bandwidth(1 << 26) == pytest.approx(25.0)
    assert known.bandwidth(1 << 34) == 10.0


def test_the_floor_is_the_longer_of_both_roofs():
    known = facts()
    assert known.memory_floor_ms(1 << 28) == pytest.approx((1 << 28) / 10e6)
    assert known.memory_floor_ms(1 << 20, working_set=1 << 28) == pytest.approx((1 << 20) / 10e6)
    assert known.compute_floor_ms(10**9) == pytest.approx(5.0)
    assert known.floor_ms(1 << 20, 10**9) == pytest.approx(5.0)
    assert known.floor_ms(1 << 28, 10**9) == known.memory_floor_ms(1 << 28)


def test_the_fingerprint_tells_devices_apart():
    known = facts()
    assert known.fingerprint.startswith("cpu-some-cpu-r-9000-2t-")
    others = {facts(**changed).fingerprint for changed in ({"threads": 4}, {"compiler": "clang"})}
    assert known.fingerprint not in others
    assert len(others) == 2
    assert facts(gflops=1.0).fingerprint == known.fingerprint


def test_the_flush_is_larger_than_the_last_cache():
    assert facts().flush_bytes > facts().l3_bytes


def test_the_digest():
    graph = fake_graph(rows=1 << 16)  # 8 MiB moved, a million operations
    floor_ms = facts().memory_floor_ms(graph.min_bytes)
    near = profiler.digest(floor_ms / 0.8, graph, facts())
    assert (near.bound_by, near.roofline_share) == ("memory", pytest.approx(0.8))
    assert near.gbytes_per_s == pytest.approx(0.8 * facts().bandwidth(graph.min_bytes))
    assert profiler.digest(floor_ms * 10, graph, facts()).bound_by == "latency"
    assert profiler.digest(0.01, fake_graph(), facts()).bound_by == "launch"
    assert profiler.digest(1.0, None, facts()).bound_by == "unknown"
    heavy = graph.model_copy(update={"flops": 10**9})
    assert profiler.digest(6.0, heavy, facts()).bound_by == "compute"


def test_peaks_are_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "SLICE_S", 0.005)
    monkeypatch.setattr(devices, "QUIET_S", 0.1)
    compiler = CppCompiler(tmp_path)
    with ThreadPoolExecutor(2) as pool:  # the lock lets one measure; the other reads what it found
        found, beside = pool.map(lambda _: device_facts(tmp_path, 1, compiler), range(2))
    assert found == beside
    assert found.gflops > 0
    assert [rate.working_set for rate in found.rates] == sorted(
        {r.working_set for r in found.rates}
    )
    assert all(rate.best > 0 for rate in found.rates)
    assert found.rates[-1].working_set > found.l3_bytes >= 2 * found.l2_bytes
    (path,) = (tmp_path / "devices").iterdir()
    assert device_facts(tmp_path, 1, compiler) == found
    monkeypatch.setattr(devices, "MOST_BYTES", 2 * found.l3_bytes)  # less memory to touch
    settled: list[bool] = []
    path.write_text("{")
    again = device_facts(tmp_path, 1, compiler, settle=lambda: settled.append(True))
    device_facts(tmp_path, 1, compiler, settle=lambda: settled.append(True))
    assert settled == [True]
    assert again.fingerprint == found.fingerprint
    better = devices.measure_again(tmp_path, 1, compiler, again)
    for old, new in zip(again.rates, better.rates, strict=True):
        assert new.copy_rate >= old.copy_rate
    assert 0 < better.region_s <= again.region_s
    of_another_kernel = better.model_copy(update={"gflops": 1e9, "format": devices.FORMAT - 1})
    path.write_text(of_another_kernel.model_dump_json())
    assert 0 < device_facts(tmp_path, 1, compiler).gflops < 1e9


def test_the_measuring_kernel_says_what_it_moves(tmp_path):
    peaks = Peaks(CppCompiler(tmp_path))
    assert len(peaks.bandwidth(1 << 16, 1, 0.002)) == 3
    assert peaks.multiply_add(1, 0.002) > 0
