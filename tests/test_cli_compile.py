"""`evokernel compile` builds what a file asks for and shows what the compiler says."""

import importlib.util
import json

import pytest
import typer
from typer.testing import CliRunner

from evokernel.cli.compile import compile_file
from evokernel.compilers import architecture
from evokernel.compilers.toolkit import Toolkit
from evokernel.errors import CompilerMissing, ConfigError

CANDIDATE = """\
from evokernel import jit

GOOD = jit.cpp_module('''
#include <cstdint>
extern "C" void relu(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
}
''')
"""
BAD = CANDIDATE + "BAD = jit.cpp_module('extern \"C\" void f(int x) {\\n  x[0] = 1;\\n}')\n"


@pytest.fixture
def compile_(tmp_path):
    """Return a function that runs the command on a text, in a file of the given name."""
    app = typer.Typer()
    app.command()(compile_file)

    def run(text: str, *options: str, name: str = "candidate.py"):
        (tmp_path / name).write_text(text)
        return CliRunner().invoke(app, [str(tmp_path / name), *options])

    return run


def test_kernels_are_listed_with_their_signatures(compile_):
    first, again = compile_(CANDIDATE), compile_(CANDIDATE)
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert first.output.startswith("kernel_0.cpp  ok  ")
    assert again.output.startswith("kernel_0.cpp  ok  cached\n")
    assert "\n  void relu(const float32* x, float32* y, int64 n)\n" in first.output


def test_failure_shows_the_line(compile_):
    done = compile_(BAD)
    assert done.exit_code == 1
    assert "kernel_0.cpp  ok" in done.output
    assert "kernel_1.cpp  failed" in done.output
    assert "kernel_1.cpp:2:4: error: invalid types 'int[int]'" in done.output
    assert "    2 | x[0] = 1;\n" in done.output


def test_json_holds_everything(compile_):
    done = compile_(BAD, "--json")
    assert done.exit_code == 1
    good, bad = json.loads(done.output)["kernels"]
    assert (good["is_built"], good["functions"]) == (
        True,
        ["void relu(const float32* x, float32* y, int64 n)"],
    )
    assert (bad["is_built"], bad["diagnostics"][0]["line"]) == (False, 2)


def test_plain_cpp_file(compile_):
    done = compile_('extern "C" int f(float x) { return x > 0; }\n', name="mine.cpp")
    assert done.exit_code == 0
    assert done.output.startswith("mine.cpp  ok")
    assert "  int32 f(float32 x)\n" in done.output


def test_function_that_python_cannot_call_fails(compile_):
    done = compile_('extern "C" void f(float& x) {}\n', name="mine.cpp")
    assert done.exit_code == 1
    assert "mine.cpp:1: error: `f`: parameter 1 `x`: `float& x` is a reference" in done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module\n", "candidate.py:1: error: ModuleNotFoundError: No module named"),
        ("x = 1\ndef f(:\n", "candidate.py:2: error: SyntaxError: invalid syntax"),
        ("print('so far')\nimport os\nos._exit(3)\n", "the import ended with code 3 before it"),
        ("import os\nos.kill(os.getpid(), 11)\n", "the import ended with code -11 before it"),
        ("raise SystemExit('no')\n", "candidate.py:1: error: SystemExit: no"),
    ],
)
def test_broken_import_is_reported(compile_, text, message):
    done = compile_(text)
    assert done.exit_code == 1
    assert message in done.output
    assert "so far" not in text or "so far" in done.output


def test_file_without_kernels_says_so(compile_):
    done = compile_("x = 1\n")
    assert done.exit_code == 0
    assert "no kernel was built on import" in done.output


def test_wrong_file_is_a_usage_error(compile_, tmp_path):
    with pytest.raises(ConfigError, match=r"expected a candidate \(\.py\) or a kernel"):
        raise compile_("", name="notes.txt").exception
    with pytest.raises(ConfigError, match=r"cannot read `.*missing\.py`: No such file"):
        compile_file(tmp_path / "missing.py")
    (tmp_path / "binary.cpp").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not text in UTF-8"):
        compile_file(tmp_path / "binary.cpp")


def test_missing_compiler_is_a_usage_error(compile_, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    error = compile_(CANDIDATE).exception
    assert isinstance(error, CompilerMissing)
    assert error.exit_code == 2


needs_nvrtc = pytest.mark.skipif(
    Toolkit.found().library is None, reason="NVRTC is not installed (the extra `compilers`)"
)
CUDA = """\
from evokernel import jit

KERNEL = jit.cuda_module('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= BY; }',
                         defines={"BY": 2})
"""


@needs_nvrtc
def test_cuda_file_shows_what_a_kernel_takes(compile_):
    source = 'extern "C" __global__ void f(half* x, int n) { x[n] = x[0]; }\n'
    done = compile_(f"#include <cuda_fp16.h>\n{source}", "--arch", "sm_90a", name="mine.cu")
    assert done.exit_code == 0
    title, signature, resources = done.output.splitlines()
    assert title.startswith("mine.cu  ok  ")
    assert title.endswith(" s  sm_90a")
    assert signature == "  void f(float16* x, int32 n)"
    assert resources.startswith("  f: ")
    assert resources.endswith(" registers, no fixed shared memory, no spills")


@needs_nvrtc
def test_cuda_kernel_of_a_candidate(compile_):
    done = compile_(CUDA, "--arch", "sm_80", "--json")
    assert done.exit_code == 0
    (kernel,) = json.loads(done.output)["kernels"]
    assert (kernel["name"], kernel["arch"]) == ("kernel_0.cu", "sm_80")
    assert kernel["resources"][0]["kernel"] == "twice"


@needs_nvrtc
def test_cuda_fault_shows_the_line(compile_):
    done = compile_('extern "C" __global__ void f() {\n  oops();\n}', "--arch=sm_90", name="m.cu")
    assert done.exit_code == 1
    assert 'm.cu:2:3: error: identifier "oops" is undefined' in done.output
    assert "    2 | oops();\n" in done.output


@needs_nvrtc
@pytest.mark.parametrize(("text", "name"), [(CUDA, "candidate.py"), ("", "mine.cu")])
def test_architecture_must_be_known(compile_, monkeypatch, text, name):
    monkeypatch.setenv("PATH", "")
    architecture.present.cache_clear()
    error = compile_(text, name=name).exception
    architecture.present.cache_clear()
    assert isinstance(error, ConfigError)
    assert f"no GPU is here that `{name}` could be built for" in str(error)


def test_options_that_do_not_fit(compile_):
    error = compile_("", "--backend", "cpp", name="mine.cu").exception
    assert "is a kernel in `cuda`, and `--backend` says `cpp`" in str(error)
    assert "is no GPU architecture" in str(compile_("", "--arch", "90", name="mine.cu").exception)


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed (the extra `compilers`)",
)
def test_triton_candidate(compile_):
    text = """\
import triton
import triton.language as tl
@triton.jit
def fill(x, value, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), value)
LAUNCHES = {"fill": {"x": "*fp32", "value": "fp32", "N": 128, "num_warps": 1}}
"""
    done = compile_(text, "--backend", "triton", "--arch", "sm_90a")
    assert done.exit_code == 0, done.output
    assert "candidate.py  ok" in done.output
    assert "  fill: " in done.output
    assert "  note: `fill`: num_warps=1, num_stages=3\n" in done.output
