"""What `evokernel doctor` says about GPUs and their tools, by what was seen."""

import pytest

from evokernel.bench.gpu.nvml import Listed
from evokernel.doctor import gpu, nsight
from evokernel.doctor.gpu import Seen
from evokernel.doctor.nsight import Tools

H200 = Listed(
    index=0,
    uuid="GPU-1",
    name="NVIDIA H200",
    capability=(9, 0),
    memory_bytes=140 << 30,
    compute_mode="default",
)
GOOD = Seen(
    listed=(H200,),
    driver="580.65",
    driver_cuda=(13, 0),
    torch_cuda="13.0",
    torch_archs=("sm_80", "sm_90", "compute_120"),
    tools={"nvrtc": "13.0", "cupy": "14.2", "triton": "3.6", "nvcc": None},
)
TOOLS = Tools(
    has_driver=True,
    ncu="/usr/local/cuda/bin/ncu",
    sanitizer="/usr/local/cuda/bin/compute-sanitizer",
    is_restricted=False,
    is_admin=False,
)


def test_a_good_gpu():
    found = gpu.judged(GOOD)
    assert found.state == "ok"
    assert found.found == (
        "NVIDIA H200 (sm_90a, 140 GiB); driver 580.65 (CUDA 13.0); nvrtc 13.0, cupy 14.2, "
        "triton 3.6"
    )


@pytest.mark.parametrize(
    ("changed", "state", "found", "advice"),
    [
        ({"torch_cuda": None}, "warning", "torch is built for processors only", "pip install tor"),
        ({"driver_cuda": (12, 8)}, "warning", "knows CUDA 12.8, torch needs 13.0", "newer driver"),
        ({"driver_cuda": (13, 1)}, "ok", "", ""),
        ({"torch_archs": ("sm_100",)}, "warning", "no kernels for sm_90a (NVIDIA H200)", "newer"),
        ({"torch_archs": ("compute_80",)}, "ok", "", ""),
        ({"torch_archs": ("sm_86",)}, "warning", "no kernels for sm_90a", ""),
        ({"tools": {"nvrtc": "13"}}, "warning", "without cupy, triton", "extra `cuda`"),
        (
            {"listed": (H200.model_copy(update={"compute_mode": "exclusive process"}),)},
            "warning",
            "is in compute mode exclusive process",
            "nvidia-smi -c DEFAULT",
        ),
        ({"listed": (), "hidden": 2}, "missing", "hides all 2 GPUs", "nvidia-smi -L"),
        (
            {"listed": (), "nodes": ("/dev/nvidia0",), "trouble": "it is not loaded"},
            "missing",
            "/dev/nvidia0 without a driver that answers: it is not loaded",
            "--gpus all",
        ),
        ({"listed": ()}, "missing", "no NVIDIA GPU", "`--backend cpp`"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(changed, state, found, advice):
    judged = gpu.judged(GOOD.model_copy(update=changed))
    assert judged.state == state
    assert found in judged.found
    assert advice in judged.advice
    assert judged.facts.keys() == gpu.judged(GOOD).facts.keys()


@pytest.mark.parametrize(
    ("changed", "state", "found", "advice"),
    [
        ({}, "ok", "counters can be read", ""),
        ({"is_restricted": True}, "warning", "for administrators only", "NVreg_RestrictProfiling"),
        ({"is_restricted": True, "is_admin": True}, "ok", "counters can be read", ""),
        ({"is_restricted": None}, "ok", "counters can be read", ""),
        ({"ncu": None}, "warning", "no Nsight Compute", "CUDA toolkit"),
        ({"sanitizer": None}, "warning", "no `compute-sanitizer`", "invalid accesses"),
        ({"has_driver": False}, "missing", "no NVIDIA driver", "--backend cpp"),
    ],
)
def test_what_looks_into_kernels(changed, state, found, advice):
    judged = nsight.judged(TOOLS.model_copy(update=changed))
    assert judged.state == state
    assert found in judged.found
    assert advice in judged.advice
    assert judged.facts.keys() == nsight.judged(TOOLS).facts.keys()


@pytest.mark.parametrize(
    ("text", "is_restricted"),
    [
        ("EnableMSI: 1\nRmProfilingAdminOnly: 1\n", True),
        ("RmProfilingAdminOnly: 0\n", False),
        ("EnableMSI: 1\n", None),
    ],
)
def test_the_drivers_parameters(text, is_restricted):
    assert nsight.restricted(text) == is_restricted
