"""Triton kernels are built for a GPU that is not here, as they are declared or as they launch."""

import importlib.util
import zipfile
from functools import lru_cache
from pathlib import Path

import pytest

import evokernel
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.triton import TritonCompiler
from evokernel.confinement.kernel import landlock_version
from evokernel.task.autotune import opened
from evokernel.tuning import Space

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed (the extra `compilers`)",
)

KERNELS = """\
import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.autotune(
    configs=[triton.Config({"SIZE": 256}), triton.Config({"SIZE": 1024}, num_warps=8)], key=["n"]
)
@triton.jit
def scale(x, out, n, by, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i, mask=i < n) * by, mask=i < n)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + i, mask=i < n)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        scale[lambda meta: (triton.cdiv(n, meta["SIZE"]),)](x, out, n, 2.0)
        total[(1,)](out, out, n, BLOCK=BLOCK)
        return out
"""
DECLARED = KERNELS.partition("class ModelNew")[0].replace("import torch\n", "\n") + (
    'LAUNCHES = {"total": {"x": "*bf16", "out": "*fp32", "n": "i32", "BLOCK": BLOCK, '
    '"num_warps": 8}}\n'
)
TASK = """
import torch
def get_inputs():
    return [torch.rand(1024, 1000)]
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@lru_cache
def compiler(cache: Path, arch: str, task: str) -> TritonCompiler:
    """One for each, as one that has built something need not prove itself after a failure."""
    return TritonCompiler(cache, arch=arch, task=task)


def build(cache, source: str, arch: str = "sm_90a", task: str = ""):
    kernel = KernelSource(backend="triton", source=source, name="mine.py")
    return compiler(cache, arch, task).build(kernel)


@pytest.fixture(scope="module")
def unproven(tmp_path_factory) -> TritonCompiler:
    """It has built nothing when the first candidate comes."""
    return TritonCompiler(tmp_path_factory.mktemp("unproven"), arch="sm_90a")


@needs_triton
def test_declared_launch_is_built(cache):
    built = build(cache, DECLARED)
    assert isinstance(built, Artefact), built
    (total,) = built.resources
    assert (total.kernel, total.spill_stores, built.arch) == ("total", 0, "sm_90a")
    assert total.registers > 0
    assert total.shared_bytes > 0  # the sum goes over eight warps
    assert "`total`: num_warps=8, num_stages=3" in built.notes
    with zipfile.ZipFile(built.path) as archive:
        assert archive.namelist() == ["total.0.cubin", "total.0.ptx"]
        assert b"sm_90a" in archive.read("total.0.ptx")
    assert build(cache, DECLARED).cached


@needs_triton
def test_forward_shows_what_is_launched(cache):
    built = build(cache, KERNELS, "sm_80", TASK)
    assert isinstance(built, Artefact), built
    assert [r.kernel for r in built.resources] == ["scale", "total"]
    assert any("`scale` chooses among 2 configurations" in note for note in built.notes)


@needs_triton
def test_launches_that_are_not_known(cache):
    built = build(cache, DECLARED.partition("LAUNCHES")[0])
    assert isinstance(built, BuildFailure)
    assert "declare `LAUNCHES`, or name the task" in built.diagnostics[0].message


@needs_triton
def test_faults_have_the_authors_lines(cache):
    source = DECLARED.replace("tl.sum(tl.load(", "tl.sum(oops(").partition("LAUNCHES")[0]
    source += """
@triton.jit
def dot(a, b, c, M: tl.constexpr):
    p = tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(c + p, tl.dot(tl.load(a + p), tl.load(b + p)))


LAUNCHES = {
    "total": {"x": "*bf16", "out": "*fp32", "n": "i32", "BLOCK": BLOCK},
    "dot": {"a": "*fp32", "b": "*fp32", "c": "*fp32", "M": 128},
}
"""
    built = build(cache, source, "sm_86")
    assert isinstance(built, BuildFailure)
    unknown, large = built.diagnostics
    assert (unknown.file, unknown.line, unknown.column) == ("mine.py", 20, 26)
    assert "oops is not defined" in unknown.message
    assert unknown.excerpt == "tl.store(out, tl.sum(oops(x + i, mask=i < n)))"
    assert "`dot` needs " in large.message
    assert large.message.endswith(
        "and `sm_86` has 101376; take smaller blocks or a smaller `num_stages`"
    )
    assert source.split("\n")[large.line - 1].startswith("def dot(")


def test_configurations_become_a_choice_of_our_own():
    space = Space.declared(KERNELS)
    assert space.parameters == {"SCALE_CONFIG": (0, 1)}
    frozen = space.frozen({"SCALE_CONFIG": 1})
    assert frozen.splitlines()[0] == "import torch; SCALE_CONFIG = 1; TUNE = {'SCALE_CONFIG': [1]}"
    assert "num_warps=8)][SCALE_CONFIG : SCALE_CONFIG + 1], key" in frozen
    assert len(frozen.splitlines()) == len(KERNELS.splitlines())
    assert Space.declared(frozen).parameters == {"SCALE_CONFIG": (1,)}


def test_imports_from_the_future_stay_first():
    future = "from __future__ import annotations\nfrom __future__ import division\n"
    text = opened(future + KERNELS)
    compile(text, "mine.py", "exec")
    assert text.startswith(f"{future}import torch; SCALE_CONFIG = 0; TUNE = ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BLOCK = 512", "BLOCK = 512\nTUNE = {'BLOCK': [128]}"),  # declared already
        ("BLOCK = 512", "BLOCK = 512\nSCALE_CONFIG = 3"),  # the name is taken
        ('[triton.Config({"SIZE": 256}), ', "[*OTHERS, "),  # who knows how many
        ("@triton.autotune", "@other"),
        ("import torch", "import torch ("),
    ],
)
def test_what_is_left_as_it_is(old, new):
    source = KERNELS.replace(old, new, 1)
    assert source != KERNELS
    assert opened(source) == source


def test_configurations_by_name_are_counted():
    source = """\
import triton  # first
CONFIGS = [triton.Config({"A": 1}), triton.Config({"A": 2}), triton.Config({"A": 3})]
@triton.autotune(CONFIGS, key=[])
@triton.jit
def mul(x): pass
"""
    assert opened(source).splitlines()[0] == (
        "import triton; MUL_CONFIG = 0; TUNE = {'MUL_CONFIG': [0, 1, 2]}  # first"
    )
    assert "@triton.autotune(CONFIGS[MUL_CONFIG : MUL_CONFIG + 1], key=[])" in opened(source)


@needs_triton
@pytest.mark.skipif(not landlock_version(), reason="the kernel offers no Landlock")
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "os._exit(3)", "os.abort()"])
def test_a_candidate_does_not_take_the_fence_down(unproven, tmp_path, end):
    secret = tmp_path / "secret"
    secret.write_text("42")
    source = f"import os, sys\ntry:\n    print('read', open({str(secret)!r}).read())\n"
    source += f"except OSError as error:\n    print(error.strerror, flush=True)\n{end}\n"
    built = unproven.build(KernelSource(backend="triton", source=source, name="mine.py"))
    assert isinstance(built, BuildFailure)
    assert "Permission denied" in built.log
    assert "read 42" not in built.log
    assert unproven.is_fenced
    assert built.cached is False


@needs_triton
@pytest.mark.skipif(not landlock_version(), reason="the kernel offers no Landlock")
def test_a_candidate_reads_the_package_and_not_what_lies_beside_it(cache):
    root = Path(evokernel.__file__).resolve().parent.parent
    source = f"""\
import os
from evokernel import jit
for place in ("", "README.md", "tests/test_triton.py", "evokernel/tasks/softmax.py"):
    try:
        os.stat(os.open(os.path.join({str(root)!r}, place), os.O_RDONLY))
        print("open:", place)
    except OSError as error:
        print(error.strerror)
print("jit:", jit.__name__, flush=True)
"""
    built = build(cache, source + DECLARED)
    assert isinstance(built, Artefact), built
    assert built.log.count("Permission denied") == 4
    assert "jit: evokernel.jit" in built.log
