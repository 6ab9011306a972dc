"""Five separate answers: each has its evidence, and what was not asked says so."""

import json

import pytest

from evokernel.answers import Answer, answers, memory_in_words
from evokernel.cli import main
from evokernel.evaluation import (
    Contract,
    Correctness,
    Evaluation,
    Interval,
    Mismatch,
    Speedup,
    Status,
    Timing,
)

WRONG = Mismatch(workload="default", family="large", output="0", detail="3 of 8 elements differ")


def right(is_right: bool = True) -> Correctness:
    return Correctness(
        is_right=is_right,
        families=("normal", "large"),
        workloads=("default",),
        comparisons=4,
        worst_ratio=0.5 if is_right else 7.0,
        tolerance="ten times the reference's own error",
        mismatches=() if is_right else (WRONG,),
    )


def contract(is_kept: bool = True, coverage: float | None = 0.8) -> Contract:
    return Contract(
        policy="own_kernels_only",
        is_kept=is_kept,
        own_kernels=("scale",) if is_kept else (),
        library_calls=() if is_kept else ("relu",),
        coverage=coverage,
    )


def timing(*ratios: tuple[str, float, bool], **more: object) -> Timing:
    return Timing(
        median_ms=1.0,
        spread=0.01,
        samples=20,
        dropped=0,
        processes=1,
        speedups=tuple(
            Speedup(
                against=name,
                ratio=Interval(value=ratio, low=ratio - 0.1, high=ratio + 0.1),
                opponent_ms=ratio,
                is_faster=is_faster,
            )
            for name, ratio, is_faster in ratios
        ),
        **more,
    )


BOTH = (("eager", 2.0, True), ("compile", 1.5, True))


def judged(status: Status = Status.PASSED, **parts: object) -> dict[str, Answer]:
    reason = "" if status is Status.PASSED else "it broke"
    found = Evaluation(candidate="c", task="t", status=status, reason=reason, **parts)
    return {answer.name: answer for answer in answers(found)}


def verdicts(found: dict[str, Answer]) -> str:
    return ", ".join(answer.verdict for answer in found.values())


def test_a_kernel_that_passed_has_five_answers_with_evidence():
    found = judged(compiles=True, correctness=right(), contract=contract(), timing=timing(*BOTH))
    assert list(found) == ["compiles", "right", "contract", "faster", "coverage"]
    assert verdicts(found) == "yes, yes, yes, yes, yes"
    assert "4 outputs compared with fp64 on normal, large inputs" in found["right"].evidence
    assert "own kernels: scale" in found["contract"].evidence
    said = "2.00x [1.90, 2.10] as fast as eager; 1.50x [1.40, 1.60] as fast as torch.compile"
    assert found["faster"].evidence == said
    assert found["coverage"].evidence == "80% of a call inside its own kernels"


def test_the_time_that_building_took_is_told_where_it_is_known():
    status = Status.WRONG_VALUES
    timed = judged(status, compiles=True, correctness=right(False), seconds={"compile": 1.25})
    assert timed["compiles"].evidence == "every kernel was built (1.2 s)"
    untimed = judged(status, compiles=True, correctness=right(False))
    assert untimed["compiles"].evidence == "every kernel was built"


def test_faster_asks_for_both_baselines():
    slow = timing(("eager", 2.0, True), ("compile", 0.9, False))
    parts = {"compiles": True, "correctness": right(), "contract": contract()}
    assert judged(timing=slow, **parts)["faster"].verdict == "no"
    alone = judged(timing=timing(("eager", 2.0, True)), **parts)["faster"]
    assert (alone.verdict, "torch.compile was not timed" in alone.evidence) == ("yes", True)
    assert judged(timing=timing(("parent", 2.0, True)), **parts)["faster"].verdict == "unknown"


def test_coverage_is_an_answer_of_its_own():
    parts = {"compiles": True, "correctness": right(), "timing": timing(*BOTH)}
    assert judged(contract=contract(coverage=0.2), **parts)["coverage"].verdict == "no"
    assert judged(contract=contract(coverage=None), **parts)["coverage"].verdict == "unknown"


@pytest.mark.parametrize(
    ("status", "parts", "expected"),
    [
        (Status.INVALID_SOURCE, {}, "no" + ", not asked" * 4),
        (Status.COMPILE_ERROR, {"compiles": False}, "no" + ", not asked" * 4),
        (Status.CRASHED, {"compiles": True}, "yes, no" + ", not asked" * 3),
        (Status.RUNTIME_ERROR, {}, "not asked, no" + ", not asked" * 3),
        (
            Status.WRONG_VALUES,
            {"compiles": True, "correctness": right(False)},
            "yes, no" + ", not asked" * 3,
        ),
        (
            Status.CONTRACT,
            {"compiles": True, "correctness": right(), "contract": contract(False, 0.0)},
            "yes, yes, no, not asked, no",
        ),
        (
            Status.NONDETERMINISTIC,
            {"compiles": True, "correctness": right(), "contract": contract()},
            "yes, no, yes, not asked, yes",
        ),
        (Status.INFRASTRUCTURE, {}, "unknown" + ", not asked" * 4),
        (
            Status.INFRASTRUCTURE,
            {"compiles": True, "correctness": right(), "contract": contract()},
            "yes, yes, yes, unknown, yes",
        ),
    ],
)
def test_a_failure_is_the_answer_that_ended_the_judgement(status, parts, expected):
    found = judged(status, **parts)
    assert verdicts(found) == expected
    ended = next(a for a in found.values() if a.verdict in {"no", "unknown"})
    assert ended.evidence.startswith(f"{status}: it broke")
    for answer in found.values():
        assert answer.verdict != "not asked" or f"`{status}`" in answer.evidence


def test_peak_memory_of_both_sides_is_told():
    found = timing(*BOTH, peak_bytes=1 << 20, baseline_bytes={"eager": 3 << 20, "compile": 2 << 20})
    said = "1.0 MiB extra at the peak of a call, eager 3.0 MiB, torch.compile 2.0 MiB"
    assert memory_in_words(found) == said
    assert memory_in_words(timing(*BOTH)) == ""


TASK = """import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
def get_inputs():
    return [torch.randn(64, 256)]
"""
RAISES = """import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise ValueError("no")
"""


@pytest.mark.usefixtures("warm")
def test_the_command_tells_them_of_a_failure(tmp_path, capsys):
    task, file = tmp_path / "twice.py", tmp_path / "mine.py"
    task.write_text(TASK)
    file.write_text(RAISES)
    line = ["evaluate", str(file), "--task", str(task), "--quick"]
    assert main([*line, "--json"]) == 1
    found = [Answer.model_validate(a) for a in json.loads(capsys.readouterr().out)["answers"]]
    assert [a.verdict for a in found] == ["yes", "no", "not asked", "not asked", "not asked"]
    assert "ValueError" in found[1].evidence
    assert main(line) == 1
    out = capsys.readouterr().out
    assert "right     no: runtime_error" in out
    assert "faster    not asked" in out
