"""CUDA kernels become machine code without a GPU: headers, messages, limits, resources, cache."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from evokernel.compilers import Artefact, BuildFailure, KernelSource, architecture
from evokernel.compilers.choice import EveryCompiler
from evokernel.compilers.cuda import CudaCompiler
from evokernel.compilers.resources import report
from evokernel.compilers.toolkit import HEADERS, Toolkit
from evokernel.errors import CompilerMissing, ConfigError

TOOLKIT = Toolkit.found()
pytestmark = pytest.mark.skipif(
    TOOLKIT.library is None, reason="NVRTC is not installed (the extra `compilers`)"
)

SCALE = """\
__constant__ float table[64];
extern "C" __global__ void __launch_bounds__(256) scale(
    const float* __restrict__ x, float* out, long long n, float by) {
  __shared__ float part[256];
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] * table[n % 64] : 0;
  __syncthreads();
  if (i < n) out[i] = part[255 - threadIdx.x] * by;
}
"""
BY_HEADER = {
    "cuda_fp16.h": "half2 v = ((half2*)p)[0]; ((half2*)p)[1] = __hfma2(v, v, v);",
    "cuda_bf16.h": "((__nv_bfloat16*)p)[1] = __float2bfloat16(((float*)p)[1]);",
    "mma.h": """using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> a;
  fragment<matrix_b, 16, 16, 16, half, row_major> b;
  fragment<accumulator, 16, 16, 16, float> c;
  fill_fragment(c, 0.0f);
  load_matrix_sync(a, (half*)p, 16);
  load_matrix_sync(b, (half*)p + 256, 16);
  mma_sync(c, a, b, c);
  store_matrix_sync((float*)p, c, 16, mem_row_major);""",
    "cooperative_groups.h": "auto w = cooperative_groups::tiled_partition<32>("
    "cooperative_groups::this_thread_block()); ((int*)p)[0] = w.shfl_down(((int*)p)[1], 1);",
    "cub/cub.cuh": "__shared__ typename cub::BlockReduce<float, 128>::TempStorage t; "
    "((float*)p)[0] = cub::BlockReduce<float, 128>(t).Sum(((float*)p)[threadIdx.x]);",
    "cuda/pipeline": "cuda::pipeline<cuda::thread_scope_thread> q = cuda::make_pipeline(); "
    "q.producer_acquire(); q.producer_commit(); q.consumer_wait(); q.consumer_release();",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def compiler(cache):
    return CudaCompiler(cache, arch="sm_90a")


def kernel(source: str, *flags: str, name: str = "kernel_0.cu") -> KernelSource:
    return KernelSource(backend="cuda", source=source, flags=flags, name=name)


def first_error(compiler, source: str, *flags: str):
    built = compiler.build(kernel(source, *flags))
    assert isinstance(built, BuildFailure)
    return built.diagnostics[0]


@pytest.mark.parametrize("header", BY_HEADER)
def test_each_header_is_found_and_builds(compiler, header):
    source = f'#include <{header}>\nextern "C" __global__ void f(void* p) {{\n  '
    built = compiler.build(kernel(f"{source}{BY_HEADER[header]}\n}}\n"))
    assert isinstance(built, Artefact), built
    assert built.arch == "sm_90a"
    assert Path(built.path).read_bytes()[:4] == b"\x7fELF"


def test_headers_of_the_host_that_kernels_include_by_habit(compiler):
    names = "cstdint stdint.h cmath math.h cfloat climits cstddef cassert cstdio cuda_runtime.h"
    source = "".join(f"#include <{name}>\n" for name in names.split())
    source += """extern "C" __global__ void f(float* x, std::int64_t n, uint32_t m) {
      assert(n < INT32_MAX);
      float least = -INFINITY;
      for (size_t i = 0; i < n; i++) least = fmaxf(least, x[i] * FLT_EPSILON);
      x[m] = least;
    }"""
    built = compiler.build(kernel(source))
    assert isinstance(built, Artefact), built
    assert built.diagnostics == ()


def test_names_that_nvcc_has_unasked(compiler):
    """Kernels use them without an include; their own definitions still hold."""
    source = "#undef FLT_MAX\n#define FLT_MAX 3e38f\n"
    source += """extern "C" __global__ void f(float* x, uint32_t n, int64_t m) {
      x[n] = n < INT_MAX ? -INFINITY : NAN;
      x[m] = FLT_MAX / float(M_PI);
    }"""
    built = compiler.build(kernel(source))
    assert isinstance(built, Artefact), built
    assert built.diagnostics == ()


@pytest.mark.parametrize(
    ("header", "wheel"),
    [
        ("cuda_fp16.h", "nvidia-cuda-runtime"),
        ("cuda_bf16.h", "nvidia-cuda-runtime"),
        ("mma.h", "nvidia-cuda-runtime"),
        ("cooperative_groups.h", "nvidia-cuda-runtime"),
        ("cub/cub.cuh", "nvidia-cuda-cccl"),
        ("cuda/pipeline", "nvidia-cuda-cccl"),
    ],
)
def test_missing_header_names_its_wheel(cache, header, wheel):
    bare = CudaCompiler(cache, arch="sm_90a", toolkit=TOOLKIT.model_copy(update={"includes": ()}))
    error = first_error(bare, f'\n#include <{header}>\nextern "C" __global__ void f() {{}}\n')
    assert (error.file, error.line) == ("kernel_0.cu", 2)
    assert "open source file" in error.message
    assert f"it comes with `{wheel}` (extra `compilers`)" in error.message


def test_header_of_the_host_is_no_header_of_a_kernel(compiler):
    error = first_error(compiler, "#include <torch/extension.h>\n")
    assert error.line == 1
    assert "a kernel can include CUDA's own headers only" in error.message


def test_places_are_searched_in_order(tmp_path, monkeypatch):
    include = tmp_path / "include"
    include.mkdir()
    (include / "cuda_fp16.h").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    origins = [place.origin for place in Toolkit.found().includes]
    known = ["wheels", "$CUDA_HOME", "toolkit"]
    assert "$CUDA_HOME" in origins
    assert origins == sorted(origins, key=known.index)


def test_every_group_of_headers_is_found():
    assert all(TOOLKIT.header(header.proof) for header in HEADERS.values())


def test_resources_are_read(compiler):
    built = compiler.build(kernel(SCALE))
    (scale,) = built.resources
    assert (scale.kernel, scale.shared_bytes, scale.constant_bytes) == ("scale", 1024, 256)
    assert 8 <= scale.registers <= 64
    assert (scale.spill_stores, scale.spill_loads, scale.stack_bytes) == (0, 0, 0)
    assert str(scale).endswith("registers, 1024 bytes shared, no spills, 256 bytes constant")


def test_spills_are_told(compiler):
    lines = "".join(f"float a{i} = x[{i}];\n" for i in range(64))
    lines += "__syncthreads();\n" + "".join(f"x[{i}] = a{63 - i};\n" for i in range(64))
    source = f'extern "C" __global__ void f(volatile float* x) {{\n{lines}}}\n'
    (tight,) = compiler.build(kernel(source, "--maxrregcount=24")).resources
    assert tight.registers <= 24
    assert tight.spill_stores > 0
    assert tight.spill_loads > 0


def test_report_of_several_kernels():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'b' for 'sm_90a'
ptxas info    : Function properties for b
ptxas         .     800 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 127 registers, used 0 barriers, 800 bytes cumulative stack size
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 1024 bytes smem
"""
    a, b = report(log)
    assert (a.kernel, a.registers, a.shared_bytes, a.spill_stores) == ("a", 12, 1024, 0)
    assert (b.kernel, b.stack_bytes, b.spill_stores, b.spill_loads) == ("b", 800, 16, 24)


def test_error_has_the_authors_file_and_line(compiler):
    error = first_error(compiler, 'extern "C" __global__ void f(float* x) {\n  x[0] = oops;\n}\n')
    assert (error.file, error.line, error.column) == ("kernel_0.cu", 2, 10)
    assert error.message == 'identifier "oops" is undefined'
    assert error.excerpt == "x[0] = oops;"


def test_warning_does_not_stop_a_build(compiler):
    source = 'extern "C" __global__ void f(float* x) {\n  int unused = 3;\n}\n'
    built = compiler.build(kernel(source, name="mine.cu"))
    assert isinstance(built, Artefact)
    (warning,) = built.diagnostics
    assert (warning.severity, warning.file, warning.line) == ("warning", "mine.cu", 2)


def test_error_in_a_header_stands_at_the_line_that_led_there(compiler):
    source = """#include <cub/block/block_reduce.cuh>
struct Odd {};
extern "C" __global__ void f(float* x) {
  __shared__ typename cub::BlockReduce<Odd, 128>::TempStorage t;
  cub::BlockReduce<Odd, 128>(t).Sum(Odd());
}
"""
    error = first_error(compiler, source)
    assert error.line == 5
    assert "argument types are: (Odd, Odd)" in error.message
    assert ".cuh:" in error.message


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("extern __device__ float gone(float);", 1, "undefined reference to `gone`"),
        ("", None, "the assembler refuses it: Not a name of any known instruction: 'foo'"),
    ],
)
def test_what_the_assembler_refuses(compiler, body, line, message):
    inner = "x[0] = gone(x[1]);" if body else 'asm volatile("foo %0;" :: "f"(x[0]));'
    error = first_error(compiler, f'{body}\nextern "C" __global__ void f(float* x) {{ {inner} }}')
    assert (error.line, error.message) == (line, message)


def test_too_much_shared_memory_of_fixed_size(compiler):
    source = """extern "C" __global__ void f(float* x, int n) {
  __shared__ float big[100000];
  big[threadIdx.x] = x[0]; __syncthreads(); x[1] = big[n];
}
"""
    error = first_error(compiler, source)
    assert error.line == 1
    assert "`f` has 400000 bytes of shared memory of fixed size; at most 49152" in error.message


def test_cache_answers_by_content(compiler, cache):
    first, again = (compiler.build(kernel(SCALE, name=name)) for name in ("a.cu", "b.cu"))
    assert again.cached
    assert (again.path, again.resources) == (first.path, first.resources)
    other = CudaCompiler(cache, arch="sm_80").build(kernel(SCALE))
    assert (other.cached, other.arch) == (False, "sm_80")
    assert other.key != first.key
    assert compiler.build(kernel(SCALE, "-DX=1")).key != first.key
    named = compiler.build(kernel(SCALE).model_copy(update={"arch": "sm_80"}))
    assert (named.cached, named.key) == (True, other.key)


def test_failure_is_remembered(compiler):
    for cached in (False, True):
        built = compiler.build(kernel("never a kernel", name="mine.cu"))
        assert (built.cached, built.diagnostics[0].file) == (cached, "mine.cu")


def test_endless_template_is_stopped(tmp_path):
    source = """template<int N, class... T> struct B : B<N-1, T..., int>, B<N-1, T..., float> {};
template<class... T> struct B<0, T...> {};
extern "C" __global__ void f(int* x) { B<24> b; x[0] = sizeof(b); }
"""
    built = CudaCompiler(tmp_path, timeout_s=1.0, arch="sm_90a").build(kernel(source))
    assert isinstance(built, BuildFailure)
    assert built.timed_out
    assert built.diagnostics[0].message == "the compiler was stopped at its limit of 1 s"


def test_fast_math_is_off_unless_it_is_named(compiler):
    source = 'extern "C" __global__ void f(float* x) { x[0] = x[1] / x[2]; }\n'
    plain, fast = (compiler.build(kernel(source, *f)) for f in ((), ("--use_fast_math",)))
    assert plain.notes == ()
    assert Path(plain.path).read_bytes() != Path(fast.path).read_bytes()
    (note,) = fast.notes
    assert note.startswith("`--use_fast_math`: fast-math: denormals are flushed")


@pytest.mark.parametrize(
    ("flag", "word"),
    [("-arch=sm_80", "`--arch`"), ("-I/usr/include", "CUDA's own headers"), ("-G", "one word")],
)
def test_flags_that_are_not_passed_on(compiler, flag, word):
    error = first_error(compiler, SCALE, flag)
    assert error.message.startswith(f"flag `{flag}` is refused: ")
    assert word in error.message


def test_architecture_that_nvrtc_does_not_know(cache):
    with pytest.raises(ConfigError, match=r"does not build for `sm_20`; it knows .*sm_90"):
        CudaCompiler(cache, arch="sm_20").build(kernel(SCALE))
    named = kernel(SCALE).model_copy(update={"arch": "sm_20"})  # by who asks for the kernel
    failed = CudaCompiler(cache).build(named)
    assert failed.diagnostics[0].message.startswith("NVRTC ")
    with pytest.raises(ValidationError):
        KernelSource(backend="cuda", source="", arch="sm_90; rm")


def test_architecture_without_a_gpu_must_be_named(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    architecture.present.cache_clear()
    with pytest.raises(ConfigError, match="no GPU is here .* `evokernel compile FILE --arch sm_"):
        CudaCompiler(cache).build(kernel(SCALE))
    architecture.present.cache_clear()


def test_every_backend_has_its_compiler(cache, monkeypatch):
    every = EveryCompiler(cache)
    assert isinstance(every.build(kernel(SCALE).model_copy(update={"arch": "sm_90a"})), Artefact)
    cpp = KernelSource(backend="cpp", source='extern "C" double one() { return 1; }')
    assert isinstance(every.build(cpp), Artefact)
    assert "NVRTC" not in every.identity()
    monkeypatch.setenv("PATH", "")
    architecture.present.cache_clear()
    failed = every.build(kernel(SCALE))  # a CUDA kernel in a run for C++
    architecture.present.cache_clear()
    assert isinstance(failed, BuildFailure)
    assert "no GPU is here that `kernel_0.cu` could be built for" in failed.diagnostics[0].message


def test_machine_without_nvrtc(tmp_path):
    nothing = Toolkit(library=None, origin="", includes=())
    with pytest.raises(CompilerMissing, match="no NVRTC: .* install the extra `compilers`"):
        CudaCompiler(tmp_path, toolkit=nothing)


def test_library_that_is_no_nvrtc(tmp_path):
    (tmp_path / "libnvrtc.so.13").write_text("not a library")
    broken = Toolkit(library=str(tmp_path / "libnvrtc.so.13"), origin="wheels", includes=())
    with pytest.raises(CompilerMissing, match="cannot be used"):
        CudaCompiler(tmp_path, arch="sm_90a", toolkit=broken).build(kernel(SCALE))


@pytest.mark.parametrize("name", ["90", "sm90", "sm_9", "compute_90", "sm_90x"])
def test_names_of_architectures(name):
    with pytest.raises(ConfigError, match="is no GPU architecture"):
        architecture.checked(name)


def test_what_runs_where():
    assert architecture.of((9, 0)) == "sm_90a"
    assert architecture.of((8, 6)) == "sm_86"
    assert architecture.of((12, 0)) == "sm_120a"
    assert architecture.runs_on("sm_90a", (9, 0))
    assert architecture.runs_on("sm_80", (8, 9))
    assert not architecture.runs_on("sm_80", (9, 0))
    assert not architecture.runs_on("sm_89", (8, 6))
    assert not architecture.runs_on("sm_100a", (10, 3))
    assert architecture.runs_on("sm_100f", (10, 3))
