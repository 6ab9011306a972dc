"""What is concluded of a GPU's work without one here: names of kernels, shares of time, parcels."""

import pytest
import torch

from evokernel.bench.gpu import attribution, authorship, traced
from evokernel.bench.gpu.parcel import Parcel, moved
from evokernel.bench.messages import Fault, Traced
from evokernel.bench.tensors import pack
from evokernel.evaluation import Diagnostic, Status

CPU = torch.device("cpu")
ILLEGAL = "AcceleratorError: CUDA error: an illegal memory access was encountered"
TRACE = (
    Traced(name="softmax", ns=85, stream=7),
    Traced(name="Memcpy DtoD (Device -> Device)", ns=5, stream=7),
    Traced(name="sm90_xmma_gemm_f32f32", ns=10, stream=7),
)


def fault(reason: str, excerpt: str = "", status: Status = Status.RUNTIME_ERROR) -> Fault:
    found = Diagnostic(severity="error", message=reason, excerpt=excerpt or None)
    return Fault(status=status, reason=reason, phase="run", diagnostics=(found,))


@pytest.mark.parametrize(
    ("reason", "is_on_device"),
    [
        (ILLEGAL, True),
        ("RuntimeError: Triton Error [CUDA]: misaligned address", True),
        ("RuntimeError: `k` cannot be launched: CUDA_ERROR_ILLEGAL_ADDRESS: ...", True),
        ("ValueError: no such thing", False),
    ],
)
def test_faults_of_the_device_are_told_from_others(reason, is_on_device):
    assert attribution.is_on_device(fault(reason)) is is_on_device


def test_what_ended_otherwise_is_no_fault_of_the_device():
    assert not attribution.is_on_device(fault(ILLEGAL, status=Status.TIMEOUT))


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (
            fault("RuntimeError: `row_sum` cannot be launched: CUDA_ERROR_ILLEGAL_ADDRESS"),
            "row_sum",
        ),
        (fault(ILLEGAL, "add_kernel[(n // 4,)](x, out, BLOCK=4)"), "add_kernel"),
        (fault(ILLEGAL), ""),
    ],
)
def test_the_kernel_is_named_by_its_launch(seen, name):
    assert attribution.kernel_of(seen) == name


def test_functions_of_triton_are_found_in_the_text():
    source = """
@triton.autotune(configs=[], key=[])
@triton.jit
def first(x):
    pass


@triton.jit(do_not_specialize=["n"])
def second(x, n):
    pass


@functools.cache
def other():
    pass
"""
    assert authorship.declared(source) == ("first", "second")
    assert authorship.declared("not python (") == ()


def test_coverage_is_the_share_of_device_time():
    assert traced.coverage(TRACE, ("softmax",)) == 0.85
    assert traced.coverage((), ("softmax",)) is None


def test_others_that_compute_are_named_and_copies_are_not():
    assert traced.foreign(TRACE, ("softmax",)) == ("sm90_xmma_gemm_f32f32", 0.1)
    assert traced.foreign(TRACE[:2], ("softmax",)) is None


def test_parcels_keep_values_and_strides():
    value = [
        torch.randn(5, 7).t(),
        {"mask": torch.tensor([True, False]), "rest": (torch.randn(3, 1).expand(3, 4), 2.5, None)},
        torch.empty(0, 3),
    ]
    parcel = Parcel.packed(value, CPU)
    for made in (parcel.value(), parcel.hosted().value(), moved(pack(value), CPU).value()):
        assert torch.equal(made[0], value[0])
        assert made[0].stride() == (1, 7)
        assert torch.equal(made[1]["mask"], value[1]["mask"])
        assert torch.equal(made[1]["rest"][0], value[1]["rest"][0])
        assert made[1]["rest"][0].stride() == (1, 0)
        assert made[1]["rest"][1:] == (2.5, None)
        assert made[2].shape == (0, 3)
    kept = parcel.value()[0]
    parcel.close()
    assert torch.equal(kept, value[0])
