"""Answers written for other harnesses run unchanged; outcomes never stand for each other."""

import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from evokernel.attempt import Candidate, source_of
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.bench.servers import WarmServers
from evokernel.config import BenchConfig
from evokernel.errors import CompilerMissing, TaskError
from evokernel.evaluation import Evaluation, Status
from evokernel.task import Task

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(64, 256)]
"""

PLAIN = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2


batch_size = 64


def get_inputs():
    return [torch.randn(batch_size, 1).cuda()]


def get_init_inputs():
    return []


if __name__ == "__main__":
    raise SystemExit("run as a script")
"""

EXTENSION = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <Python.h>

static PyObject* double_relu(PyObject*, PyObject* arguments) {
  unsigned long long from, to, n;
  if (!PyArg_ParseTuple(arguments, "KKK", &from, &to, &n)) return nullptr;
  const float* x = reinterpret_cast<const float*>(from);
  float* y = reinterpret_cast<float*>(to);
  for (unsigned long long i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : 2 * x[i];
  return Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"double_relu", double_relu, METH_VARARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tiny_relu", nullptr, -1, functions};

PyMODINIT_FUNC PyInit_tiny_relu() { return PyModule_Create(&definition); }
"""
TINY = load_inline(name="tiny_relu", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        TINY.double_relu(x.data_ptr(), y.data_ptr(), x.numel())
        return y
'''
"""A small one: without torch's headers it builds in a second."""

KERNEL = '''
import torch
from torch import nn
from evokernel.jit import cpp_module

K = cpp_module(r"""
#include <cstdint>

extern "C" void double_relu(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : 2 * x[i];
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        K.double_relu(x, y, x.numel())
        return y
'''

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.maximum(tl.load(x + at, mask=at < n), 0), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


def forward(body: str, top: str = "") -> str:
    return (
        f"import torch\nfrom torch import nn\n{top}\n\n"
        f"class ModelNew(nn.Module):\n    def forward(self, x):\n{textwrap.indent(body, ' ' * 8)}\n"
    )


SLEEPS = forward("time.sleep(0.002)\ny = torch.relu(x) * 2\nreturn y", "import time")
TWICE = forward(
    "for _ in range(200):\n    y = torch.relu(x) * 2\nreturn y",
)

OUTCOMES = {
    "a kernel that does not build": (KERNEL.replace("int64_t i", "int64 i"), "compile failed"),
    "no Python": ("def (", "compile failed"),
    "an extension that does not build": (
        EXTENSION.replace("float* y =", "floaty* y ="),
        "compile failed",
    ),
    "wrong numbers": (forward("return torch.relu(x) * 3"), "wrong"),
    "it raises": (forward("return self.absent"), "wrong"),
    "it waits": (SLEEPS, "slow"),
    "it repeats itself": (TWICE, "slow"),
    "the library's": (PLAIN, "against the contract"),
    "hidden in a graph": (
        forward("return F(x)", "F = torch.jit.trace(lambda x: torch.relu(x) * 2, torch.ones(2))"),
        "against the contract",
    ),
}


@pytest.fixture(scope="module")
def config(warm_cache: Path) -> BenchConfig:
    return BenchConfig(
        measurement="quick",
        contract="library_allowed",
        baselines=("eager",),
        cache=warm_cache,
        compile_s=60,
    )


@pytest.fixture(scope="module")
def evaluator(config: BenchConfig, servers: WarmServers) -> Iterator[LocalEvaluator]:
    task = Task.from_source(TASK, "double_relu")
    with LocalEvaluator(task, config, servers=servers) as opened:
        yield opened


@pytest.fixture(scope="module")
def strict(config: BenchConfig, servers: WarmServers) -> Iterator[LocalEvaluator]:
    own = config.model_copy(update={"contract": "own_kernels_only"})
    task = Task.from_source(TASK, "double_relu")
    with LocalEvaluator(task, own, servers=servers) as opened:
        yield opened


def judge(evaluator: LocalEvaluator, source: str) -> Evaluation:
    candidate = Candidate(source=source, backend="cpp")
    return evaluator.compile(candidate) or evaluator.verify(candidate)


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_are_never_confused(evaluator, strict, name):
    source, outcome = OUTCOMES[name]
    found = judge(strict if outcome == "against the contract" else evaluator, source)
    assert found.outcome == outcome, (found.status, found.reason)
    assert bool(found.reason) == (outcome != "slow")


DUMB = """
class Dumb(Exception):
    def __str__(self):
        raise OSError
"""


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        ("x = " + "-" * 100_000 + "1", Status.INVALID_SOURCE, "nested too deeply"),
        ("x = 1" + " " * (1 << 20), Status.INVALID_SOURCE, "characters; at most"),
        ("x = 1\0", Status.INVALID_SOURCE, "null bytes"),
        (forward("raise Dumb()", DUMB), Status.RUNTIME_ERROR, "Dumb: (what it says cannot be told"),
        (forward("raise SystemExit(0)"), Status.RUNTIME_ERROR, "SystemExit"),
    ],
    ids=["nested", "huge", "null", "dumb", "exit"],
)
def test_odd_texts_and_errors_have_a_status_that_fits(evaluator, source, status, says):
    assert evaluator.tune(Candidate(source=source, backend="cpp")) is None
    found = judge(evaluator, source)
    assert found.status is status
    assert says in found.reason


LATIN = "# -*- coding: latin-1 -*-\n# d\xe9j\xe0 vu\n" + PLAIN


@pytest.mark.parametrize(
    "data",
    [
        LATIN.encode("latin-1"),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace("\n", "\r\n").encode(),
    ],
    ids=["latin-1", "byte-order mark", "lines of Windows"],
)
def test_files_are_read_as_the_interpreter_does(evaluator, tmp_path, data):
    (tmp_path / "answer.py").write_bytes(data)
    found = judge(evaluator, source_of(tmp_path / "answer.py"))
    assert found.status is Status.PASSED, found.reason


@pytest.mark.parametrize("data", [PLAIN.encode("utf-16"), b"# coding: none-such\n"])
def test_what_is_no_text_is_said(tmp_path, data):
    (tmp_path / "answer.py").write_bytes(data)
    with pytest.raises(ValueError, match=r"codec|encoding"):
        source_of(tmp_path / "answer.py")


def test_what_is_not_the_candidates_doing_is_an_error(config, servers, monkeypatch, tmp_path):
    broken = Task.from_source(TASK.replace("torch.relu", "torch.absent"), "broken")
    candidate = Candidate(source=PLAIN, backend="cpp")
    opened = LocalEvaluator(broken, config, servers=servers)
    with opened as evaluator, pytest.raises(TaskError, match="absent"):
        evaluator.verify(candidate)
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    with (
        pytest.raises(CompilerMissing, match="no-compiler"),
        LocalEvaluator(Task.from_source(TASK, "double_relu"), config),
    ):
        pass


def test_a_plain_answer_runs_unchanged(evaluator):
    found = judge(evaluator, PLAIN)
    assert found.status is Status.PASSED, found.reason
    assert found.outcome in ("slow", "fast")


def test_a_class_that_has_the_references_name_is_taken(evaluator):
    source = PLAIN.replace("ModelNew", "Other").replace("class Other(nn.Module)", "class Other")
    found = judge(evaluator, source)
    assert found.status is Status.PASSED, found.reason
    assert found.contract is not None
    assert any("`Model` was taken" in note for note in found.contract.notes)


def test_triton_without_a_gpu_is_not_called_wrong(evaluator):
    if find_spec("triton"):
        pytest.skip("Triton is here")
    found = judge(evaluator, TRITON)
    assert found.status is Status.RUNTIME_ERROR
    assert "needs a GPU" in found.reason
    assert "triton" in found.reason
    assert found.correctness is None


def test_a_gpu_answer_says_what_is_missing(evaluator):
    found = judge(evaluator, forward("return (torch.relu(x.cuda()) * 2).cpu()"))
    if found.status is not Status.PASSED:
        assert found.status is Status.RUNTIME_ERROR
        assert "needs a GPU" in found.reason


def test_an_extension_counts_as_own_work(strict):
    found = judge(strict, EXTENSION)
    assert found.status is Status.PASSED, (found.reason, found.log)
    assert found.contract is not None
    assert found.contract.own_kernels == ("tiny_relu.so",)
    assert any("build the extension `tiny_relu.so`" in note for note in found.contract.notes)


REWRITES = """
import ctypes
LIBC = ctypes.CDLL(None)
ADDRESS = ctypes.cast(LIBC.srand48, ctypes.c_void_p).value
START = ctypes.c_void_p(ADDRESS & ~4095)
if LIBC.mprotect(START, 8192, 7) == 0:
    ctypes.memset(ADDRESS, 0x90, 1)
    LIBC.mprotect(START, 8192, 5)
"""


def test_rewritten_code_is_refused_under_every_policy(evaluator):
    found = judge(evaluator, KERNEL + REWRITES)
    assert found.outcome == "against the contract", found.reason
    assert "rewrote code of `libc" in found.reason


def test_an_extension_that_does_not_build_shows_why(evaluator):
    found = judge(evaluator, OUTCOMES["an extension that does not build"][0])
    assert found.status is Status.COMPILE_ERROR
    assert found.compiles is False
    assert any("floaty" in diagnostic.message for diagnostic in found.diagnostics)
    assert found.diagnostics[0].line is not None
