"""The profile of GPU kernels: pages and traces that were recorded, the rules, planted kernels."""

import contextlib
import json
from pathlib import Path
from typing import get_args

import pytest
import torch

from evokernel.bench.gpu import ncu
from evokernel.bench.gpu.advice import advice
from evokernel.bench.gpu.case import Evidence, Floors
from evokernel.bench.gpu.counters import METRICS, Counters
from evokernel.bench.gpu.counters import read as read_page
from evokernel.bench.gpu.digest import digest
from evokernel.bench.gpu.look import Lookout
from evokernel.bench.gpu.occupancy import possible
from evokernel.bench.gpu.player import Job
from evokernel.bench.gpu.replay import Replay, ReplayFailed, bundle
from evokernel.bench.gpu.trace import Trace, Traced
from evokernel.bench.gpu.trace import read as read_trace
from evokernel.bench.tensors import pack
from evokernel.compilers import Artefact, KernelSource
from evokernel.compilers.cuda import CudaCompiler
from evokernel.compilers.resources import Resources
from evokernel.profile import Bound, Profile
from tests.gpu_profile_kernels import PLANTED

DATA = Path(__file__).parent / "data" / "ncu"
H200 = {"capability": (9, 0), "multiprocessors": 132}


# -- what Nsight Compute prints --------------------------------------------------------------------


@pytest.fixture(scope="module")
def launches() -> dict[str, Counters]:
    return {found.kernel: found for found in read_page((DATA / "page.csv").read_text())}


def test_a_page_is_read(launches):
    assert list(launches) == ["affine", "rounds", "chase", "tiles"]
    found = launches["affine"]
    assert found.seconds == pytest.approx(132.544e-6)
    assert found.dram_bytes == 268_439_808 + 266_011_648
    assert (found.blocks, found.threads, found.registers) == (65536, 256, 16)
    assert (found.dram_share, found.compute_share, found.occupancy) == (0.8961, 0.2412, 0.913)
    assert (found.occupancy_limit, found.limited_by, found.sector_use) == (1.0, "", 1.0)
    assert [stall.reason for stall in found.stalls][:2] == ["long scoreboard", "wait"]
    assert found.stalls[0].share == pytest.approx(38.4 / 43.1, abs=1e-3)


def test_what_a_page_leaves_open_stays_unknown(launches):
    found = launches["chase"]
    assert found.dram_bytes == 16_777_216  # the other half is no number
    assert found.tensor_share is None
    assert (found.limited_by, found.sector_use) == ("the number of blocks", 0.125)
    lean = read_page('"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","f","10"\n')
    assert (lean[0].kernel, lean[0].occupancy) == ("f", None)


def test_limits_of_occupancy_and_shared_memory_are_read(launches):
    found = launches["tiles"]
    assert (found.shared_bytes, found.limited_by) == (65536, "registers")
    assert found.local_bytes == 55_000_000


@pytest.mark.parametrize("text", ["", "==WARNING== No kernels were profiled.\n", '"a","b"\n'])
def test_what_is_no_page_has_no_launches(text):
    assert read_page(text) == ()


def test_a_name_with_commas_is_one_name():
    head = '"ID","Kernel Name","gpu__time_duration.sum"\n'
    (found,) = read_page(head + '"0","void f<int, 4>(float*, int)","1,000"\n')
    assert found.kernel == "void f<int, 4>(float*, int)"
    assert found.seconds == pytest.approx(1e-6)


def test_nsight_compute_is_told_to_leave_the_clocks_alone():
    words = ncu.command("/opt/ncu", METRICS)
    assert words[0] == "/opt/ncu"
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--target-processes") + 1] == "all"
    assert len(set(METRICS)) == len(METRICS) < 60


TOOL = """#!/bin/sh
while [ "$1" != -c ]; do
  [ "$1" = --log-file ] && log=$2
  shift
done
cp {page} "$log"
exit 1
"""


def fake_tool(folder: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = folder / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(TOOL.format(page=page))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")


def test_a_refusal_is_said_once_and_remembered(tmp_path, monkeypatch):
    fake_tool(tmp_path, DATA / "refused.txt", monkeypatch)
    said: list[str] = []
    for _ in range(2):
        known = ncu.access(tmp_path / "cache", contextlib.nullcontext, say=said.append)
        assert not known.is_permitted
        assert "NVreg_RestrictProfilingToAdminUsers=0" in known.refusal
    assert len(said) == 2  # that it is tried, and what came of it
    assert "do without counters" in said[1]


def test_a_machine_without_it_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    known = ncu.access(tmp_path, contextlib.nullcontext)
    if not known.program:  # else it is installed outside the path
        assert "not installed" in known.refusal
        assert not known.is_permitted


# -- traces ----------------------------------------------------------------------------------------


def event(name: str, dur: float, **args: object) -> dict[str, object]:
    told = {"grid": [64, 2, 1], "block": [128, 1, 1], "registers per thread": 40, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "dur": dur, "args": told}


def test_a_trace_is_read():
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "dur": 9}
    events = [event("f", 2), event("g", 30), event("f", 5, grid=[8, 1, 1]), copy]
    found = read_trace(json.dumps({"traceEvents": events}))
    assert [(one.kernel, one.count) for one in found] == [("g", 1), ("f", 2)]
    assert found[1].seconds == pytest.approx(7e-6)
    assert (found[1].blocks, found[0].blocks, found[0].registers) == (8, 128, 40)
    trace = Trace(calls=2, call_s=1e-4, kernels=found)
    assert (trace.launches, trace.device_s) == (1.5, pytest.approx(18.5e-6))
    assert read_trace("{") == read_trace("[]") == ()


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "share", "limiter"),
    [
        (256, 32, 0, 1.0, ""),
        (256, 255, 0, 0.125, "registers"),
        (128, 40, 100 * 1024, 0.125, "shared memory"),
        (32, 16, 0, 0.5, "the number of blocks"),
        (768, 32, 0, 0.75, "the size of its blocks"),
    ],
)
def test_what_a_multiprocessor_holds(threads, registers, shared, share, limiter):
    found = possible((9, 0), threads, registers, shared)
    assert found is not None
    assert (found.share, found.limited_by) == (share, limiter)


def test_an_unknown_device_holds_nobody_knows_what():
    assert possible((3, 5), 256, 32, 0) is None
    assert possible((9, 0), 0, 32, 0) is None


# -- the rules -------------------------------------------------------------------------------------

FLOORS = Floors(
    memory_ms=0.12, compute_ms=0.002, min_bytes=1 << 29, flops=1 << 27, peaks="NVIDIA H200"
)


def traced(**changed: object) -> Trace:
    kernel = Traced(kernel="affine", count=16, seconds=16 * 132e-6, blocks=65536, threads=256)
    kernel = kernel.model_copy(update={"registers": 16})
    known = {"calls": 16, "call_s": 140e-6, "kernels": (kernel,)}
    return Trace.model_validate({**known, **changed})


def judged(
    *counters: Counters, median_ms: float = 0.14, floors: Floors = FLOORS, **changed: object
) -> Profile:
    known = {"trace": traced(), "counters": counters, **H200, **changed}
    return digest(median_ms, floors, Evidence.model_validate(known))


def test_near_the_memory_roof_memory_bounds(launches):
    found = judged(launches["affine"])
    assert (found.bound_by, found.limits) == ("memory", ())
    assert found.roofline_share == pytest.approx(0.857, abs=1e-3)
    assert found.occupancy == 0.913
    assert found.traffic_ratio == pytest.approx(0.9955, abs=1e-3)
    assert found.overhead_share == pytest.approx(0.057, abs=1e-3)
    assert found.notes[0] == advice("memory", ())[0]
    assert found.stalls[0].reason == "long scoreboard"


def test_busy_arithmetic_bounds(launches):
    found = judged(launches["rounds"], median_ms=2.3)
    assert (found.bound_by, found.occupancy_limited_by) == ("compute", "")


def test_waiting_warps_are_latency(launches):
    found = judged(launches["chase"], median_ms=2.9)
    assert found.bound_by == "latency"
    assert {"few-blocks", "uncoalesced"} <= set(found.limits)
    assert any("global memory" in note for note in found.notes)


def test_what_else_costs_time_is_named(launches):
    spilled = Resources(kernel="tiles", registers=255, spill_stores=96, spill_loads=128)
    floors = FLOORS.model_copy(
        update={"memory_ms": 0.01, "compute_ms": 0.02, "min_bytes": 1 << 24, "has_products": True}
    )
    found = judged(launches["tiles"], floors=floors, resources=(spilled,))
    expected = {"spills", "barriers", "shared-memory", "no-tensor-cores", "low-occupancy"}
    assert (found.bound_by, found.spills, found.registers) == ("latency", 224, 255)
    assert expected | {"extra-traffic"} == set(found.limits)
    assert found.occupancy_limited_by == "registers"
    assert len(found.notes) > len(found.limits)


def test_most_of_the_time_between_kernels_is_launch():
    short = Traced(kernel="affine", count=128, seconds=128 * 2e-6, blocks=1, threads=256)
    found = judged(trace=Trace(calls=1, call_s=1.3e-3, kernels=(short,)), median_ms=1.3)
    assert found.bound_by == "launch"
    assert found.limits[:2] == ("many-launches", "call-overhead")
    assert found.launches == 128
    assert "CUDA graph" in found.notes[0]


def test_without_counters_times_and_the_compiler_speak():
    found = judged(refusal="Nsight Compute is not installed")
    assert (found.bound_by, found.occupancy, found.occupancy_limit) == ("memory", None, 1.0)
    assert found.notes[-1] == "Nsight Compute is not installed"
    far = judged(median_ms=1.0, resources=(Resources(kernel="f", registers=255, spill_loads=8),))
    assert (far.bound_by, far.limits) == ("latency", ("spills",))


def test_without_anything_nothing_is_claimed():
    found = digest(1.0, Floors())
    assert (found.bound_by, found.roofline_share, found.limits) == ("unknown", None, ())
    assert found.registers is found.launches is found.spills is found.traffic_ratio is None


def test_a_last_wave_that_idles_is_named(launches):
    partial = launches["affine"].model_copy(update={"waves": 1.2, "dram_share": 0.4})
    assert judged(partial.model_copy(update={"memory_share": 0.4})).limits == ("partial-wave",)


def test_every_bound_of_a_gpu_has_its_advice():
    assert all(advice(bound, ()) for bound in set(get_args(Bound)) - {"unknown", "contention"})


# -- replays ---------------------------------------------------------------------------------------

PLAIN = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""


@contextlib.contextmanager
def job_of(source: str, inputs: list[object], kernels: tuple[object, ...] = ()):
    with pack(([], {}, None)) as making, pack(inputs) as arguments:
        yield Job.model_validate(
            {
                **{"source": source, "making": bundle(making), "inputs": (bundle(arguments),)},
                "kernels": kernels,
            }
        )


def test_a_replay_that_cannot_be_says_why_and_leaves_nothing():
    if torch.cuda.is_available():
        pytest.skip("it can")
    with job_of(PLAIN, [torch.ones(4)]) as job, Replay("each") as replay:
        folder = replay.folder
        with pytest.raises(ReplayFailed, match="CUDA|NVIDIA"):
            replay.load(job)
    assert not folder.exists()


def built(source: str, cache: Path) -> tuple[KernelSource, Artefact]:
    """The one kernel of a planted candidate."""
    code = source.partition('r"""')[2].partition('"""')[0]
    kernel = KernelSource(backend="cuda", source=code, name="kernel_0.cu")
    artefact = CudaCompiler(cache).build(kernel)
    assert isinstance(artefact, Artefact), artefact
    return kernel, artefact


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(PLANTED))
def test_planted_kernels_are_told_apart(name, warm_cache):
    planted = PLANTED[name]()
    kernel = built(planted.source, warm_cache)
    with (
        job_of(planted.source, planted.inputs, (kernel,)) as job,
        Lookout(warm_cache, contextlib.nullcontext) as lookout,
    ):
        found = lookout.examine(job, kernel[1].resources)
    floors = Floors(
        memory_ms=planted.min_bytes / 4.3e9,
        compute_ms=planted.flops / 60e9,
        min_bytes=planted.min_bytes,
        flops=planted.flops,
    )
    profile = digest(1e3 * found.trace.call_s, floors, found)
    assert profile.bound_by == name, profile.notes
    assert found.trace.kernels, found.trace.note
    assert found.counters or found.refusal
