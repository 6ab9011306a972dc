"""What a model reads: whole, with everything it needs for the step, and honestly shortened."""

import re

import pytest

from evokernel.attempt import Attempt, Candidate, Fault, Proposal, Stage
from evokernel.evaluation import Correctness, Diagnostic, Evaluation, Mismatch, Status
from evokernel.memory.harvest import Scene, harvest
from evokernel.profile import Profile
from evokernel.prompts import Limits, render
from evokernel.prompts.limits import cut, fenced
from evokernel.proposers import Request
from evokernel.proposers.techniques import catalogue
from evokernel.task import Task
from evokernel.testing import fake_evaluation, fake_graph, fake_kernel, fake_task

TASK = fake_task()
NOTES = [catalogue()["row-caching"], catalogue()["vectorized-math"]]
SCENE = Scene(run="r", task="softmax", family="softmax", fingerprint="f")


def attempt(number: int, source: str, stage: Stage = Stage.DRAFT, **more) -> Attempt:
    candidate = Candidate(source=source, backend="cpp")
    proposal = {"candidate": candidate, "stage": stage, "rationale": f"idea {number}"}
    evaluation = more.pop("evaluation", None) or fake_evaluation(candidate, TASK)
    return Attempt(
        number=number,
        step=f"r/{number}",
        trajectory=0,
        proposal=Proposal.model_validate(proposal | more),
        evaluation=evaluation,
    )


def failed(source: str, status: Status, **evidence) -> Evaluation:
    sha = Candidate(source=source, backend="cpp").sha
    return Evaluation(candidate=sha, task=TASK.sha, status=status, **evidence)


def request(stage: Stage = Stage.DRAFT, **more) -> Request:
    given = {"task": TASK, "graph": fake_graph(), "backend": "cpp", "step": "r/9", "seed": 1}
    return Request.model_validate({**given, "stage": stage, **more})


FAST = attempt(
    2,
    fake_kernel(2.0, techniques=("row-caching",)),
    techniques=("row-caching",),
)


def test_draft_holds_the_task_the_machine_and_the_contract():
    shown = request(machine=("Vector instructions: avx2",), baselines={"eager": 10.0})
    prompt = render(shown, NOTES)
    for part in (TASK.source.strip(), "Vector instructions: avx2", "PyTorch eager takes 10.00 ms"):
        assert part in prompt.user
    for part in ("add = add(x, 1, 1): float32[8, 16]", "128 floating-point operations"):
        assert part in prompt.user
    for part in ("`row-caching`:", "`vectorized-math`:", "Helps:", "Costs:"):
        assert part in prompt.user
    for part in ("ModelNew", "jit.cpp_module", "Techniques:", "NaN and infinities must", "x.sum()"):
        assert part in prompt.system
    assert "may also call operators" not in prompt.system


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("parents", [(), (FAST,), (FAST, attempt(3, fake_kernel(3.0)))])
def test_nothing_is_left_to_be_filled_in_and_no_part_is_empty(stage, parents):
    prompt = render(request(stage, parents=parents), NOTES)
    prose = re.sub(r"^(`{3,}).*?^\1$", "", prompt.text, flags=re.MULTILINE | re.DOTALL)
    assert "$" not in prose
    assert "None" not in prompt.user
    assert "\n\n\n\n" not in prompt.user


def test_library_may_be_allowed_and_special_values_ignored():
    source = TASK.source.replace("import torch\n", 'EVOKERNEL = {"special_values": "ignore"}\n', 1)
    task = Task.from_source(f"{source}\nimport torch\n", "other")
    prompt = render(request(task=task, contract="library_allowed"), NOTES)
    assert "may also call operators" in prompt.system
    assert "need not come out" in prompt.system


def test_hidden_workloads_stay_hidden():
    more = (
        "\n\ndef get_workloads():\n"
        '    return [{"name": "odd", "hidden": True, "inputs": lambda: [torch.rand(7, 13)]}]\n'
    )
    user = render(request(task=Task.from_source(TASK.source + more, "secret")), NOTES).user
    assert "torch.rand(7, 13)" not in user
    assert "some of them not shown" in user


def test_task_without_graph_and_techniques_is_served():
    user = render(request(graph=None), []).user
    assert TASK.source.strip() in user
    assert "Techniques" not in user
    assert "operators" not in user.partition("Write a first candidate")[0]


def test_repair_shows_the_compiler_at_the_line():
    source = fake_kernel(note="broken")
    broken = failed(
        source,
        Status.COMPILE_ERROR,
        reason="a kernel does not build",
        compiles=False,
        diagnostics=tuple(
            Diagnostic(
                severity="error",
                message=f"expected `;` number {i}",
                file="kernel_0.cpp",
                line=7,
                excerpt="  return x",
            )
            for i in range(12)
        ),
        log="z" * 5000,
    )
    user = render(request(parents=(attempt(1, source, evaluation=broken),)), NOTES).user
    assert "Status `compile_error`: a kernel does not build" in user
    assert "- kernel_0.cpp:7 error: expected `;` number 0\n      return x" in user
    assert "[... and 4 more messages]" in user
    assert "number 8" not in user
    assert "z" * 1500 in user
    assert "z" * 1501 not in user
    assert source.strip() in user
    assert "repair" in user.partition("\n")[0]


def test_repair_shows_where_values_differ():
    source = fake_kernel(note="wrong")
    mismatch = Mismatch(
        workload="default",
        family="large",
        output="0",
        detail="3 of 128 elements differ",
        wrong=3,
        total=128,
        worst_index=(0, 5),
        got=1.5,
        expected=2.25,
    )
    wrong = failed(
        source,
        Status.WRONG_VALUES,
        reason="values differ",
        compiles=True,
        correctness=Correctness(
            is_right=False,
            families=("large",),
            workloads=("default",),
            comparisons=1,
            worst_ratio=30.0,
            tolerance="ten times the reference's own error",
            mismatches=(mismatch,),
        ),
    )
    user = render(request(parents=(attempt(1, source, evaluation=wrong),)), NOTES).user
    assert "inputs of the kind `large`" in user
    assert "Worst at index [0, 5]: got 1.5, expected 2.25." in user
    assert "The rule: ten times the reference's own error" in user


def test_repair_of_a_reply_without_code_shows_the_reply():
    fault = Fault(kind="no_candidate", reason="the reply holds no code block")
    empty = attempt(
        1,
        "# no candidate\n",
        fault=fault,
        reply="Here you are: ```",
        evaluation=failed("# no candidate\n", Status.INVALID_SOURCE, reason=fault.reason),
    )
    user = render(request(parents=(empty,)), NOTES).user
    assert "held no candidate" in user
    assert "Here you are: ```" in user
    assert "the reply holds no code block" in user


def test_refinement_shows_figures_profile_and_what_was_tried():
    profile = Profile(
        bound_by="memory", roofline_share=0.5, gbytes_per_s=12.0, gflops=3.0, notes=("a note",)
    )
    evaluation = FAST.evaluation.model_copy(update={"profile": profile})
    parent = FAST.model_copy(update={"evaluation": evaluation})
    slower = attempt(3, fake_kernel(4.0), Stage.REFINE, changed=("software-prefetch",))
    wrong = attempt(4, fake_kernel(status=Status.WRONG_VALUES), Stage.REFINE)
    user = render(request(Stage.REFINE, parents=(parent,), children=(slower, wrong)), NOTES).user
    assert "takes 2.000 ms a call" in user
    assert "5.00x [4.95, 5.05] as fast as PyTorch eager (10.00 ms)" in user
    assert "Bound by memory; it reaches 50% of the roofline." in user
    assert "A note." in user
    assert "attempt 3 (software-prefetch): idea 3 -> right, 4.000 ms, 0.50x as fast" in user
    assert "attempt 4 (no named technique): idea 4 -> wrong_values" in user
    assert "`row-caching` (this candidate has it)" in user


def test_recombination_shows_both_and_asks_why():
    other = attempt(3, fake_kernel(3.0, note="other"))
    user = render(request(Stage.REFINE, parents=(FAST, other)), NOTES).user
    assert FAST.proposal.candidate.source.strip() in user
    assert other.proposal.candidate.source.strip() in user
    assert "why one of these two candidates is faster" in user
    assert "takes 3.000 ms a call" in user


def test_second_draft_knows_the_first():
    user = render(request(children=(FAST,)), NOTES).user
    assert "write one that goes another way" in user
    assert "attempt 2 (row-caching): idea 2 -> right, 2.000 ms" in user


def test_experiences_are_shown_with_id_gain_and_text():
    child = attempt(5, fake_kernel(1.0, techniques=("vectorized-math",)), Stage.REFINE)
    kernel, edit = harvest(child, SCENE, FAST)
    broken = attempt(6, fake_kernel(status=Status.COMPILE_ERROR))
    (lesson,) = harvest(broken, SCENE)
    user = render(request(shown=(kernel, edit, lesson)), NOTES).user
    for experience in (kernel, edit, lesson):
        assert f"`{experience.id}`" in user
    assert "2.00x [2.00, 2.00] as fast as its parent" in user
    assert "```diff" in user
    assert "task `softmax`" in user
    assert "Error: compile_error" in user
    assert broken.proposal.candidate.source.strip() not in user


def test_long_texts_are_cut_and_it_is_said():
    source = "\n".join(f"line {i}" for i in range(10_000))
    shown = cut(source, 1000, "the task")
    assert len(shown) < 1100
    assert shown.startswith("line 0\n")
    assert shown.endswith("line 9999")
    missing = int(re.search(r"\[\.\.\. (\d+) letters of the task are left out", shown)[1])
    kept = re.sub(r"\n\[.*\]\n", "", shown)
    assert len(kept) + missing == len(source)
    assert cut("short", 1000, "the task") == "short"


def test_limits_can_be_halved_until_little_is_left():
    limits = Limits()
    assert limits.halved().task == limits.task // 2
    assert limits.halved().candidate == limits.candidate
    long = attempt(1, fake_kernel(note="x" * 20_000))
    full = render(request(Stage.REFINE, parents=(long,)), NOTES)
    small = render(request(Stage.REFINE, parents=(long,)), NOTES, limits.halved().halved().halved())
    assert len(small.user) <= len(full.user)


def test_code_with_backticks_gets_a_longer_fence():
    assert fenced("a\n``` ``\nb") == "````\na\n``` ``\nb\n````"
    assert fenced("a\n````\nb") == "`````\na\n````\nb\n`````"
