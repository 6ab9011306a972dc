"""`evokernel compile` builds what a file asks for and shows what the compiler says."""

import json

import pytest
import typer
from typer.testing import CliRunner

from evokernel.cli.compile import compile_file
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
    with pytest.raises(ConfigError, match=r"expected a candidate \(\.py\) or a C\+\+ kernel"):
        raise compile_("", name="notes.txt").exception
    with pytest.raises(ConfigError, match=r"cannot read `.*missing\.py`: No such file"):
        compile_file(tmp_path / "missing.py")
    (tmp_path / "binary.cpp").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        compile_file(tmp_path / "binary.cpp")


def test_missing_compiler_is_a_usage_error(compile_, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    error = compile_(CANDIDATE).exception
    assert isinstance(error, CompilerMissing)
    assert error.exit_code == 2
