"""A task that cannot tell a right answer from none is found out, check by check."""

import json
import re
from pathlib import Path

import pytest

from evokernel.bench.audit import Audit, audit
from evokernel.cli import main
from evokernel.task import Task

HEAD = "import time\nimport torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
NAMES = ["seeded", "drawn", "repeatable", "finite", "precise", "varied", "inputs", "weights"]
NAMES += ["answers"]


def source(
    body: str,
    inputs: str = "torch.randn(16, 32)",
    init: str = "",
    more: str = "",
    options: str = "",
) -> str:
    """A task whose forward is one expression of x and y."""
    names = "x, y" if ", torch." in inputs else "x"
    return (
        f"{HEAD}EVOKERNEL = {options or {}}\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init or 'pass'}\n"
        f"    def forward(self, {names}):\n        return {body}\n"
        f"def get_inputs():\n    return [{inputs}]\n{more}"
    )


def audited(body: str, *rest: str, **more: str) -> Audit:
    return audit(Task.from_source(source(body, *rest, **more), name="planted"))


def faults(result: Audit) -> dict[str, str]:
    return {check.name: check.detail for check in result.checks if not check.passed}


TWO = "torch.randn(16, 32), torch.randn(16, 32)"


@pytest.mark.parametrize(
    ("body", "inputs", "init"),
    [
        ("torch.softmax(x, -1)", "torch.randn(16, 32)", ""),
        ("torch.relu(x)", "torch.rand(16, 32)", ""),
        ("x.argmax(-1)", "torch.randn(16, 32)", ""),
        ("x.mean()", "torch.randn(16, 32)", ""),
        ("F.cross_entropy(x, y)", "torch.randn(16, 32), torch.randint(0, 32, (16,))", ""),
        ("(x + y, [x * y, None])", TWO, ""),
        ("x.masked_fill(y.bool(), 0.0)", "torch.randn(16, 32), torch.ones(16, 32).tril()", ""),
        ("self.norm(x)", "torch.randn(16, 32)", "self.norm = nn.BatchNorm1d(32)"),
        ("x * self.scale", "torch.randn(16, 32)", "self.scale = nn.Parameter(torch.ones(32) + 1)"),
        (
            "x.exp() * self.one if bool((self.one == 1).all()) else 1 // 0",
            "torch.randn(16, 32)",
            "self.register_buffer('one', torch.ones(32))",
        ),
    ],
)
def test_a_sound_task_passes(body: str, inputs: str, init: str):
    result = audited(body, inputs, init)
    assert faults(result) == {}
    assert [check.name for check in result.checks] == NAMES
    assert {check.workload for check in result.checks} == {"default"}


@pytest.mark.parametrize(
    ("check", "word", "body", "inputs", "init"),
    [
        ("drawn", "by heart", "x.exp()", "torch.linspace(0, 1, 512).reshape(16, 32)", ""),
        (
            "seeded",
            "the same seed",
            "x.exp()",
            "torch.randn(16, 32) + time.time_ns() % 1000003",
            "",
        ),
        (
            "seeded",
            "the constructor",
            "x * self.w",
            "torch.randn(16, 32)",
            "self.w = nn.Parameter(torch.rand(32) + time.time_ns() % 1000003)",
        ),
        ("repeatable", "differs", "F.dropout(x, 0.5)", "torch.randn(16, 32)", ""),
        ("finite", "of 512 elements", "x.log()", "torch.randn(16, 32)", ""),
        (
            "varied",
            "along dimension 1",
            "x.sum(-1, keepdim=True).expand_as(x)",
            "torch.randn(16, 32)",
            "",
        ),
        (
            "varied",
            "output `1` is constant along all",
            "(x.exp(), x * 0 + 1)",
            "torch.randn(16, 32)",
            "",
        ),
        ("precise", "of 512 elements", "(x + 1e9) - 1e9", "torch.randn(16, 32)", ""),
        ("inputs", "`1`", "x.exp() + 1e-12 * y", TWO, ""),
        (
            "weights",
            "`layer.bias`",
            "self.norm(self.layer(x))",
            "torch.randn(16, 32)",
            "self.layer, self.norm = nn.Linear(32, 8), nn.BatchNorm1d(8)",
        ),
        (
            "answers",
            "zeros",
            "F.gelu(x.sum(-1, True) - x.sum(-1, True).mean(1, True))",
            "torch.randn(16, 32)",
            "",
        ),
        ("answers", "ones", "x.softmax(-1).sum(-1)", "torch.randn(16, 32)", ""),
        ("answers", "a copy of input `0`", "x + 1e-12 * x.tanh()", "torch.randn(16, 32)", ""),
        ("answers", "the mean", "0.25 + 1e-12 * x", "torch.randn(16, 32)", ""),
        ("answers", "other inputs", "0.25 + 1e-12 * x.mean()", "torch.randn(16, 32)", ""),
    ],
)
def test_a_planted_fault_is_named(check: str, word: str, body: str, inputs: str, init: str):
    found = faults(audited(body, inputs, init))
    assert check in found, found
    assert word in found[check]


def test_a_mean_over_many_values_is_told_from_one_that_ignores_them():
    sides = "torch.rand(512, 256), torch.randint(0, 2, (512, 1)) * 2.0 - 1"
    assert faults(audited("(1 - x * y).clamp(min=0).mean()", sides)) == {}


def test_what_cannot_be_compared_is_not_asked_further():
    result = audited("F.dropout(x, 0.5)")
    assert [check.name for check in result.checks] == NAMES[:3]


def test_weights_that_forward_does_not_read_are_named_but_no_fault():
    result = audited("self.norm(x)", init="self.norm = nn.BatchNorm1d(32)")
    detail = next(check.detail for check in result.checks if check.name == "weights")
    for name in ("norm.num_batches_tracked", "norm.running_mean", "norm.running_var"):
        assert f"`{name}`" in detail
    assert "each of 2" in detail


def test_an_answer_that_only_another_family_refuses_is_told():
    result = audited("torch.relu(x)", "torch.rand(16, 32)")
    assert "a copy of input `0` only on `negated` inputs" in result.checks[-1].detail


def test_every_workload_is_audited():
    more = (
        "def get_workloads():\n"
        "    return [{'name': 'flat', 'inputs': lambda: [torch.ones(3, 5)], 'hidden': True}]\n"
    )
    found = audited("x.exp()", more=more)
    assert [check.passed for check in found.checks if check.workload == "default"] == [True] * 9
    assert {c.name for c in found.checks if not c.passed} == {"drawn", "varied", "answers"}
    assert {c.workload for c in found.checks if not c.passed} == {"flat"}


def test_a_loose_tolerance_of_the_task_counts():
    loose = audited("x.softmax(-1)", options='{"tolerance": {"atol": 1.0}}')
    assert {"varied", "inputs", "answers"} <= set(faults(loose))


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.py"
    file.write_text(source("x.exp() + 1e-12 * y", TWO))
    return file


def test_the_command_says_what_is_wrong_and_fails(bad: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["task", "audit", str(bad)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"FAILED +inputs +input `1` could be ignored", out)
    assert re.search(r"ok +weights +the module has no weights\n", out)
    assert out.endswith("bad: 1 check failed\n")


def test_the_command_prints_records_for_programs(bad: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["task", "audit", str(bad), "--json"]) == 1
    found = Audit.model_validate(json.loads(capsys.readouterr().out))
    assert list(faults(found)) == ["inputs"]


def test_the_command_is_silent_about_a_task_that_does_not_run(capsys: pytest.CaptureFixture[str]):
    assert main(["task", "audit", "sofmax"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "`softmax`" in err
