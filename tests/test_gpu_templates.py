"""CUDA templates: what they write compiles for every architecture; on a GPU it is right."""

import random
import re

import pytest

from evokernel.attempt import Stage
from evokernel.compilers import Artefact, KernelSource
from evokernel.compilers.cuda import CudaCompiler
from evokernel.compilers.toolkit import Toolkit
from evokernel.jit import device
from evokernel.opgraph import OpGraph, TensorSpec, capture
from evokernel.proposers import Request
from evokernel.proposers.techniques import catalogue
from evokernel.proposers.templates import TemplateProposer
from evokernel.proposers.templates.choices import read_plan
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.template import Template
from evokernel.task import Task
from tests import cuda_cases

needs_nvrtc = pytest.mark.skipif(
    Toolkit.found().library is None, reason="NVRTC is not installed (the extra `compilers`)"
)
TASKS = Task.suite("cuda")
COMPILED = ("swiglu", "softmax", "few_scans", "tall_scan", "max_pool", "attention", "conv")


@pytest.fixture(scope="module")
def graphs() -> dict[str, tuple[Task, OpGraph]]:
    """Every built-in task at its GPU sizes."""
    return {task.name: (task, capture(task.program())) for task in TASKS}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory) -> CudaCompiler:
    return CudaCompiler(tmp_path_factory.mktemp("cache"))


def in_dtype(graph: OpGraph, dtype: str) -> OpGraph:
    """The graph as a cast of module and inputs gives it."""

    def cast(spec: TensorSpec) -> TensorSpec:
        return spec.model_copy(update={"dtype": dtype}) if spec.dtype == "float32" else spec

    nodes = [n.model_copy(update={"outputs": tuple(map(cast, n.outputs))}) for n in graph.nodes]
    return graph.model_copy(update={"nodes": tuple(nodes)})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_built_in_task_is_written(graphs, dtype):
    dice = random.Random(dtype)
    for task, graph in graphs.values():
        template, again = (Template(task, in_dtype(graph, dtype), "cuda") for _ in range(2))
        known = {c.technique(v) for c in template.space.choices for v in c.values} - {None}
        assert known <= set(catalogue())
        assert all("cuda" in catalogue()[name].backends for name in known)
        assert {o.dtype for o in template.program.outputs} & {dtype, "bool", "int64"}
        assert template.source(template.space.plain()) == again.source(again.space.plain())
        for _ in range(2):
            wish = {c.name: dice.choice(c.values) for c in template.space.choices}
            plan = template.space.settle(wish)
            source = template.source(plan)
            assert read_plan(source) == plan
            compile(source, "candidate", "exec")
            assert ("struct half" in source) == (dtype == "float16")


@needs_nvrtc
@pytest.mark.parametrize("name", COMPILED)
def test_plans_compile_without_spills(compiler, name):
    precision = {"swiglu": "fp32", "softmax": "fp16"}.get(name, "bf16")
    for number, (plan, source) in enumerate(cuda_cases.case(name, precision, "cuda", 1).candidates):
        arch = ("sm_90a", "sm_80")[number % 2]
        text = cuda_cases.kernels_of(source)
        built = compiler.build(KernelSource(backend="cuda", source=text, arch=arch))
        assert isinstance(built, Artefact), f"{plan}\n{built}"
        launched = set(re.findall(r"kernels\.(\w+)\[", source))
        assert {resource.kernel for resource in built.resources} == launched
        if number == 0:
            assert not any(r.spill_stores or r.spill_loads for r in built.resources), built


def test_the_proposer_drafts_and_refines_for_cuda(graphs):
    task, graph = graphs["softmax"]
    fields = {"task": task, "graph": graph, "backend": "cuda", "stage": Stage.DRAFT, "seed": 3}
    first = TemplateProposer().propose(Request.model_validate({**fields, "step": "run/1"}))
    assert first.candidate.backend == "cuda"
    assert "vectorized-loads" in first.techniques
    tried = (first.candidate.sha,)
    again = Request.model_validate({**fields, "step": "run/2", "tried": tried})
    assert TemplateProposer().propose(again).candidate.sha not in tried


def test_half_precision_is_refused_where_it_is_not_written(graphs):
    task, graph = graphs["softmax"]
    with pytest.raises(Unsupported, match="float16"):
        Template(task, in_dtype(graph, "float16"), "cpp")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_candidates_are_right(precision, tmp_path):
    assert not device.missing()
    names = list(cuda_cases.CASES)
    found, refused = cuda_cases.prepared(names, [precision], "cuda", 1, tmp_path)
    assert refused == []
    assert [fault for each in found for fault in cuda_cases.faults(each)] == []
