"""`jit.cuda_module`: what is checked without a GPU, and, where there is one, what runs on it."""

import re

import pytest
import torch

from evokernel import jit
from evokernel.compilers.cuda import CudaCompiler
from evokernel.compilers.signatures import signatures
from evokernel.compilers.toolkit import Toolkit
from evokernel.errors import DeviceMissing
from evokernel.jit import device

pytestmark = pytest.mark.skipif(
    Toolkit.found().library is None, reason="NVRTC is not installed (the extra `compilers`)"
)

KERNELS = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cstdint>
#define THREADS 256
extern "C" {
__global__ void __launch_bounds__(THREADS) scale(
    const float* __restrict__ x, float* out, long long n, float by, bool negate) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * (negate ? -by : by);
}
__global__ void numbers(double* out, int a, unsigned int b, int64_t c, uint8_t d, double e) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e;
}
__global__ void halves(const half* x, __nv_bfloat16* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __float2bfloat16(__half2float(x[i]));
}
__global__ void vectors(const float4* x, float4* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}
__global__ void rotate(const float* x, float* out, int n) {
  extern __shared__ float row[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = row[(i + 1) % n];
}
__global__ void is_null(const void* p, int* out) { out[0] = p == nullptr; }
__global__ void where(int* out) {
  out[((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * 6
      + (threadIdx.z * 2 + threadIdx.y) * 3 + threadIdx.x] = 1;
}
__global__ void wait(long long ticks) { long long t = clock64(); while (clock64() - t < ticks); }
__device__ float hidden(float x) { return x; }
}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def brokered(cache):
    """Build for an H100 or H200, whatever is here."""
    jit.use_broker(CudaCompiler(cache, arch="sm_90a").build)
    yield
    jit.use_broker(None)


@pytest.fixture
def module(cache):
    """The kernels, built for the GPU that is here, or for an H200 where there is none."""
    arch = "sm_90a" if device.missing() else device.current().arch
    jit.use_broker(CudaCompiler(cache, arch=arch).build)
    yield jit.cuda_module(KERNELS)
    jit.use_broker(None)


def test_prototypes_are_read():
    found = {s.name: s for s in signatures(KERNELS, "__global__")}
    assert "hidden" not in found
    assert str(found["scale"]) == (
        "void scale(const float32* x, float32* out, int64 n, float32 by, bool negate)"
    )
    assert str(found["halves"]) == "void halves(const float16* x, bfloat16* out, int32 n)"
    assert [p.alignment for p in found["vectors"].parameters] == [16, 16, 0]


def test_module_shows_its_kernels(module):
    assert "scale(const float32* x" in repr(module.scale)
    assert repr(module).startswith("<kernel_0.cu for sm_")
    assert module.resources["scale"].registers > 0
    with pytest.raises(AttributeError, match=r"has no .*`gone`; it has `scale`, `numbers`"):
        module.gone  # noqa: B018


def test_same_source_is_built_once(module):
    assert jit.cuda_module(KERNELS) is module
    assert jit.cuda_module(KERNELS, defines={"MORE": 1}) is not module


def test_fault_has_the_kernels_line(brokered):
    with pytest.raises(jit.BuildError, match=r"mine\.cu:2:3: error: identifier \"oops\" is"):
        jit.cuda_module('extern "C" __global__ void f() {\n  oops();\n}', name="mine.cu")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('extern "C" __device__ float f(float x) { return x; }', 'no extern "C" __global__ for'),
        ('extern "C" __global__ void f(float4 v) {}', "`f`: parameter 1 `v`: type `float4 v` is"),
        ('extern "C" __global__ void f(float& x) {}', "`float& x` is a reference"),
    ],
)
def test_what_python_cannot_launch_is_refused(brokered, source, message):
    with pytest.raises(jit.BuildError) as caught:
        jit.cuda_module(source)
    assert message in str(caught.value)


def test_call_without_a_grid(module):
    with pytest.raises(TypeError, match=r"launch it with a grid and a block, `scale\[grid, block"):
        module.scale(1)


@pytest.mark.parametrize(
    ("configuration", "error", "message"),
    [
        (1, TypeError, r"takes `\[grid, block\]` or `\[grid, block, shared_bytes\]`, got \[1\]"),
        ((1, 2.0), TypeError, "the block must be a count or up to three counts, got 2.0"),
        ((0, 32), ValueError, "the grid must have 1..2147483647 along x, got 0"),
        (((1, 70000), 32), ValueError, "the grid must have 1..65535 along y, got 70000"),
        ((1, (32, 1, 65)), ValueError, "the block must have 1..64 along z, got 65"),
        ((1, 32, -4), TypeError, "shared_bytes must be a count of bytes, got -4"),
    ],
)
def test_sizes_that_no_gpu_allows(module, configuration, error, message):
    with pytest.raises(error, match=message):
        module.scale[configuration]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), TypeError, "`scale` takes 5 arguments, got 0: void scale"),
        (
            (torch.ones(2), None, 2, 1.0, True),
            TypeError,
            r"argument 1 `x` must be a contiguous float32 CUDA tensor, got float32 of shape \(2,\) "
            r"on cpu; pass `x.cuda\(\)`",
        ),
        ((3, None, 2, 1.0, True), TypeError, "argument 1 `x` must be .* CUDA tensor, got int 3"),
        ((None, None, 2.5, 1.0, True), TypeError, "argument 3 `n` must be an integer"),
        ((None, None, 2**63, 1.0, True), OverflowError, "argument 3 `n` must be within"),
        ((None, None, 2, 1e300, True), OverflowError, r"argument 4 `by` must be within ±3\.403e"),
        ((None, None, 2, "a", True), TypeError, "argument 4 `by` must be a number, got str a"),
        ((None, None, 2, 1.0, 2), TypeError, "argument 5 `negate` must be True or False"),
    ],
)
def test_arguments_are_named(module, arguments, error, message):
    with pytest.raises(error, match=message):
        module.scale[1, 256](*arguments)


def test_launch_without_a_gpu_says_what_to_do(module):
    if not device.missing():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceMissing, match=r"extra `cuda`|no GPU is here; kernels in C\+\+"):
        module.scale[1, 256](None, None, 0, 1.0, False)


@pytest.mark.parametrize(
    ("status", "knows", "message"),
    [
        (
            100,
            13000,
            r"no GPU is here; kernels in C\+\+ need none \(`--backend cpp`\), and `evokernel",
        ),
        (35, 0, "no GPU is here"),
        (35, 12080, r"knows CUDA 12\.8, and CuPy needs 13\.0; install a newer driver, .*cuda12x"),
        (999, 13000, "CUDA error 999; `nvidia-smi` shows its state"),
    ],
)
def test_why_no_gpu_can_be_used(status, knows, message):
    assert re.search(message, device.refusal(status, knows, 13000))


def on_gpu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


@pytest.mark.gpu
def test_kernel_computes(module):
    x = on_gpu(1000)
    out = torch.empty_like(x)
    assert module.scale[4, 256](x, out, x.numel(), 3, True) is None
    assert torch.equal(out, x * -3)


@pytest.mark.gpu
def test_module_builds_for_the_gpu_that_is_here(module):
    jit.use_broker(None)
    x = on_gpu(64)
    out = torch.empty_like(x)
    jit.cuda_module(KERNELS).scale[1, 256](x, out, 64, 2.0, False)
    assert torch.equal(out, x * 2)


@pytest.mark.gpu
def test_numbers_keep_their_types(module):
    out = torch.zeros(5, device="cuda", dtype=torch.float64)
    module.numbers[1, 1](out, -7, 2**32 - 1, 2**40 + 1, 255, 0.1)
    assert out.tolist() == [-7, 2**32 - 1, 2**40 + 1, 255, 0.1]
    with pytest.raises(OverflowError, match=r"argument 2 `a` must be within .*int32.*, got 2147"):
        module.numbers[1, 1](out, 2**31, 0, 0, 0, 0.0)


@pytest.mark.gpu
def test_halves_and_vectors(module):
    x = on_gpu(512, dtype=torch.float16)
    out = torch.empty(512, device="cuda", dtype=torch.bfloat16)
    module.halves[2, 256](x, out, 512)
    assert torch.equal(out, x.float().to(torch.bfloat16))
    y = on_gpu(513)
    copy = torch.empty(512, device="cuda")
    module.vectors[1, 128](y[:512], copy, 128)
    assert torch.equal(copy, y[:512])
    with pytest.raises(TypeError, match=r"argument 1 `x` .* multiple of 16 bytes, got one 4 bytes"):
        module.vectors[1, 128](y[1:], copy, 128)


@pytest.mark.gpu
def test_tensors_are_checked(module):
    x, out = on_gpu(8, 8), torch.empty(8, 8, device="cuda")
    launch = module.scale[1, 256]
    with pytest.raises(TypeError, match=r"argument 1 `x` must be a contiguous float32 .* float64"):
        launch(x.double(), out, 64, 1.0, False)
    with pytest.raises(TypeError, match=r"`x` .* with strides \(1, 8\); pass `x.contiguous\(\)`"):
        launch(x.T, out, 64, 1.0, False)
    with pytest.raises(TypeError, match=r"argument 2 `out` .* on cpu; pass `out.cuda\(\)`"):
        launch(x, out.cpu(), 64, 1.0, False)
    with pytest.raises(TypeError, match=r"argument 3 `n` must be an integer .*\.item\(\)"):
        launch(x, out, torch.tensor(64, device="cuda"), 1.0, False)
    launch(jit.strided(x.T), out, 64, 1.0, False)
    assert torch.equal(out, x)


@pytest.mark.gpu
def test_none_is_a_null_pointer(module):
    out = torch.zeros(1, device="cuda", dtype=torch.int32)
    module.is_null[1, 1](None, out)
    assert out.item() == 1
    module.is_null[1, 1](out, out)
    assert out.item() == 0


@pytest.mark.gpu
def test_grid_and_block_of_three_dimensions(module):
    out = torch.zeros(2 * 3 * 4 * 12, device="cuda", dtype=torch.int32)
    module.where[(2, 3, 4), (3, 2, 1)](out[: 24 * 6])
    assert out.tolist() == [1] * 144 + [0] * 144


@pytest.mark.gpu
def test_kernel_runs_on_the_current_stream(module):
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        module.wait[1, 1](200_000_000)
    assert torch.cuda.current_stream().query()
    assert not side.query()
    side.synchronize()


@pytest.mark.gpu
def test_streams_keep_their_order(module):
    x = on_gpu(1 << 20)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]
    outs = []
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            module.wait[1, 1](1_000_000)
            first, second = torch.empty_like(x), torch.empty_like(x)
            module.scale[4096, 256](x, first, x.numel(), 2.0, False)
            module.scale[4096, 256](first, second, x.numel(), number, False)
            outs.append((first, second))
    torch.cuda.synchronize()
    for number, (_, second) in enumerate(outs):
        assert torch.equal(second, x * 2 * number)


@pytest.mark.gpu
def test_launches_are_captured_in_a_graph(module):
    x, out = on_gpu(1 << 16), torch.empty(1 << 16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # also the first launch of this kernel
        module.rotate[1, 256, 60_000](x, out, 15_000)
        module.scale[256, 256](out, out, 15_000, 2.0, False)
    for _ in range(2):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out[:15_000], x[:15_000].roll(-1) * 2)


@pytest.mark.gpu
def test_large_shared_memory_is_asked_for(module):
    n = (device.current().shared_bytes - 1024) // 4
    x = on_gpu(n)
    out = torch.empty_like(x)
    module.rotate[1, 256, 4 * n](x, out, n)
    assert torch.equal(out, x.roll(-1))
    module.rotate[1, 256, 4 * 100](x, out, 100)
    assert torch.equal(out[:100], x[:100].roll(-1))


@pytest.mark.gpu
def test_more_shared_memory_than_the_gpu_has(module):
    gpu = device.current()
    out = torch.empty(1, device="cuda")
    wanted = rf"`rotate`: 300000 bytes of shared memory .* device 0 \(.*\) has {gpu.shared_bytes}"
    with pytest.raises(ValueError, match=wanted):
        module.rotate[1, 256, 300_000](out, out, 1)


@pytest.mark.gpu
def test_more_threads_than_the_kernel_can_have(module):
    out = torch.empty(1, device="cuda")
    message = "`scale`: a block of 512 threads was asked for; this kernel can have 256"
    with pytest.raises(ValueError, match=message):
        module.scale[1, 512](out, out, 1, 1.0, False)


@pytest.mark.gpu
def test_wrong_architecture_is_named(module, cache):
    own = device.current().arch
    other = "sm_80" if own != "sm_80" else "sm_90a"

    def build(kernel):
        return CudaCompiler(cache).build(kernel.model_copy(update={"arch": other}))

    jit.use_broker(build)
    strange = jit.cuda_module(KERNELS)
    out = torch.empty(1, device="cuda")
    message = rf"`kernel_0.cu` was built for `{other}` and cannot run on device 0 .*--arch {own}`"
    with pytest.raises(DeviceMissing, match=message):
        strange.scale[1, 1](out, out, 1, 1.0, False)


@pytest.mark.gpu
def test_launches_are_logged(module):
    x = on_gpu(16)
    with jit.launches() as log:
        module.scale[1, 16](x, x, 16, 2.0, False)
        module.rotate[1, 16, 64](x, torch.empty_like(x), 16)
    assert [launch.kernel for launch in log] == ["scale", "rotate"]
    assert all(0 < launch.seconds < 1 for launch in log)


@pytest.mark.gpu
def test_tensors_on_two_gpus(module):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    x = torch.randn(256, device="cuda:1")
    out = torch.empty_like(x)
    module.scale[1, 256](x, out, 256, 2.0, False)
    assert torch.equal(out, x * 2)
    with pytest.raises(TypeError, match="argument 2 `out` lies on cuda:0, those before it on cuda"):
        module.scale[1, 256](x, out.to("cuda:0"), 256, 2.0, False)
