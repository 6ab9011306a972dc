"""The template proposer: what it drafts, how it refines, what memory changes, what it refuses."""

import time

import pytest

from evokernel.attempt import Attempt, Candidate, Proposal, Stage
from evokernel.errors import NoTemplate
from evokernel.evaluation import (
    Contract,
    Correctness,
    Evaluation,
    Interval,
    Speedup,
    Status,
    Timing,
)
from evokernel.memory.experience import Experience, Measurement, Origin
from evokernel.opgraph import OpGraph, capture
from evokernel.profile import Profile
from evokernel.proposers import Exhausted, Request
from evokernel.proposers.templates import TemplateProposer
from evokernel.proposers.templates.choices import Plan, read_plan
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

SOFTMAX = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 4096)]
"""


def captured(source: str, name: str = "softmax") -> tuple[Task, OpGraph]:
    task = Task.from_source(source, name=name)
    return task, capture(task.program())


@pytest.fixture(scope="module")
def softmax() -> tuple[Task, OpGraph]:
    return captured(SOFTMAX)


@pytest.fixture
def proposer() -> TemplateProposer:
    return TemplateProposer()


def request(
    softmax: tuple[Task, OpGraph], stage: Stage, number: int = 1, **more: object
) -> Request:
    task, graph = softmax
    fields = {"task": task, "graph": graph, "backend": "cpp", "stage": stage, "seed": 3}
    return Request.model_validate({**fields, "step": f"run/{number}", **more})


def passed(source: str, milliseconds: float, number: int = 1, bound_by: str = "compute") -> Attempt:
    candidate = Candidate(source=source, backend="cpp")
    ratio = Interval(value=1.0, low=1.0, high=1.0)
    evaluation = Evaluation(
        candidate=candidate.sha,
        task="t",
        status=Status.PASSED,
        compiles=True,
        correctness=Correctness(
            is_right=True, families=(), workloads=(), comparisons=1, worst_ratio=0.1, tolerance=""
        ),
        contract=Contract(policy="own_kernels_only", is_kept=True),
        timing=Timing(
            median_ms=milliseconds,
            spread=0.01,
            samples=9,
            dropped=0,
            processes=1,
            speedups=(Speedup(against="eager", ratio=ratio, opponent_ms=1, is_faster=False),),
        ),
        profile=Profile.model_validate({"bound_by": bound_by, "roofline_share": 0.5}),
    )
    return attempt(candidate, evaluation, number)


def failed(source: str, status: Status, number: int = 1) -> Attempt:
    candidate = Candidate(source=source, backend="cpp")
    evaluation = Evaluation(candidate=candidate.sha, task="t", status=status, reason="why")
    return attempt(candidate, evaluation, number)


def attempt(candidate: Candidate, evaluation: Evaluation, number: int) -> Attempt:
    proposal = Proposal(candidate=candidate, stage=Stage.DRAFT)
    return Attempt(
        number=number, step=f"run/{number}", trajectory=0, proposal=proposal, evaluation=evaluation
    )


def experience(
    kind: str, techniques: tuple[str, ...], source: str = "", **more: object
) -> Experience:
    fields = {
        "kind": kind,
        "stage": "refine",
        "backend": "cpp",
        "family": "softmax",
        "fingerprint": "another",
        "techniques": techniques,
        "summary": "seen before",
        "payload": {"source": source} if source else {"note": "seen before"},
        "origin": Origin(run="old", step="old/1", task="log_softmax"),
    }
    return Experience.model_validate({**fields, **more})


def written(softmax: tuple[Task, OpGraph], **choices: str | int) -> str:
    template = Template(*softmax)
    return template.source(template.space.settle(choices))


def plan_of(proposal: Proposal) -> Plan:
    plan = read_plan(proposal.candidate.source)
    assert plan is not None
    return plan


def differing(before: Plan, after: Plan, softmax: tuple[Task, OpGraph]) -> tuple[str, ...]:
    return Template(*softmax).space.differing(before, after)


def test_the_first_draft_is_plain_and_the_second_is_not(softmax, proposer):
    first = proposer.propose(request(softmax, Stage.DRAFT))
    assert first.techniques == ()
    assert first.parents == ()
    assert plan_of(first).choices["form"] == "scalar"
    tried = (first.candidate.sha,)
    second = proposer.propose(request(softmax, Stage.DRAFT, 2, tried=tried))
    assert "vectorized-math" in second.techniques


def proven(source: str, name: str, ms: float, task: str = "another") -> Experience:
    """A kernel that memory shows."""
    return experience(
        "kernel",
        (),
        source,
        fingerprint=task,
        origin=Origin(run="old", step=f"old/{name}", task=task),
        measurement=Measurement(median_ms=ms),
    )


def test_of_several_proven_kernels_of_a_task_the_fastest_is_the_model(softmax, proposer):
    slow, fast = written(softmax), written(softmax, form="vector", functions="short")
    shown = (proven(slow, "1", 9.0), proven(fast, "2", 1.0))
    first = proposer.propose(request(softmax, Stage.DRAFT, shown=shown))
    assert first.used[0] == shown[1].id
    assert plan_of(first) == read_plan(fast)


def test_where_a_plan_is_proven_the_next_draft_stays_near_it(softmax, proposer):
    source = written(softmax, form="vector", functions="short")
    shown = (proven(source, "1", 1.0),)
    first = proposer.propose(request(softmax, Stage.DRAFT, shown=shown))
    asked = request(softmax, Stage.DRAFT, 2, shown=shown, tried=(first.candidate.sha,))
    second = proposer.propose(asked)
    assert second.used[0] == shown[0].id
    assert 1 <= len(differing(plan_of(first), plan_of(second), softmax)) <= 3
    assert plan_of(second).choices["form"] == "vector"


def test_a_plan_of_another_kind_is_a_model_for_what_both_choose(softmax, proposer):
    gelu = captured(
        SOFTMAX.replace("torch.softmax(x, dim=-1)", "torch.nn.functional.gelu(x)"), "gelu"
    )
    theirs = written(gelu, form="vector", functions="short")
    near = proven(written(softmax, form="vector"), "1", 5.0, task="near")
    shown = (proven(theirs, "2", 1.0), near)
    alone = proposer.propose(request(softmax, Stage.DRAFT, shown=shown[:1]))
    assert alone.used == (shown[0].id,)
    assert plan_of(alone).choices["functions"] == "short"
    both = proposer.propose(request(softmax, Stage.DRAFT, shown=shown))
    assert both.used[0] == near.id


def test_drafts_never_repeat(softmax, proposer):
    tried: list[str] = []
    for number in range(12):
        proposal = proposer.propose(request(softmax, Stage.DRAFT, number, tried=tuple(tried)))
        assert proposal.candidate.sha not in tried
        tried.append(proposal.candidate.sha)


def test_the_same_step_gives_the_same_proposal(softmax):
    start = passed(written(softmax, form="vector"), 5.0)
    asked = request(softmax, Stage.REFINE, parents=(start,))
    assert TemplateProposer().propose(asked) == TemplateProposer().propose(asked)
    others = {
        TemplateProposer().propose(asked.model_copy(update={"seed": seed})).candidate.sha
        for seed in range(8)
    }
    assert len(others) > 1


def test_refinement_changes_one_choice_or_two_until_nothing_is_left(softmax, proposer):
    start = passed(written(softmax, form="vector", unroll=4), 5.0)
    before = read_plan(start.proposal.candidate.source)
    tried = [start.proposal.candidate.sha]
    counts = []
    asked = request(softmax, Stage.REFINE, parents=(start,))
    for number in range(400):
        update = {"tried": tuple(tried), "step": f"run/{number}"}
        try:
            proposal = proposer.propose(asked.model_copy(update=update))
        except Exhausted:
            break
        assert proposal.candidate.sha not in tried
        assert proposal.parents == (start.proposal.candidate.sha,)
        counts.append(len(differing(before, plan_of(proposal), softmax)))
        assert proposal.changed
        tried.append(proposal.candidate.sha)
    else:
        pytest.fail("there is always more to try")
    assert set(counts) == {1, 2}
    assert len(counts) > 20


def test_two_start_points_are_recombined(softmax, proposer):
    one = passed(written(softmax, form="vector", unroll=4, keep="dear"), 5.0)
    two = passed(written(softmax, form="vector", stores="streaming", prefetch="next-row"), 6.0)
    proposal = proposer.propose(request(softmax, Stage.REFINE, parents=(one, two)))
    assert proposal.parents == (one.proposal.candidate.sha, two.proposal.candidate.sha)
    plans = [read_plan(p.proposal.candidate.source).choices for p in (one, two)]
    child = plan_of(proposal).choices
    assert child not in plans
    assert all(value in {p[name] for p in plans} for name, value in child.items())


def test_what_was_slower_before_is_not_tried_again(softmax, proposer):
    start = passed(written(softmax, form="vector"), 5.0, bound_by="memory")
    child = passed(written(softmax, form="vector", prefetch="next-row"), 9.0, number=2)
    tried = tuple(a.proposal.candidate.sha for a in (start, child))
    asked = request(softmax, Stage.REFINE, 3, parents=(start,), children=(child,), tried=tried)
    for seed in range(10):
        proposal = proposer.propose(asked.model_copy(update={"seed": seed}))
        assert "software-prefetch" not in proposal.changed


def test_a_failed_draft_is_repaired_by_taking_techniques_back(softmax, proposer):
    broken = failed(written(softmax, form="vector", keep="dear"), Status.WRONG_VALUES)
    tried = [broken.proposal.candidate.sha]
    proposal = proposer.propose(
        request(softmax, Stage.DRAFT, 2, parents=(broken,), tried=tuple(tried))
    )
    assert len(proposal.techniques) < 2
    assert proposal.parents == (broken.proposal.candidate.sha,)
    assert "wrong_values" in proposal.rationale


def test_a_failed_plain_draft_is_followed_by_another_one(softmax, proposer):
    broken = failed(written(softmax), Status.RUNTIME_ERROR)
    tried = (broken.proposal.candidate.sha,)
    proposal = proposer.propose(request(softmax, Stage.DRAFT, 2, parents=(broken,), tried=tried))
    assert proposal.techniques


def test_a_foreign_start_point_leads_to_the_templates_own(softmax, proposer):
    foreign = passed("class ModelNew: ...", 5.0)
    proposal = proposer.propose(request(softmax, Stage.REFINE, parents=(foreign,)))
    assert plan_of(proposal).choices["form"] == "scalar"


def test_a_remembered_kernel_of_another_shape_starts_the_draft(softmax, proposer):
    other = captured(SOFTMAX.replace("64, 4096", "32, 1000").replace("softmax(", "log_softmax("))
    source = written(other, form="vector", unroll=4, prefetch="next-row")
    seen = experience("kernel", ("vectorized-math",), source)
    proposal = proposer.propose(request(softmax, Stage.DRAFT, shown=(seen,)))
    choices = plan_of(proposal).choices
    assert (choices["form"], choices["unroll"], choices["prefetch"]) == ("vector", 4, "next-row")
    assert seen.id in proposal.used
    assert set(proposal.techniques) >= {"vectorized-math", "wide-accumulators"}


@pytest.mark.parametrize(
    "technique",
    ["single-pass-moments", "online-softmax", "row-caching", "dynamic-scheduling", "fewer-threads"],
)
def test_a_shown_success_is_applied_next(softmax, proposer, technique):
    start = passed(written(softmax, form="vector"), 5.0)
    seen = experience("edit", (technique,))
    proposal = proposer.propose(request(softmax, Stage.REFINE, parents=(start,), shown=(seen,)))
    fits = technique != "single-pass-moments"
    assert (technique in proposal.techniques) == fits
    assert (seen.id in proposal.used) == fits


def test_a_shown_failure_keeps_a_technique_away(softmax, proposer):
    start = passed(written(softmax, form="vector"), 5.0, bound_by="memory")
    without = proposer.propose(request(softmax, Stage.REFINE, parents=(start,)))
    seen = tuple(
        experience("edit", (technique,), outcome="failure") for technique in without.changed
    )
    proposal = proposer.propose(request(softmax, Stage.REFINE, parents=(start,), shown=seen))
    assert not set(proposal.changed) & set(without.changed)


def test_a_change_away_from_a_technique_that_helped_is_repeated(softmax, proposer):
    start = passed(written(softmax, form="vector", schedule=16), 5.0)
    source = written(softmax, form="vector", schedule="static")
    seen = experience("edit", ("dynamic-scheduling",), source)
    proposal = proposer.propose(request(softmax, Stage.REFINE, parents=(start,), shown=(seen,)))
    assert plan_of(proposal).choices["schedule"] == "static"
    assert seen.id in proposal.used


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("torch.linalg.inv(x)", "inv"),
        ("torch.sort(x).values", "sort"),
        ("x @ torch.linalg.inv(x)", "inv"),
        ("torch.einsum('ij,jk,kl->il', x, x, x)", "einsum"),
    ],
)
def test_an_operator_without_template_is_named_at_once(proposer, body, word):
    task, graph = captured(SOFTMAX.replace("torch.softmax(x, dim=-1)", body).replace("4096", "64"))
    began = time.monotonic()
    with pytest.raises(NoTemplate, match=word) as refused:
        proposer.check(task, graph, "cpp")
    assert time.monotonic() - began < 3
    assert "--model" in str(refused.value)
    assert "--model NAME" in str(refused.value)


def test_a_task_without_graph_is_refused_and_every_backend_served(softmax, proposer):
    for backend in ("cpp", "cuda", "triton"):
        with pytest.raises(NoTemplate, match="captured"):
            proposer.check(softmax[0], None, backend)
        proposer.check(*softmax, backend)


def test_plans_are_read_back_and_nothing_else_is(softmax):
    template = Template(*softmax)
    plan = template.space.settle({"form": "vector", "unroll": 8, "keep": "dear"})
    assert read_plan(template.source(plan)) == plan
    assert read_plan("import torch\n\nclass ModelNew: ...\n") is None
    assert read_plan('# evokernel-template: {"family": "rows"}') is None
    assert read_plan('# evokernel-template: {"family": "rows", "choices": {"form": [1]}}') is None
    assert read_plan("# evokernel-template: {not json}") is None
