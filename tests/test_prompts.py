"""What a model reads: whole, with everything it needs for the step, and honestly shortened."""

import re

import pytest

from evokernel.attempt import Fault, Stage
from evokernel.evaluation import Contract, Correctness, Diagnostic, Interval, Mismatch, Status
from evokernel.memory.harvest import Scene, harvest
from evokernel.memory.values import Value
from evokernel.opgraph import TensorSpec
from evokernel.profile import Profile
from evokernel.prompts import ORDER, Item, Section, compose, fit, render, tokens
from evokernel.prompts.exemplars import Variant, draw, exemplars
from evokernel.prompts.fitting import KEPT
from evokernel.prompts.section import cut, fenced
from evokernel.proposers.techniques import catalogue
from evokernel.task import Task
from evokernel.testing import fake_graph, fake_kernel
from tests.prompt_samples import FAST, NOTES, TASK, attempt, failed, request

SCENE = Scene(run="r", task="softmax", family="softmax", fingerprint="f")


def test_draft_holds_the_task_the_machine_and_the_contract():
    shown = request(machine=("Vector instructions: avx2",), baselines={"eager": 10.0})
    prompt = render(shown, NOTES)
    for part in (TASK.source.strip(), "Vector instructions: avx2", "PyTorch eager takes 10.00 ms"):
        assert part in prompt.user
    for part in ("add = add(x, 1, 1): float32[8, 16]", "128 floating-point operations"):
        assert part in prompt.user
    for part in ("`row-caching`:", "`vectorized-math`:", "Helps:", "Costs:"):
        assert part in prompt.user
    for part in ("ModelNew", "jit.cpp_module", "Techniques:", "must come out where", "x.sum()"):
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
    assert re.search(r"^#.*\n+\Z", prompt.user, re.MULTILINE) is None


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
    assert "Its operators" not in user


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
    )
    user = render(request(parents=(attempt(1, source, evaluation=broken),)), NOTES).user
    assert "Status `compile_error`: a kernel does not build" in user
    assert "- kernel_0.cpp:7 error: expected `;` number 0\n      return x" in user
    assert "[... and 4 more messages]" in user
    assert "number 8" not in user
    assert source.strip() in user
    assert "# Your step: repair" in user
    assert "The first error usually causes those after it." in user


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
            families=("normal", "large"),
            workloads=("default",),
            comparisons=1,
            worst_ratio=30.0,
            tolerance="ten times the reference's own error",
            mismatches=(mismatch,),
        ),
    )
    user = render(request(parents=(attempt(1, source, evaluation=wrong),)), NOTES).user
    assert "- inputs `large`, workload `default`, output 0: 3 of 128 elements differ." in user
    assert "Kinds of inputs for which it was right: normal." in user
    assert "The rule: ten times the reference's own error" in user
    assert "This looks like" not in user


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
    slower = attempt(
        3, fake_kernel(4.0), Stage.REFINE, techniques=("software-prefetch",), predicted=1.5
    )
    wrong = attempt(4, fake_kernel(status=Status.WRONG_VALUES), Stage.REFINE)
    user = render(request(Stage.REFINE, parents=(parent,), children=(slower, wrong)), NOTES).user
    assert "takes 2.000 ms a call" in user
    assert "5.00x [4.95, 5.05] as fast as PyTorch eager, measured side by side." in user
    assert "Bound by memory; it reaches 50% of the roofline (12.0 GB/s of necessary" in user
    assert "A note." in user
    assert "attempt 3 (with software-prefetch, without row-caching): idea 3, expected to be" in user
    assert "to be 1.50x as fast -> right, 4.000 ms a call, 0.50x as fast as the candidate" in user
    assert "attempt 4 (without row-caching): idea 4 -> wrong_values" in user
    assert "- The candidate has `row-caching`.\n" in user
    assert "It beats PyTorch already" in user


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
    assert "attempt 2 (row-caching): idea 2 -> right, 2.000 ms a call, 5.00x" in user


def test_experiences_are_shown_with_id_gain_and_text():
    child = attempt(5, fake_kernel(1.0, techniques=("vectorized-math",)), Stage.REFINE)
    kernel, edit = harvest(child, SCENE, FAST)
    broken = attempt(6, fake_kernel(status=Status.COMPILE_ERROR))
    (lesson,) = harvest(broken, SCENE)
    values = {kernel.id: Value(q=0.25, visits=4), edit.id: Value()}
    user = render(request(shown=(kernel, edit, lesson), values=values), NOTES).user
    assert "Value: +0.25 after 4 uses." in user
    assert user.count("Value: not known yet.") == 2
    for experience in (kernel, edit, lesson):
        assert f"`{experience.id}`" in user
    assert "2.00x [2.00, 2.00] as fast as what it was made from" in user
    assert f"Its code is that of `{kernel.id}`." in user
    assert "```diff\n@@" in render(request(shown=(edit,)), NOTES).user
    assert "task `softmax`" in user
    assert "ended as compile_error: the kernel says compile_error" in user
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


def test_code_with_backticks_gets_a_longer_fence():
    assert fenced("a\n``` ``\nb") == "````\na\n``` ``\nb\n````"
    assert fenced("a\n````\nb") == "`````\na\n````\nb\n`````"


# -- exemplars -------------------------------------------------------------------------------------


def variant(speedup: float, name: str = "") -> Variant:
    ratio = Interval(value=speedup, low=0.99 * speedup, high=1.01 * speedup)
    return Variant(name=name or str(speedup), ratio=ratio)


def test_exemplars_come_from_different_levels_and_fast_ones_more_often():
    known = [variant(1.0, "a"), variant(1.02, "b"), variant(2.0), variant(4.0)]
    drawn = [draw(known, 2, seed) for seed in range(300)]
    assert all(len(pair) == 2 and pair[0].speedup > 1.5 * pair[1].speedup for pair in drawn)
    assert drawn[7] == draw(known, 2, 7)
    names = [each.name for pair in drawn for each in pair]
    assert names.count("4.0") > names.count("2.0") > names.count("a") + names.count("b") > 0
    assert min(names.count("a"), names.count("b")) > 0
    assert draw(known[:2], 2, 1)[0].name in "ab"


def test_speeds_that_noise_may_explain_are_not_compared():
    wide = Variant(name="wide", ratio=Interval(value=3.0, low=0.9, high=5.0))
    assert all(len(draw([variant(1.0), wide], 2, seed)) == 1 for seed in range(20))
    doubtful = attempt(3, fake_kernel(6.0, doubt=3.0))
    assert exemplars(request(Stage.REFINE, parents=(FAST,), history=(FAST, doubtful))) == ()


def test_cold_exemplars_are_even_and_hot_ones_greedy():
    known = [variant(1.0), variant(2.0)]
    hot = [draw(known, 1, seed, temperature=0.01)[0].speedup for seed in range(50)]
    even = [draw(known, 1, seed, temperature=1e6)[0].speedup for seed in range(200)]
    assert set(hot) == {2.0}
    assert 70 < even.count(1.0) < 130


def test_a_draft_compares_two_levels_of_this_run():
    slow, same = attempt(3, fake_kernel(6.0)), attempt(4, fake_kernel(2.1))
    shown = request(history=(FAST, slow, same))
    fast, slower = exemplars(shown)
    assert slower.name == "attempt 3"
    assert fast.name in {"attempt 2", "attempt 4"}
    user = render(shown, NOTES).user
    assert "### attempt 3: 1.67x as fast as PyTorch eager, 6.000 ms a call" in user
    assert "Say in your analysis why one is" in user
    assert exemplars(request(history=(FAST, same))) == ()


def test_a_refinement_is_compared_with_another_level_than_its_own():
    slow, same = attempt(3, fake_kernel(6.0)), attempt(4, fake_kernel(2.1))
    shown = request(Stage.REFINE, parents=(FAST,), history=(FAST, slow, same))
    assert [each.name for each in exemplars(shown)] == ["attempt 3"]
    user = render(shown, NOTES).user
    assert "why it is faster or slower than the" in user
    assert "The best of the other attempts\n\n- attempt 4 (no named technique): idea 4" in user


def test_a_kernel_of_a_near_task_is_compared_and_not_shown_twice():
    scene = Scene(run="r", task="gelu", family="elementwise", fingerprint="f")
    near = [harvest(attempt(n, fake_kernel(ms)), scene)[0] for n, ms in ((1, 9.0), (2, 4.0))]
    far = harvest(attempt(3, fake_kernel(1.0)), SCENE)[0]
    shown = request(shown=(*near, far))
    assert {each.name for each in exemplars(shown)} == {e.id for e in near}
    user = render(shown, NOTES).user
    assert all(user.count(e.payload["source"].strip()) == 1 for e in near)
    assert f"### `{near[1].id}`: 2.50x as fast as PyTorch eager, task `gelu`; " in user


@pytest.mark.parametrize("parents", [(attempt(1, fake_kernel(status=Status.CRASHED)),)])
def test_what_failed_is_repaired_without_comparing(parents):
    shown = request(parents=parents, history=(FAST, attempt(3, fake_kernel(6.0))))
    assert exemplars(shown) == ()


def test_four_best_of_the_history_and_no_more():
    history = tuple(attempt(n, fake_kernel(float(n))) for n in range(1, 10))
    shown = request(Stage.REFINE, parents=history[8:], history=history)
    (compared,) = exemplars(shown)
    best = render(shown, []).user.partition("The best of the other attempts")[2]
    listed = [int(n) for n in re.findall(r"^- attempt (\d+)", best, re.MULTILINE)]
    assert listed == [n for n in range(1, 9) if f"attempt {n}" != compared.name][:4]


# -- feedback --------------------------------------------------------------------------------------


def repair(status: Status, source: str = "", **evidence) -> str:
    source = source or fake_kernel(note="wrong")
    broken = failed(source, status, **evidence)
    return render(request(parents=(attempt(1, source, evaluation=broken),)), NOTES).user


def difference(**more) -> str:
    given = {"workload": "default", "family": "special", "output": "0", "detail": "they differ"}
    correctness = Correctness(
        is_right=False,
        families=("special",),
        workloads=("default",),
        comparisons=1,
        worst_ratio=2.0,
        tolerance="a rule",
        mismatches=(Mismatch.model_validate({**given, **more}),),
    )
    source = fake_kernel(note="wrong")
    verdict = failed(source, Status.WRONG_VALUES, compiles=True, correctness=correctness)
    graph = fake_graph()
    wide = TensorSpec(shape=(8, 100), dtype="float32")
    nodes = (graph.nodes[0], graph.nodes[1].model_copy(update={"outputs": (wide,)}))
    shown = request(
        parents=(attempt(1, source, evaluation=verdict),),
        graph=graph.model_copy(update={"nodes": nodes}),
    )
    return render(shown, NOTES).user


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"got": 1.0, "expected": float("nan")}, "a NaN that gets lost"),
        ({"got": float("nan"), "expected": 1.0}, "a value that is never written"),
        ({"got": float("inf"), "expected": 1.0}, "an overflow on the way"),
        ({"got": 0.0, "expected": 1.0}, "elements that no thread writes"),
        ({"got": 1.0, "expected": 1.0001}, "lost precision (the relative error is 0.0001)"),
        ({"wrong": 128, "total": 128}, "a fault in what every element goes through"),
        (
            {"worst_index": (3, 95), "wrong": 8, "total": 800, "output": ""},
            "a fault at the end of rows",
        ),
    ],
)
def test_the_pattern_of_a_difference_is_named(found, told):
    assert f"This looks like {told}" in difference(**found)


def test_a_message_of_the_compiler_is_found_in_the_candidate():
    source = fake_kernel(note="x").replace(
        "    pass\n", "    a = 1\n    b = 2\n    int y = x\n    c = 3\n"
    )
    at = source.splitlines().index("    int y = x") + 1
    error = Diagnostic(
        severity="error", message="no `;`", file="kernel_0.cpp", line=3, excerpt="int y = x"
    )
    user = repair(Status.COMPILE_ERROR, source, compiles=False, diagnostics=(error,))
    assert f"- kernel_0.cpp:3 (line {at} of your file) error: no `;`\n" in user
    assert f"    > {at:4d}      int y = x\n" in user
    assert f"      {at - 2:4d}      a = 1\n" in user


def test_a_breach_of_the_contract_is_told_with_its_lines():
    contract = Contract(
        policy="own_kernels_only",
        is_kept=False,
        library_calls=("softmax",),
        breaches=("`forward` computed with `softmax`",),
        hints=(Diagnostic(severity="note", message="m", line=99, excerpt="torch.softmax(x, 1)"),),
    )
    source = fake_kernel().replace("    pass", "    y = torch.softmax(x, 1)")
    user = repair(Status.CONTRACT, source, reason="not its own", compiles=True, contract=contract)
    at = source.splitlines().index("    y = torch.softmax(x, 1)") + 1
    assert f"- line {at}: y = torch.softmax(x, 1)" in user
    for part in (
        "- `forward` computed with",
        "called: `softmax`",
        "- line 99: torch.softmax(x, 1)",
    ):
        assert part in user
    assert "Write that part as a kernel of your own" in user


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PASSED])
def test_every_way_to_fail_has_its_advice(status):
    if not status.is_charged:
        return
    text = render(request(parents=(attempt(1, fake_kernel(status=status)),)), NOTES).user
    assert text.rstrip().splitlines()[-1] not in {"", "Keep what was good; where the approach"}
    other = render(request(parents=(FAST,)), NOTES).user
    assert text.rstrip().splitlines()[-1] != other.rstrip().splitlines()[-1]


def test_what_is_slower_than_pytorch_is_told_so():
    slow = attempt(2, fake_kernel(20.0))
    assert (
        "It is right, but not surely faster"
        in render(request(Stage.REFINE, parents=(slow,)), []).user
    )


def test_notes_of_a_profile_that_repeat_or_say_nothing_are_dropped():
    notes = ("10% of the memory roof of M", "this has no hardware counters", "unroll")
    profile = Profile(bound_by="latency", roofline_share=0.1, notes=notes)
    evaluation = FAST.evaluation.model_copy(update={"profile": profile})
    parent = FAST.model_copy(update={"evaluation": evaluation})
    user = render(request(Stage.REFINE, parents=(parent,)), []).user
    assert "Unroll." in user
    assert "memory roof" not in user
    assert "hardware counters" not in user


def test_techniques_are_those_that_help_against_what_binds():
    known = [catalogue()[name] for name in ("nontemporal-stores", "vectorized-math")]
    profile = Profile(bound_by="memory", roofline_share=0.5)
    evaluation = FAST.evaluation.model_copy(update={"profile": profile})
    parent = FAST.model_copy(update={"evaluation": evaluation})
    user = render(request(Stage.REFINE, parents=(parent,)), known).user
    assert "- `nontemporal-stores`: " in user
    assert "- `vectorized-math`:" not in user
    assert "- Further names: `vectorized-math`." in user


# -- room ------------------------------------------------------------------------------------------


def section(name: str, count: int, letters: int = 700, **more) -> Section:
    items = tuple(Item(text=f"{name} {n} ".ljust(letters, "x")) for n in range(count))
    return Section(name=name, title=name, items=items, budget=10_000, what="things", **more)


def test_sections_are_shortened_in_the_stated_order_and_to_their_least_first():
    known = [section("task", 5, least=600), section("log", 5, least=400), section("best", 5)]
    whole = fit(known)
    assert whole.left_out == ()
    sizes = {name: cut.tokens for name, cut in whole.sections.items()}
    assert len(set(sizes.values())) <= 2
    small = fit(known, whole.tokens - 300)
    assert small.sections["log"].tokens < sizes["log"]
    assert small.sections["best"].tokens == sizes["best"]
    smaller = fit(known, sizes["task"] + 500)
    assert smaller.sections["best"].left_out == "4 of 5 things"
    assert smaller.sections["log"].left_out == "4 of 5 things"
    assert smaller.sections["task"].tokens == sizes["task"]
    smallest = fit(known, 500)
    assert smallest.sections["log"].left_out == "all of `log`"
    assert smallest.sections["task"].left_out == "3 of 5 things"
    assert fit(known, 0).sections["task"].tokens == smallest.sections["task"].tokens


def test_order_names_every_section_of_every_step():
    parents = (FAST, attempt(3, fake_kernel(3.0)))
    for shown in (request(), request(parents=parents[:1]), request(Stage.REFINE, parents=parents)):
        assert {each.name for each in compose(shown, NOTES).sections} <= set(ORDER)


LARGE = "\n".join(f"        y{n} = x * {n}" for n in range(20_000))


def test_an_oversize_task_is_cut_in_its_middle():
    source = TASK.source.replace("        return x + 1", f"{LARGE}\n        return x + 1")
    prompt = render(request(task=Task.from_source(source, "large")), NOTES)
    assert prompt.tokens < 12_000
    assert "letters of the task are left out here ...]" in prompt.user
    assert "def get_inputs()" in prompt.user
    assert prompt.user.rstrip().endswith("to keep it short: the middle of the task.")


def test_an_enormous_log_leaves_its_end():
    source = fake_kernel(note="loud")
    loud = failed(source, Status.CRASHED, reason="it died", log="no\n" * 1_000_000 + "the end")
    prompt = render(request(parents=(attempt(1, source, evaluation=loud),)), NOTES)
    assert prompt.sections["log"] < 600
    assert "the end" in prompt.user


def fifty():
    for n in range(50):
        child = attempt(n + 10, fake_kernel(1.0, note="y" * 900 + str(n)), Stage.REFINE)
        yield harvest(child, SCENE, FAST)[1]


def test_fifty_experiences_keep_the_best_and_say_so():
    prompt = render(request(shown=tuple(fifty())), NOTES)
    kept = prompt.user.count("### `edit-")
    assert 5 < kept < 50
    assert f"[left out here: {50 - kept} of 50 experiences]" in prompt.user
    assert f"{50 - kept} of 50 experiences" in prompt.user.splitlines()[-1]
    assert prompt.sections["experiences"] <= 6000


def test_a_composition_fits_again_into_less():
    shown = request(Stage.REFINE, parents=(FAST,), shown=tuple(fifty()), history=(FAST,))
    composition = compose(shown, list(catalogue().values()))
    sizes = [composition.fit().tokens]
    while len(sizes) < 12 and (prompt := composition.fit(sizes[-1] * 3 // 4)).tokens < sizes[-1]:
        assert prompt.tokens <= sizes[-1] * 3 // 4 or set(prompt.sections) <= KEPT
        sizes.append(prompt.tokens)
    assert len(sizes) > 3
    assert FAST.proposal.candidate.source.strip() in composition.fit(sizes[-1]).user
    assert "return x + 1" in composition.fit(1).user
    assert "# Your step: make a correct candidate faster" in composition.fit(1).user
    assert composition.fit(1).system == composition.fit().system


def test_estimate_grows_with_the_text():
    assert [tokens("x" * n) for n in (0, 1, 350)] == [0, 1, 100]


def test_every_step_of_a_run_begins_alike():
    given = {"machine": ("a fact",), "baselines": {"eager": 1.0}}
    first = render(request(**given), NOTES)
    later = render(request(Stage.REFINE, parents=(FAST,), **given), NOTES)
    assert first.system == later.system
    assert first.stable == later.stable
    assert first.user.startswith(first.stable)
    assert "# Your step" not in first.stable
    assert "PyTorch eager takes" in first.stable


def test_operators_of_a_graph_can_be_left_out():
    assert "operators" not in render(request(graph=None), NOTES).sections
    assert render(request(graph=fake_graph()), NOTES).sections["operators"] > 50


# -- kernels and logs ------------------------------------------------------------------------------


BODY = "\n".join(f"    step_{n} = {n} * width" for n in range(60))


def kernel(median_ms: float, last: str = "") -> str:
    source = fake_kernel(median_ms).replace("    pass\n", f"{BODY}\n{last}")
    return f"# evokernel-template: {{}}\n\n{source}"


def test_kernels_that_are_alike_are_shown_as_differences():
    parent = attempt(1, kernel(2.0))
    faster = attempt(2, kernel(1.0, "    extra = 1\n"))
    other = attempt(3, fake_kernel(6.0, note="quite another"))
    user = render(request(Stage.REFINE, parents=(parent,), history=(parent, faster)), []).user
    assert user.count("step_30 = 30") == 1
    assert "Shown is what differs from the candidate." in user
    assert "+    extra = 1" in user
    assert "evokernel-template" not in user
    joined = render(request(Stage.REFINE, parents=(parent, faster)), []).user
    assert "Attempt 2; techniques: none named. Shown is what differs from the candidate." in joined
    assert joined.count("step_30 = 30") == 1
    whole = render(request(Stage.REFINE, parents=(parent, other)), []).user
    assert other.proposal.candidate.source.strip() in whole


LOG = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/home/me/evokernel/jit/cpp.py", line 90 in __call__
  File "candidate.py", line 12 in forward
  File "/usr/lib/python3/site-packages/torch/nn/modules/module.py", line 1 in _call_impl

Extension modules: numpy._core (total: 22)
Traceback (most recent call last):
  File "/home/me/evokernel/bench/worker.py", line 5, in run
    self.model(*inputs)
    ~~~~~~^^^
  File "candidate.py", line 14, in forward
    x = missing
ValueError: see /tmp/scratch-1/some/file.txt and 1/2
"""


def test_of_a_log_the_candidates_own_part_is_shown_without_folders():
    user = repair(Status.CRASHED, reason="in `run`: the process died", log=LOG)
    for part in ('File "candidate.py", line 12 in forward', "    x = missing", "see file.txt and"):
        assert part in user
    for part in ("/home/me", "worker.py", "module.py", "self.model", "Extension", "0x00007f"):
        assert part not in user
    assert "Status `crashed`: in a call: the process died" in user


def test_what_a_compiler_printed_is_not_told_twice():
    error = Diagnostic(severity="error", message="no `;`", file="kernel_0.cpp", line=3)
    user = repair(Status.COMPILE_ERROR, compiles=False, diagnostics=(error,), log="no `;` at all")
    assert user.count("no `;`") == 1


def test_code_that_stands_elsewhere_is_not_shown_again():
    parent, child = attempt(1, kernel(2.0)), attempt(2, kernel(1.9, "    extra = 1\n"))
    known = harvest(child, SCENE, parent)
    user = render(request(Stage.REFINE, parents=(parent, child), shown=known), []).user
    assert user.count("Its code is that of the second candidate.") == 2
    assert user.count("extra = 1") == 1


def test_two_parents_that_noise_may_explain_are_called_so():
    shown = request(Stage.REFINE, parents=(FAST, attempt(2, fake_kernel(1.9, doubt=0.5))))
    assert "which one is faster is not certain" in render(shown, []).user
    clear = request(Stage.REFINE, parents=(FAST, attempt(3, fake_kernel(6.0))))
    assert "not certain" not in render(clear, []).user


def test_what_was_tried_names_the_compilers_first_error():
    error = Diagnostic(severity="error", message="no `;` there", file="kernel_0.cpp", line=3)
    source = fake_kernel(note="tried")
    verdict = failed(
        source, Status.COMPILE_ERROR, compiles=False, diagnostics=(error,), reason="in `load`: no"
    )
    tried = attempt(3, source, Stage.REFINE, evaluation=verdict)
    user = render(request(Stage.REFINE, parents=(FAST,), children=(tried,)), []).user
    assert "idea 3 -> compile_error: no `;` there" in user


def test_a_traceback_of_one_line_is_not_told_twice():
    error = Diagnostic(severity="error", message="no attribute", file="candidate.py", line=2)
    log = 'Traceback (most recent call last):\n  File "candidate.py", line 2, in forward\n    x.y'
    for frames, times in ((1, 0), (2, 1)):
        printed = log + "\n".join(['\n  File "candidate.py", line 3, in inner'] * (frames - 1))
        user = repair(
            Status.RUNTIME_ERROR, diagnostics=(error,), log=printed, reason="in `run`: no"
        )
        assert user.count("The end of what it printed") == times
    crash = "Fatal Python error: Segmentation fault\n\nStack (most recent call first):\n"
    assert "Fatal" not in repair(Status.CRASHED, reason="in `run`: it died", log=crash)


def test_more_than_the_roofline_is_not_claimed():
    notes = ("bound by memory: move fewer bytes",)
    profile = Profile(bound_by="memory", roofline_share=1.7, notes=notes)
    evaluation = FAST.evaluation.model_copy(update={"profile": profile})
    parent = FAST.model_copy(update={"evaluation": evaluation})
    user = render(request(Stage.REFINE, parents=(parent,)), []).user
    assert "170%" not in user
    assert "it reaches the roofline, as far as peaks could be measured" in user
    assert "\nMove fewer bytes." in user
