"""What an attempt leaves behind: kernels, edits, fixes, lessons; failures as well as successes."""

import pytest

from evokernel.attempt import Attempt, Candidate, Proposal, Stage
from evokernel.evaluation import Diagnostic, Evaluation, Interval, Status
from evokernel.memory.harvest import MESSAGES, Scene, failure_text, harvest
from tests.memory_samples import judged

SCENE = Scene(run="r", task="softmax", family="softmax", fingerprint="f", tools="g++ 13")
FASTER = Interval(value=1.5, low=1.4, high=1.6)
SLOWER = Interval(value=0.8, low=0.7, high=0.9)


def attempt(number: int, status: Status = Status.PASSED, parents=(), **changes) -> Attempt:
    candidate = Candidate(source=f"line\nsource {number}\n", backend="cpp")
    ratios = {name: changes.pop(name) for name in ("eager", "parent") if name in changes}
    evaluation = judged(status, changes.pop("ms", 1.0), candidate.sha, **ratios)
    proposal = Proposal(
        candidate=candidate,
        stage=changes.pop("stage", Stage.REFINE),
        parents=tuple(parent.proposal.candidate.sha for parent in parents),
        techniques=("tiling", "vectorized-loads"),
        changed=changes.pop("changed", ("tiling",)),
    )
    return Attempt(
        number=number,
        step=f"r/{number}",
        trajectory=0,
        proposal=proposal,
        evaluation=changes.pop("evaluation", evaluation),
        shown=("lesson-1",),
    )


def test_a_first_kernel():
    (kernel,) = harvest(attempt(1, stage=Stage.DRAFT, eager=FASTER), SCENE)
    assert (kernel.kind, kernel.outcome, kernel.stage) == ("kernel", "success", Stage.DRAFT)
    assert kernel.techniques == ("tiling", "vectorized-loads")
    assert kernel.payload["source"] == "line\nsource 1\n"
    assert "bound by memory at 50%" in kernel.payload["feedback"]
    assert kernel.measurement.speedup == FASTER
    assert kernel.measurement.tools == "g++ 13"
    assert kernel.bottleneck == "memory"
    assert kernel.origin.context == ("lesson-1",)
    assert kernel.summary == "softmax by tiling, vectorized-loads"


@pytest.mark.parametrize(("ratio", "outcome"), [(FASTER, "success"), (SLOWER, "failure")])
def test_an_edit_gains_or_loses(ratio, outcome):
    parent = attempt(1)
    child = attempt(2, parents=(parent,), parent=ratio)
    kernel, edit = harvest(child, SCENE, parent)
    assert (kernel.kind, edit.kind, edit.outcome) == ("kernel", "edit", outcome)
    assert edit.techniques == ("tiling",)
    assert edit.summary == "changed tiling"
    assert "-source 1" in edit.payload["diff"]
    assert "+source 2" in edit.payload["diff"]
    assert edit.measurement.speedup == ratio
    assert edit.origin.parents == (parent.proposal.candidate.sha,)
    assert edit.origin.candidate == child.proposal.candidate.sha


def test_an_edit_without_a_paired_measurement_takes_both_medians():
    parent = attempt(1, ms=3.0)
    _, edit = harvest(attempt(2, parents=(parent,), ms=2.0), SCENE, parent)
    assert edit.measurement.speedup == Interval(value=1.5, low=1.5, high=1.5)


def test_a_repair_is_a_fix():
    broken = attempt(1, Status.COMPILE_ERROR, stage=Stage.DRAFT)
    kernel, fix = harvest(attempt(2, parents=(broken,), stage=Stage.DRAFT), SCENE, broken)
    assert (kernel.kind, fix.kind) == ("kernel", "fix")
    assert fix.payload["error"].startswith("compile_error: it went wrong")
    assert "+source 2" in fix.payload["diff"]
    assert fix.measurement.speedup is None  # a repair claims no speed


def test_a_failure_is_a_lesson():
    failed = attempt(1, Status.WRONG_VALUES)
    (lesson,) = harvest(failed, SCENE, attempt(0))
    assert (lesson.kind, lesson.outcome) == ("lesson", "failure")
    assert lesson.summary == "tiling ended as wrong_values: it went wrong"
    assert lesson.payload["source"] == "line\nsource 1\n"
    assert lesson.measurement.median_ms is None


def test_the_faults_of_the_machine_teach_nothing():
    assert harvest(attempt(1, Status.INFRASTRUCTURE), SCENE) == ()
    parent = attempt(1, Status.INFRASTRUCTURE)
    assert [e.kind for e in harvest(attempt(2, parents=(parent,)), SCENE, parent)] == ["kernel"]


def test_failures_keep_their_first_diagnostics():
    diagnostics = tuple(
        Diagnostic(severity="error", message=f"message {n}", file="kernel_0.cpp", line=n)
        for n in range(1, 9)
    )
    text = failure_text(
        Evaluation(candidate="c", task="t", status=Status.COMPILE_ERROR, diagnostics=diagnostics)
    )
    assert text.splitlines()[:2] == ["compile_error", "kernel_0.cpp:1 error: message 1"]
    assert len(text.splitlines()) == 1 + MESSAGES


def test_an_id_is_made_of_content_and_step():
    once, again = (harvest(attempt(1), SCENE)[0] for _ in range(2))
    assert once.id == again.id
    assert harvest(attempt(2), SCENE)[0].id != once.id
    assert once.id.startswith("kernel-")
