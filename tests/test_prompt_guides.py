"""The examples of the guides are what they say: they build, and the C++ one is judged right."""

import re

import pytest

from evokernel.attempt import Candidate
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.compilers import Artefact, KernelSource
from evokernel.compilers.cuda import CudaCompiler
from evokernel.compilers.triton import TritonCompiler
from evokernel.config import BenchConfig
from evokernel.errors import CompilerMissing
from evokernel.evaluation import Status
from evokernel.prompts import Texts, backends
from evokernel.task import Task

TASK = '''"""Scaled ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return torch.relu(x) * self.scale


def get_inputs():
    return [torch.randn(257, 1031)]


def get_init_inputs():
    return [0.5]
'''


def example(backend: str) -> str:
    """The first block of Python in a guide."""
    return re.search(r"^```python\n(.*?)^```", Texts.load().plain(f"{backend}.md"), re.M | re.S)[1]


@pytest.mark.parametrize("backend", backends())
def test_every_example_is_python_and_says_what_is_forbidden(backend):
    compile(example(backend), "candidate.py", "exec")
    text = Texts.load().plain(f"{backend}.md")
    for part in ("ModelNew", "TUNE = ", "NaN"):
        assert part in text


@pytest.mark.parametrize(
    ("backend", "device"),
    [
        ("cpp", "cpu"),
        pytest.param("cuda", "cuda:0", marks=pytest.mark.gpu),
        pytest.param("triton", "cuda:0", marks=pytest.mark.gpu),
    ],
)
def test_every_example_is_right_by_its_own_means(backend, device, warm_cache):
    config = BenchConfig(measurement="quick", baselines=("eager",), cache=warm_cache, quiet_s=0)
    task = Task.from_source(TASK, "scaled-relu", device=device)
    with LocalEvaluator(task, config, backend) as judge:
        evaluation = judge.verify(Candidate(source=example(backend), backend=backend))
    assert (evaluation.status, evaluation.reason) == (Status.PASSED, "")


def test_the_example_in_cuda_builds_without_a_gpu(tmp_path):
    source = re.search(r'cuda_module\(r"""(.*?)"""', example("cuda"), re.S)[1]
    try:
        compiler = CudaCompiler(tmp_path, arch="sm_90a")
    except CompilerMissing as missing:
        pytest.skip(str(missing))
    artefact = compiler.build(KernelSource(backend="cuda", source=source, name="kernel_0.cu"))
    assert isinstance(artefact, Artefact), artefact


def test_the_example_in_triton_builds_without_a_gpu(tmp_path):
    try:
        compiler = TritonCompiler(tmp_path, arch="sm_90a", task=TASK)
    except CompilerMissing as missing:
        pytest.skip(str(missing))
    artefact = compiler.build(KernelSource(backend="triton", source=example("triton")))
    assert isinstance(artefact, Artefact), artefact
    assert artefact.resources[0].kernel == "scaled_relu"
