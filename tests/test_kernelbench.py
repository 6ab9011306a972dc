"""Problems in the format of KernelBench run unchanged, and templates cover what they promise."""

from functools import cache
from pathlib import Path

import pytest

from evokernel.attempt import Candidate, Stage
from evokernel.errors import NoTemplate
from evokernel.opgraph import OpGraph, capture
from evokernel.program import Program
from evokernel.proposers import Request
from evokernel.proposers.templates import TemplateProposer
from evokernel.task import Task

FOLDER = Path(__file__).parent / "kernelbench"
PROBLEMS = {
    f"{file.parent.name}/{file.stem}": file for file in sorted(FOLDER.glob("level[12]/*.py"))
}
"""Written by us after the operator lists of KernelBench's levels 1 and 2, numbers included."""

NO_TEMPLATE = frozenset(
    [
        "level1/33_batch_norm",
        "level2/33_gemm_scale_batch_norm",
        "level2/41_gemm_batch_norm_gelu_relu",
        "level2/52_conv2d_activation_batch_norm",
        "level2/84_gemm_batch_norm_scaling_softmax",
        "level2/97_matmul_batch_norm_bias_divide_swish",
    ]
)
"""Problems for which the templates write no draft; `benchmarks/coverage.py` says why."""


@cache
def program(name: str) -> Program:
    return Task.load(PROBLEMS[name]).program()


@cache
def graph(name: str) -> OpGraph:
    return capture(program(name))


def test_there_are_enough_of_both_levels():
    levels = [name.partition("/")[0] for name in PROBLEMS]
    assert levels.count("level1") >= 40
    assert levels.count("level2") >= 40


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_runs_and_is_captured(name: str):
    task = program(name).task
    assert task.name[0].isdigit()
    assert task.title.endswith(".")
    program(name).check()
    assert graph(name).source == "export"
    assert graph(name).family != "other"
    assert graph(name).min_bytes < 10e6


def draft(task: Task, operators: OpGraph) -> Candidate:
    """The first draft; nothing is compiled but the Python around the kernel."""
    request = Request(
        task=task, graph=operators, backend="cpp", stage=Stage.DRAFT, step="first", seed=0
    )
    candidate = TemplateProposer().propose(request).candidate
    compile(candidate.source, task.name, "exec")
    return candidate


@pytest.mark.parametrize("name", Task.names())
def test_templates_draft_every_built_in_task(name: str):
    task = Task.load(name)
    assert "cpp_module(" in draft(task, capture(task.program())).source


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name not in NO_TEMPLATE])
def test_templates_draft_the_other_problems(name: str):
    assert "cpp_module(" in draft(program(name).task, graph(name)).source


@pytest.mark.parametrize("name", sorted(NO_TEMPLATE))
def test_what_is_not_covered_is_refused_in_words(name: str):
    with pytest.raises(NoTemplate, match=r"There is no template for `"):
        TemplateProposer().check(program(name).task, graph(name), "cpp")
