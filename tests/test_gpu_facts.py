"""What is known of a GPU without one: facts, floors, NVML's answers, who disturbs, the lock."""

import subprocess
import sys
import time

import pytest

from evokernel.bench.disturbance import device_lock
from evokernel.bench.gpu import facts, lock, monitor, nvml
from evokernel.bench.gpu.facts import GpuFacts
from evokernel.bench.gpu.monitor import Signs
from evokernel.bench.gpu.nvml import Listed, State, Use
from evokernel.bench.roofline import Rates
from evokernel.errors import DeviceMissing, WorkerError

OWN = frozenset({10, 11})


def gpu_facts(**changed: object) -> GpuFacts:
    rates = tuple(
        Rates(working_set=size, copy_rate=copy, read_rate=read, fill_rate=1.0)
        for size, copy, read in ((15 << 20, 6000.0, 9000.0), (1 << 30, 4300.0, 4400.0))
    )
    known = {
        "name": "NVIDIA H200",
        "uuid": "GPU-1f2e",
        "index": 0,
        "capability": (9, 0),
        "multiprocessors": 132,
        "l2_bytes": 60 << 20,
        "memory_bytes": 140 << 30,
        "shared_bytes": 232448,
        "registers": 65536,
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "driver": "580.65",
        "driver_cuda": (13, 0),
        "runtime": "13.0",
        "torch": "2.11.0",
        "compiler": "NVRTC 13.0",
        "rates": rates,
        "matrix": {"fp32": 5e4, "bf16": 8e5},
        "gflops": 5e4,
        "launch_s": 3e-6,
    }
    return GpuFacts.model_validate({**known, **changed})


def state(**changed: object) -> State:
    known = {"sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 40, "reasons": 0, "pids": (10,)}
    return State.model_validate({**known, **changed})


def signs(clock: float, uses: tuple[Use, ...] | None = (), **changed: object) -> Signs:
    return Signs(clock=clock, state=state(**changed), uses=uses)


def test_floors_by_precision():
    known = gpu_facts()
    assert known.memory_floor_ms(1 << 30) == pytest.approx((1 << 30) / 4.4e9)
    assert known.compute_floor_ms(10**12) == pytest.approx(20.0)
    assert known.at("bf16").compute_floor_ms(10**12) == pytest.approx(1.25)
    assert known.at("tf32").compute_floor_ms(10**12) == pytest.approx(20.0)
    assert known.at("bf16").fingerprint == known.fingerprint
    assert known.flush_bytes == 120 << 20
    assert known.arch == "sm_90a"


def test_the_fingerprint_rests_on_device_driver_and_versions():
    known = gpu_facts()
    assert known.fingerprint.startswith("cuda-nvidia-h200-")
    changes = ({"driver": "590.1"}, {"torch": "2.12"}, {"name": "NVIDIA H100"}, {"compiler": ""})
    others = {gpu_facts(**changed).fingerprint for changed in changes}
    assert len(others) == 4
    assert known.fingerprint not in others
    same = gpu_facts(gflops=1.0, uuid="GPU-other", index=3)
    assert same.fingerprint == known.fingerprint


def test_facts_survive_their_file():
    known = gpu_facts()
    assert GpuFacts.model_validate_json(known.model_dump_json()) == known
    assert "copy 4300" in known.in_words()
    assert "fp32 50, bf16 800" in known.in_words()
    assert "too low" in gpu_facts(quiet=False).in_words()


def test_working_sets_fit_the_memory():
    assert facts.working_sets(60 << 20, 140 << 30)[-2:] == (256 << 20, 1 << 30)
    assert facts.working_sets(60 << 20, 140 << 30)[0] == 15 << 20
    assert max(facts.working_sets(4 << 20, 2 << 30)) == 256 << 20


def test_a_quiet_moment():
    seen = monitor.between(signs(1.0), signs(3.0), OWN)
    assert seen.is_calm
    assert seen.seconds == 2.0
    assert seen.in_words() == "SM clock 1980 MHz, memory clock 3201 MHz, 40 °C"


@pytest.mark.parametrize(
    ("reasons", "is_calm", "words"),
    [
        (0x1 | 0x2, True, ""),
        (0x4, True, ""),
        (0x20, False, "held back by heat (driver)"),
        (0x40 | 0x8, False, "held back by hardware slowdown, heat (hardware)"),
        (0x80, False, "held back by power supply"),
    ],
)
def test_reasons_for_low_clocks(reasons, is_calm, words):
    seen = monitor.between(signs(1.0), signs(2.0, reasons=reasons), OWN)
    assert seen.is_calm == is_calm
    assert words in seen.in_words()


def use(pid: int, percent: int) -> Use:
    return Use(pid=pid, stamp_us=5, sm_percent=percent)


@pytest.mark.parametrize(
    ("pids", "uses", "others"),
    [
        ((10, 11), (use(10, 90),), 0),
        ((10, 77), (), 0),  # it has a context and does nothing
        ((10, 77), (use(77, 0), use(10, 50)), 0),
        ((10, 77), (use(77, 30), use(77, 20)), 1),
        ((10, 77), None, 1),  # who computed is not told
        ((901, 902), (use(901, 50),), 0),  # numbered as on the host
        ((901, 902, 903, 904), (use(901, 50),), 1),  # ours are two workers and this process
        (None, None, 0),
    ],
)
def test_other_processes(pids, uses, others):
    seen = monitor.between(signs(1.0), signs(2.0, uses, pids=pids), OWN)
    assert seen.others == others
    assert seen.is_calm == (others == 0)


def test_a_silent_library_disturbs_nobody():
    nothing = Signs(clock=1.0, state=None, uses=None)
    seen = monitor.between(nothing, nothing, OWN)
    assert seen.is_calm
    assert seen.in_words() == "clocks unknown"


def test_blocks_with_a_lower_clock():
    assert monitor.slowed([1980, 1980, 1905, 1755, 1980]) == [False, False, False, True, False]
    assert monitor.slowed([1200, 1185, 1200]) == [False] * 3
    assert monitor.slowed([None, None]) == [False, False]


def listed(index: int) -> Listed:
    return Listed(
        index=index,
        uuid=f"GPU-{index}a{index}b-77",
        name="A",
        capability=(9, 0),
        memory_bytes=1,
        compute_mode="default",
    )


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("0,1,2", [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-1a1b-77", [1]),
        ("GPU-2a, 0", [2, 0]),
        ("GPU-", []),  # fits several
        ("1,9,0", [1]),
        ("-1", []),
        ("", []),
    ],
)
def test_what_cuda_shows(named, found):
    assert [each.index for each in nvml.visible([listed(n) for n in range(3)], named)] == found


def test_without_a_driver(monkeypatch):
    try:
        nvml.opened()
    except DeviceMissing as error:
        assert "no NVIDIA driver is here" in str(error)  # noqa: PT017
        watcher = monitor.Monitor(0)
        assert "not watched" in watcher.note
        assert watcher.read().state is None
        with pytest.raises(DeviceMissing):
            lock.lock_name(0)


def test_the_lock_is_shared_by_all_users(tmp_path):
    folder = tmp_path / "devices"
    assert lock.shared_folder("gpu-1f2e", folder) == folder
    assert folder.stat().st_mode & 0o7777 == 0o1777
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o644
    file.chmod(0o444)  # as another user's looks
    with device_lock("gpu-1f2e", 1.0, folder):
        code = (
            "import sys; from pathlib import Path\n"
            "from evokernel.bench.gpu.lock import gpu_lock\n"
            f"with gpu_lock('gpu-1f2e', 0.05, Path({str(folder)!r})): pass\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "the lock of device `gpu-1f2e`" in done.stderr
    with lock.gpu_lock("gpu-1f2e", 0.05, folder) as waited:
        assert waited < 5


def test_a_folder_that_is_a_link_is_not_used(tmp_path):
    (tmp_path / "devices").symlink_to(tmp_path)
    assert lock.shared_folder("gpu-1f2e", tmp_path / "devices") != tmp_path / "devices"


def test_a_taken_lock(tmp_path):
    began = time.monotonic()
    with (
        lock.gpu_lock("gpu-a", 1.0, tmp_path),
        pytest.raises(WorkerError, match="gpu-a"),
        lock.gpu_lock("gpu-a", 0.05, tmp_path),
    ):
        pass
    assert time.monotonic() - began < 30
