"""CUDA and Triton candidates judged on a GPU: passed with times, or a status, and the next passes.

What can be tried without a GPU is in `test_gpu_confinement.py`.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evokernel.attempt import Candidate
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.config import BenchConfig
from evokernel.evaluation import Evaluation, Status
from evokernel.task import Task

pytestmark = pytest.mark.gpu

RUN_S = 6.0
"""Wall limit of a call: what an endless kernel costs."""
NEXT_S = 10.0
"""How soon a good candidate has to pass after one that broke its worker."""

CUDA = '''
import torch

from evokernel import jit

KERNEL = jit.cuda_module(r"""
__device__ float larger(float a, float b) { return a > b || isnan(a) ? a : b; }

extern "C" __global__ void softmax(const float* x, float* out, int columns) {
  __shared__ float part[8];
  const long long start = (long long)blockIdx.x * columns;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float top = __int_as_float(0xff800000);  // NVRTC has no INFINITY by itself
  for (int c = threadIdx.x; c < columns; c += blockDim.x) top = larger(x[start + c], top);
  for (int s = 16; s; s >>= 1) top = larger(__shfl_xor_sync(~0u, top, s), top);
  if (lane == 0) part[warp] = top;
  __syncthreads();
  for (int w = 0; w < 8; w++) top = larger(part[w], top);
  __syncthreads();
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += expf(x[start + c] - top);
  for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(~0u, sum, s);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int w = 0; w < 8; w++) sum += part[w];
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    out[start + c] = expf(x[start + c] - top) / sum;
}
""")


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        KERNEL.softmax[x.shape[0], 256](x, out, x.shape[1])
        return out
'''

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    place = tl.arange(0, BLOCK)
    values = tl.load(x + start + place, mask=place < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + start + place, powers / tl.sum(powers, 0), mask=place < columns)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
"""

STORE = "    out[start + c] = expf"
SUM = "  float sum = 0.0f;"
ALLOCATED = "out = torch.empty_like(x)"

BROKEN = {
    "illegal": (
        CUDA.replace(STORE, "    out[(1LL << 40) + start + c] = expf"),
        Status.RUNTIME_ERROR,
        ("`softmax`", "illegal"),
    ),
    "misaligned": (
        CUDA.replace(SUM, f"{SUM} out[0] = *(const float*)(1 + (const char*)x);"),
        Status.RUNTIME_ERROR,
        ("`softmax`", "misaligned"),
    ),
    "endless": (
        CUDA.replace(SUM, f"while (clock64() != 1) part[warp] += 1.0f; {SUM}"),
        Status.TIMEOUT,
        ("wall-clock limit",),
    ),
    "memory": (
        CUDA.replace(
            ALLOCATED,
            f"self.held = [torch.empty(1 << 30, device=x.device) for _ in range(400)]; {ALLOCATED}",
        ),
        Status.OUT_OF_MEMORY,
        ("memory",),
    ),
    "illegal in triton": (
        TRITON.replace("tl.store(out + start", "tl.store(out + (1 << 40) + start"),
        Status.RUNTIME_ERROR,
        ("`softmax`", "illegal"),
    ),
}
WRONG = {
    "values": (CUDA.replace("/ sum", "/ (sum * 1.001f)"), Status.WRONG_VALUES),
    "unwritten": (CUDA.replace("c < columns; c += blockDim.x)\n    out", "c < columns - 1; c += "
                               "blockDim.x)\n    out"), Status.WRONG_VALUES),
    "on the host": (CUDA.replace("return out", "return out.cpu()"), Status.WRONG_DTYPE),
    "modified": (CUDA.replace("return out", "x.zero_(); return out"), Status.INPUT_MODIFIED),
    "does not compile": (CUDA.replace(SUM, "flaot sum;"), Status.COMPILE_ERROR),
    "by the library": (
        CUDA.replace("return out", "return torch.softmax(x, -1)"),
        Status.CONTRACT,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def evaluator(warm_cache: Path) -> Iterator[LocalEvaluator]:
    config = BenchConfig(
        measurement="quick", baselines=("eager",), cache=warm_cache, compile_s=60, run_s=RUN_S
    )
    with LocalEvaluator(Task.load("softmax"), config, "cuda") as opened:
        yield opened


def judge(evaluator: LocalEvaluator, source: str) -> Evaluation:
    candidate = Candidate(source=source, backend="cuda")
    return evaluator.compile(candidate) or evaluator.verify(candidate)


@pytest.mark.parametrize("source", [CUDA, TRITON], ids=["cuda", "triton"])
def test_honest_kernels_pass(evaluator, source):
    found = judge(evaluator, source)
    assert (found.status, found.reason) == (Status.PASSED, "")
    assert found.correctness is not None
    assert found.correctness.worst_ratio < 1
    assert found.contract is not None
    assert found.contract.own_kernels == ("softmax",)
    assert not found.contract.library_calls
    assert found.timing is not None
    assert 0.001 < found.timing.median_ms < 10
    assert found.timing.peak_bytes
    speedup = found.timing.against("eager")
    assert speedup is not None
    assert speedup.ratio.low <= speedup.ratio.value <= speedup.ratio.high
    assert found.device.startswith("cuda-")


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_worker_is_told_and_the_next_passes(evaluator, name):
    source, status, told = BROKEN[name]
    found = judge(evaluator, source)
    assert found.status is status, found.reason
    for word in told:
        assert word in found.reason
    began = time.monotonic()
    assert judge(evaluator, CUDA).status is Status.PASSED
    assert time.monotonic() - began < NEXT_S


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_caught(evaluator, name):
    source, status = WRONG[name]
    found = judge(evaluator, source)
    assert found.status is status, found.reason


def test_large_inputs_pass_through_device_memory(warm_cache):
    config = BenchConfig(measurement="quick", baselines=("eager",), cache=warm_cache)
    with LocalEvaluator(Task.load("softmax", "cuda:0"), config, "cuda") as opened:
        found = judge(opened, CUDA)
        assert found.status is Status.PASSED, found.reason
        assert found.seconds["verify"] < 10


def test_all_device_memory_comes_back(warm_cache):
    import torch

    config = BenchConfig(measurement="quick", baselines=("eager",), cache=warm_cache)
    task = Task.load("softmax")
    with LocalEvaluator(task, config, "cuda") as opened:
        judge(opened, CUDA)
    before = torch.cuda.mem_get_info()[0]
    with LocalEvaluator(task, config, "cuda") as opened:
        assert judge(opened, CUDA).status is Status.PASSED
    assert before - torch.cuda.mem_get_info()[0] < 64 << 20
