"""A task that cannot tell a right answer from none is found out, check by check."""

import json
import re
from pathlib import Path

import pytest

from evokernel.bench.checkup import checkup
from evokernel.bench.examination import Examination, examine
from evokernel.cli import main
from evokernel.cli.summary import Summary
from evokernel.config import BenchConfig, Budget, MemoryConfig, RunConfig
from evokernel.export.subject import of_run
from evokernel.memory.store import Memory
from evokernel.optimize import optimize
from evokernel.record import Event, RunRecord
from evokernel.task import Task

HEAD = "import time\nimport torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
NAMES = ["fits", "seeded", "drawn", "repeatable", "finite", "precise", "timed", "varied", "inputs"]
NAMES += ["answers", "algebra", "weights", "operators"]


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


def examined(body: str, *rest: str, **more: str) -> Examination:
    return examine(Task.from_source(source(body, *rest, **more), name="planted"))


def faults(result: Examination) -> dict[str, str]:
    """What failed; all tasks here but those that say so are too small to be timed."""
    failed = [check for check in result.checks if not check.passed]
    return {check.name: check.detail for check in failed if check.name != "timed"}


def detail(result: Examination, name: str) -> str:
    return next(check.detail for check in result.checks if check.name == name)


ONE = "torch.randn(16, 32)"
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
            "(x - x.amax(-1, True)).exp() / ((x - x.amax(-1, True)).exp()).sum(-1, True)",
            "torch.randn(16, 32)",
            "",
        ),
        ("x / (x.norm(dim=-1, keepdim=True) + 1e-6)", "torch.randn(16, 32)", ""),
        ("self.f(x).relu().mean(-1)", "torch.randn(16, 32)", "self.f = nn.Linear(32, 8)"),
        (
            "x.exp() * self.one if bool((self.one == 1).all()) else 1 // 0",
            "torch.randn(16, 32)",
            "self.register_buffer('one', torch.ones(32))",
        ),
    ],
)
def test_a_sound_task_passes(body: str, inputs: str, init: str):
    result = examined(body, inputs, init)
    assert faults(result) == {}
    assert [check.name for check in result.checks] == NAMES
    assert {check.workload for check in result.checks} == {"default"}


def planted(check: str, word: str, body: str, inputs: str = ONE, init: str = "") -> tuple[str, ...]:
    """A fault: the check that has to fail, a word of its answer, and the task."""
    return check, word, body, inputs, init


@pytest.mark.parametrize(
    ("check", "word", "body", "inputs", "init"),
    [
        planted("drawn", "by heart", "x.exp()", "torch.linspace(0, 1, 512).reshape(16, 32)"),
        planted(
            "seeded", "the same seed", "x.exp()", "torch.randn(16, 32) + time.time_ns() % 1000003"
        ),
        planted(
            "seeded",
            "the constructor",
            "x * self.w",
            init="self.w = nn.Parameter(torch.rand(32) + time.time_ns() % 1000003)",
        ),
        planted("repeatable", "differs", "F.dropout(x, 0.5)"),
        planted("finite", "of 512 elements", "x.log()"),
        planted("varied", "along dimension 1", "x.sum(-1, keepdim=True).expand_as(x)"),
        planted("varied", "output `1` is constant along all", "(x.exp(), x * 0 + 1)"),
        planted("precise", "of 512 elements", "(x + 1e9) - 1e9"),
        planted("inputs", "`1`", "x.exp() + 1e-12 * y", TWO),
        planted(
            "weights",
            "`layer.bias`",
            "self.norm(self.layer(x))",
            init="self.layer, self.norm = nn.Linear(32, 8), nn.BatchNorm1d(8)",
        ),
        planted("answers", "zeros", "F.gelu(x.sum(-1, True) - x.sum(-1, True).mean(1, True))"),
        planted("answers", "ones", "x.softmax(-1).sum(-1)"),
        planted("answers", "a copy of input `0`", "x + 1e-12 * x.tanh()"),
        planted("answers", "the mean", "0.25 + 1e-12 * x"),
        planted("operators", "`relu` (call 3) might as well", "torch.relu(torch.relu(x.exp()))"),
        planted("operators", "`sub`", "torch.softmax(x - x.amax(-1, True), -1)"),
        planted("operators", "`mul`", "x.exp().mul_(1.0)"),
        planted("operators", "argument 1 alone", "x.exp() + 1e-12 * y", TWO),
        planted(
            "algebra",
            "`mean` over `linear`",
            "(2 * self.f(x) + 1).mean(-1)",
            init="self.f = nn.Linear(32, 8)",
        ),
        planted("algebra", "`sum` over `matmul`", "(x @ y.T).sum(0)", TWO),
        planted(
            "algebra",
            "`sum` over `conv2d`",
            "self.f(x[:, None, :, None]).sum(1)",
            init="self.f = nn.Conv2d(1, 3, 1)",
        ),
        planted("answers", "other inputs", "0.25 + 1e-12 * x.mean()"),
    ],
)
def test_a_planted_fault_is_named(check: str, word: str, body: str, inputs: str, init: str):
    found = faults(examined(body, inputs, init))
    assert check in found, found
    assert word in found[check]


def test_a_mean_over_many_values_is_told_from_one_that_ignores_them():
    sides = "torch.rand(512, 256), torch.randint(0, 2, (512, 1)) * 2.0 - 1"
    assert faults(examined("(1 - x * y).clamp(min=0).mean()", sides)) == {}


def test_what_cannot_be_compared_is_not_asked_further():
    result = examined("F.dropout(x, 0.5)")
    assert [check.name for check in result.checks] == NAMES[:4]


def test_weights_that_forward_does_not_read_are_named_but_no_fault():
    result = examined("self.norm(x)", init="self.norm = nn.BatchNorm1d(32)")
    said = detail(result, "weights")
    for name in ("norm.num_batches_tracked", "norm.running_mean", "norm.running_var"):
        assert f"`{name}`" in said
    assert "each of 2" in said


def test_several_inputs_and_weights_are_told_in_the_plural():
    result = examined(
        "x.exp() + 1e-12 * y * self.w", TWO, init="self.w = nn.Parameter(torch.ones(32))"
    )
    found = faults(examined("0.25 + 1e-12 * x * y", TWO))
    assert found["inputs"].startswith("inputs `0`, `1` could be ignored: exchanging any of them")
    assert faults(result)["inputs"].startswith("input `1` could be ignored: exchanging it leaves")
    assert faults(result)["weights"].startswith("weight `w` could be left out")


def test_an_answer_that_only_another_family_refuses_is_told():
    result = examined("torch.relu(x)", "torch.rand(16, 32)")
    assert "a copy of input `0` only on `negated` inputs" in detail(result, "answers")


def test_a_call_that_takes_no_time_is_told_from_one_that_can_be_timed():
    short = examined("torch.relu(x)", "torch.randn(1)")  # the fastest that there is, on any machine
    assert "of one operator on one element" in detail(short, "timed")
    long = examined("(x @ x).exp()", "torch.randn(256, 256) / 256")
    assert next(check.passed for check in long.checks if check.name == "timed")


def test_what_does_not_fit_into_memory_is_not_asked_further():
    result = examined("x.exp()", "torch.randn(1 << 22, 1 << 22)")
    assert [check.name for check in result.checks] == ["fits"]
    assert "GiB" in faults(result)["fits"]


def test_every_workload_is_examined():
    more = (
        "def get_workloads():\n"
        "    return [{'name': 'flat', 'inputs': lambda: [torch.ones(3, 5)], 'hidden': True}]\n"
    )
    found = examined("x.exp()", more=more)
    assert set(faults(found)) >= {"drawn", "varied", "answers"}
    assert {c.workload for c in found.checks if not c.passed and c.name != "timed"} == {"flat"}


def test_a_loose_tolerance_of_the_task_counts():
    loose = examined("x.softmax(-1)", options='{"tolerance": {"atol": 1.0}}')
    assert {"varied", "inputs", "answers"} <= set(faults(loose))


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.py"
    file.write_text(source("x.exp() + 1e-12 * y", TWO.replace("16", "512")))
    return file


def test_the_command_says_what_is_wrong_and_fails(bad: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["task", "doctor", str(bad)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"FAILED +inputs +input `1` could be ignored", out)
    assert re.search(r"ok +weights +the module has no weights\n", out)
    assert re.search(r"bad: 2 checks failed \(\d+\.\d s\)\n$", out)


def test_the_command_prints_records_for_programs(bad: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["task", "doctor", str(bad), "--json"]) == 1
    found = Examination.model_validate(json.loads(capsys.readouterr().out))
    assert list(faults(found)) == ["inputs", "operators"]


def test_the_command_is_silent_about_a_task_that_does_not_run(capsys: pytest.CaptureFixture[str]):
    assert main(["task", "doctor", "sofmax"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "`softmax`" in err


# Before a run

LABEL = "task failed its check: inputs, operators"


def begun(task: Path, *more: str) -> int:
    """A run that ends as soon as its candidate is judged; its start kernel is wrong."""
    kernel = task.parent / "kernel.py"
    kernel.write_text(
        "import torch\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x, y):\n        return x + y\n"
    )
    line = ["run", str(task), "--start", str(kernel), "--attempts", "1", "--quick"]
    line += ["--memory", "none", "--runs-dir", str(task.parent / "runs")]
    return main([*line, *more])


def test_a_run_on_a_failing_task_asks_for_force(bad: Path, capsys: pytest.CaptureFixture[str]):
    assert begun(bad) == 2
    said = capsys.readouterr().err
    for word in ("`inputs`: input `1`", "`operators`", "--force", f"evokernel task doctor {bad}"):
        assert word in said
    assert not (bad.parent / "runs").exists()


@pytest.mark.usefixtures("warm")
def test_a_forced_run_carries_the_label(bad: Path, capsys: pytest.CaptureFixture[str]):
    config = RunConfig(
        task=str(bad),
        runs=bad.parent / "runs",
        budget=Budget(attempts=1),
        bench=BenchConfig(measurement="quick", baselines=("eager",)),
        force=True,
    )
    told: list[Event] = []
    result = optimize(str(bad), config, on_event=told.append)
    (event,) = (event for event in told if event["kind"] == "examined")
    assert event["text"].startswith(LABEL)
    assert event["seconds"] > 0
    record = RunRecord.open(result.path)
    assert record.header.label == LABEL
    assert f"note       {LABEL}" in str(Summary(record, result.reason).text(None))
    assert main(["report", str(result.path), "-o", str(bad.parent / "report")]) == 0
    assert ">Task failed its check" in (bad.parent / "report" / "report.html").read_text()
    assert of_run(result.path).claims.label == LABEL
    with Memory.open(MemoryConfig(path=record.memory)) as memory:
        (kept,) = memory.list()
    assert kept.experience.summary.endswith(f"({LABEL})")
    text = of_run(result.path).claims.sentence()
    assert "Task failed its check: inputs, operators." in text


def test_an_examination_is_made_once(bad: Path, tmp_path: Path):
    task = Task.load(bad)
    first, second = checkup(task, tmp_path), checkup(task, tmp_path)
    assert (first.is_kept, second.is_kept) == (False, True)
    assert first.examination == second.examination
    assert first.examination.is_brief
    assert "known from before" in second.in_words()
    (file,) = (tmp_path / "tasks").iterdir()
    file.write_text("{")
    assert not checkup(task, tmp_path).is_kept
