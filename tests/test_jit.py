"""What a kernel file may import: building, loading, and calls whose arguments are checked."""

import ctypes
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from evokernel import jit
from evokernel.compilers import Artefact, KernelSource
from evokernel.compilers.cpp import CppCompiler
from evokernel.compilers.loading import float_state

KERNELS = r"""
#include <cstddef>
#include <cstdint>
#include <omp.h>
extern "C" {
void scale(const float* x, float* out, int64_t n, float by, bool negate) {
  #pragma omp parallel for
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * (negate ? -by : by);
}
double total(const float* x, int64_t rows, int64_t stride) {
  double sum = 0;
  for (int64_t i = 0; i < rows; i++) sum += x[i * stride];
  return sum;
}
int status(int code) { return code; }
bool is_null(const void* p) { return p == nullptr; }
void copy_bits(const uint16_t* x, uint16_t* out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = x[i];
}
void invert(const uint8_t* mask, bool* out, int8_t n) {
  for (int8_t i = 0; i < n; i++) out[i] = !mask[i];
}
void wait_for(volatile int32_t* flag) { while (*flag == 0) {} }
int64_t threads() { return omp_get_max_threads(); }
static void hidden() {}
int64_t declared_only(int n);
}
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    return CppCompiler(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def brokered(compiler):
    """Share one cache; `jit` itself would use each test's own."""
    jit.use_broker(compiler.build)
    yield
    jit.use_broker(None)


@pytest.fixture
def kernels(brokered):
    return jit.cpp_module(KERNELS)


def test_kernel_computes(kernels):
    x = torch.randn(1000)
    out = torch.empty_like(x)
    assert kernels.scale(x, out, x.numel(), 3, True) is None
    assert torch.equal(out, x * -3)
    assert kernels.total(x, 1000, 1) == pytest.approx(x.double().sum().item())


def test_functions_are_those_that_can_be_called(kernels):
    listed = repr(kernels)
    assert "void scale(const float32* x, float32* out, int64 n, float32 by, bool neg" in listed
    assert "hidden" not in listed
    assert "declared_only" not in listed
    with pytest.raises(AttributeError, match=r'no extern "C" function `softmax`; it has `scale`'):
        kernels.softmax  # noqa: B018


def test_status_other_than_zero_raises(kernels):
    assert kernels.status(0) is None
    with pytest.raises(RuntimeError, match="`status` failed: it returned -7 instead of 0"):
        kernels.status(-7)


def test_none_is_a_null_pointer(kernels):
    assert kernels.is_null(None) is True
    assert kernels.is_null(torch.zeros(1, dtype=torch.complex64)) is False


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint16])
def test_sixteen_bit_floats_travel_as_bits(kernels, dtype):
    x = torch.arange(8).to(dtype)
    out = torch.empty_like(x)
    kernels.copy_bits(x, out, 8)
    assert torch.equal(out, x)


def test_bools_are_bytes(kernels):
    mask, out = torch.tensor([True, False]), torch.empty(2, dtype=torch.bool)
    kernels.invert(mask, out, 2)
    assert out.tolist() == [False, True]


def test_parameter_that_requires_grad_is_accepted(kernels):
    weight = torch.nn.Parameter(torch.ones(4))
    assert kernels.total(weight, 4, 1) == 4


def test_strided_tensor_is_taken_when_named_so(kernels):
    x = torch.arange(12.0).view(3, 4)
    column = x[:, 1]
    assert kernels.total(jit.strided(column), 3, column.stride(0)) == 15
    with pytest.raises(TypeError, match="`x` must be a float32 CPU tensor, got float64 of"):
        kernels.total(jit.strided(column.double()), 3, 1)


X, OUT = torch.zeros(4), torch.zeros(4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (X, OUT.double().view(2, 2), 4, 1, False),
            TypeError,
            "`scale`: argument 2 `out` must be a contiguous float32 CPU tensor, got float64 of "
            "shape (2, 2)",
        ),
        (
            (X, OUT.view(2, 2).t(), 4, 1, False),
            TypeError,
            "`scale`: argument 2 `out` must be a contiguous float32 CPU tensor, got float32 of "
            "shape (2, 2) with strides (1, 2); pass `out.contiguous()`, or `jit.strided(out)` and "
            "its strides",
        ),
        ((X, OUT.to("meta"), 4, 1, False), TypeError, "got float32 of shape (4,) on meta"),
        ((X, [1.0], 4, 1, False), TypeError, "CPU tensor, got list [1.0]"),
        ((X, 0, 4, 1, False), TypeError, "`out` must be a contiguous float32 CPU tensor, got int"),
        ((X, OUT, 4.0, 1, False), TypeError, "argument 3 `n` must be an integer (int64), got flo"),
        ((X, OUT, X[0], 1, False), TypeError, "`n` must be an integer (int64), got float32 of sh"),
        ((X, OUT, None, 1, False), TypeError, "`n` must be an integer (int64), got None"),
        ((X, OUT, 2**63, 1, False), OverflowError, "`n` must be within -9223372036854775808..922"),
        ((X, OUT, 4, "1", False), TypeError, "argument 4 `by` must be a number, got str 1"),
        ((X, OUT, 4, X[0], False), TypeError, "`by` must be a number, got float32 of shape ()"),
        ((X, OUT, 4, 1, 2), TypeError, "argument 5 `negate` must be True or False, got int 2"),
        ((X, OUT, 4), TypeError, "`scale` takes 5 arguments, got 3: void scale(const float32* x"),
    ],
)
def test_wrong_argument_is_named(kernels, arguments, error, message):
    with pytest.raises(error) as raised:
        kernels.scale(*arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_unsigned_integer_is_range_checked(kernels, value):
    bits = torch.zeros(1, dtype=torch.uint16)
    with pytest.raises(OverflowError, match=r"within 0\.\.18446744073709551615 \(uint64\)"):
        kernels.copy_bits(bits, bits, value)


def test_dtype_is_checked_again_on_every_call(kernels):
    kernels.scale(X, OUT, 4, 1, False)
    with pytest.raises(TypeError, match="`x` must be"):
        kernels.scale(X.long(), OUT, 4, 1, False)
    with pytest.raises(TypeError, match="uint16 CPU tensor, got float32"):
        kernels.copy_bits(X, X, 4)


def test_interpreter_lock_is_free_during_a_call(kernels):
    flag = torch.zeros(1, dtype=torch.int32)
    waiting = threading.Thread(target=kernels.wait_for, args=(flag,))
    waiting.start()
    flag[0] = 1  # reached only because the spinning kernel lets this thread run
    waiting.join(timeout=60)
    assert not waiting.is_alive()


def test_kernels_share_torchs_threads(kernels):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert kernels.threads() == 1
    finally:
        torch.set_num_threads(before)


def test_launches_are_logged(kernels):
    kernels.status(0)
    with jit.launches() as log:
        kernels.total(X, 4, 1)
        kernels.status(0)
    kernels.status(0)
    assert [launch.kernel for launch in log] == ["total", "status"]
    assert all(launch.seconds >= 0 for launch in log)


def test_broker_builds_each_source_once(compiler):
    asked: list[KernelSource] = []

    def broker(kernel):
        asked.append(kernel)
        return compiler.build(kernel)

    jit.use_broker(broker)
    first = jit.cpp_module(KERNELS)
    assert jit.cpp_module(KERNELS) is first
    jit.cpp_module(KERNELS, ["-O2"])
    assert [(k.name, k.flags) for k in asked] == [("kernel_0.cpp", ()), ("kernel_1.cpp", ("-O2",))]


def test_without_broker_it_compiles_itself():
    jit.use_broker(None)
    assert jit.cpp_module('extern "C" double one() { return 1; }').one() == 1.0


def test_failure_carries_diagnostics():
    with pytest.raises(jit.BuildError) as raised:
        jit.cpp_module('extern "C" void f() {\n  oops();\n}', name="mine.cpp")
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.file, diagnostic.line, diagnostic.excerpt) == ("mine.cpp", 2, "oops();")
    assert not raised.value.timed_out
    assert "`mine.cpp` does not build:\n  mine.cpp:2:3: error: 'oops' was" in str(raised.value)


def test_refused_flag_is_a_build_error():
    with pytest.raises(jit.BuildError, match="flag `-ffast-math` is refused"):
        jit.cpp_module(KERNELS, flags=["-ffast-math"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('struct S;\nextern "C" void f(int n, S s) {}', "kernel_0.cpp:2: error: `f`: parameter 2"),
        ("void f() {}", 'no extern "C" function for Python to call'),
        ('extern "C" void f();\nextern "C" void g(float** x) {}', "`g`: parameter 1 `x`: type"),
    ],
)
def test_function_that_python_cannot_call_is_a_build_error(source, message):
    with pytest.raises(jit.BuildError) as raised:
        jit.cpp_module(source.replace("struct S;", "struct S { int a; };"))
    assert message in str(raised.value)


def test_library_that_does_not_load_is_a_build_error(tmp_path):
    path = tmp_path / "kernel.so"
    path.write_bytes(b"not a library")
    artefact = Artefact(path=str(path), key="k", seconds=0, cached=False)
    jit.use_broker(lambda kernel: artefact)
    with pytest.raises(jit.BuildError, match="cannot be used: .*kernel.so"):
        jit.cpp_module(KERNELS)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("_mm_setcsr(_mm_getcsr() | 0x8040)", "it switched denormal numbers off"),
        ("_mm_setcsr(_mm_getcsr() | 0x8000)", "it switched denormal numbers off"),
        ("fesetround(FE_UPWARD)", "it changed the rounding mode"),
        ("fesetround(FE_TOWARDZERO)", "it changed the rounding mode"),
    ],
)
def test_library_may_not_change_how_the_process_computes(statement, message):
    if "_mm_" in statement and platform.machine() != "x86_64":
        pytest.skip("an x86-64 instruction")
    header = "<xmmintrin.h>" if "_mm_" in statement else "<cfenv>"
    source = (
        f"#include {header}\n__attribute__((constructor)) static void start() {{ {statement}; }}\n"
        'extern "C" int f() { return 0; }\n'
    )
    before = float_state()
    with pytest.raises(jit.BuildError, match=message):
        jit.cpp_module(source)
    assert float_state() == before == (True, True, True, True)
    assert (torch.tensor(1e-40) * 1).item() > 0


def test_own_function_wins_over_one_of_the_process():
    source = (
        'extern "C" double cosh(double x);\nextern "C" double call(double x) { return cosh(x); }\n'
        "__attribute__((noinline)) double cosh(double x) { return x + 1000; }\n"
    )
    assert ctypes.CDLL(None).cosh
    assert jit.cpp_module(source, ["-fno-builtin"]).call(1.0) == 1001.0


def test_importing_it_loads_no_torch():
    code = "import sys, evokernel.jit; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_worker_without_compiler_and_cache_loads_what_its_parent_built(compiler):
    kernel = KernelSource(backend="cpp", source='extern "C" double one() { return 1; }')
    code = f"""
from evokernel import jit
from evokernel.compilers import Artefact
artefact = Artefact.model_validate_json({compiler.build(kernel).model_dump_json()!r})
jit.use_broker(lambda kernel: artefact)
print(jit.cpp_module({kernel.source!r}).one())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/nowhere", "EVOKERNEL_HOME": "/proc/none"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "1.0"


def test_example_of_the_manual_works():
    text = (Path(__file__).parent.parent / "docs" / "kernels.md").read_text()
    example = {}
    exec(text.split("```python\n")[1].split("```")[0], example)
    x = torch.randn(5, 7).t()
    assert torch.equal(example["ModelNew"](2.5)(x), torch.relu(x) * 2.5)
