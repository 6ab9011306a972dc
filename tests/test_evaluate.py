"""The verdict on whole candidates: honest kernels beside wrong ones, each status, the command."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from evokernel.attempt import Candidate
from evokernel.bench import Claim, footprint, timing
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.bench.gpu import choice
from evokernel.bench.messages import Fault, Faulted
from evokernel.bench.servers import WarmServers
from evokernel.cli import main
from evokernel.config import BenchConfig
from evokernel.errors import DeviceMissing, TaskError, WorkerError
from evokernel.evaluation import Evaluation, Status
from evokernel.task import Task
from evokernel.tuning import Space

ROWS, COLUMNS = 37, 515

TASK = f"""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.shift = nn.Parameter(torch.randn({COLUMNS}))

    def forward(self, x):
        return torch.softmax(self.scale * x + self.shift, -1)


def get_inputs():
    return [torch.randn({ROWS}, {COLUMNS})]


def get_init_inputs():
    return [0.5]
"""

KERNEL = r"""
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, const float* shift, float* y, float scale, int64_t rows,
                        int64_t columns) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * columns;
    float* out = y + r * columns;
    float top = -INFINITY, sum = 0;
    bool is_nan = false;
    for (int64_t c = 0; c < columns; ++c) {
      const float v = out[c] = scale * in[c] + shift[c];
      is_nan |= v != v;
      top = v > top ? v : top;
    }
    if (is_nan) top = NAN;
    for (int64_t c = 0; c < columns; ++c) sum += out[c] = std::exp(out[c] - top);
    for (int64_t c = 0; c < LAST; ++c) out[c] /= sum;
  }
}
"""


def module(body: str, top: str = "", init: str = "pass") -> Candidate:
    """A candidate whose `forward` has this body."""
    source = f"""
import torch
from torch import nn
{textwrap.dedent(top)}

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.shift = nn.Parameter(torch.randn({COLUMNS}))
{textwrap.indent(textwrap.dedent(init), " " * 8)}

    def forward(self, x):
{textwrap.indent(textwrap.dedent(body), " " * 8)}
"""
    return Candidate(source=source, backend="cpp")


def own(last: str = "columns", after: str = "return y", kernel: str = KERNEL) -> Candidate:
    """A candidate with a C++ kernel of its own."""
    source = kernel.replace("LAST", last)
    top = f"from evokernel.jit import cpp_module\nbuilt = cpp_module({source!r})"
    call = "y = torch.empty_like(x)\nbuilt.softmax(x, self.shift, y, self.scale, *x.shape)\n"
    return module(call + after, top)


LIBRARY = "y = torch.softmax(self.scale * x + self.shift, -1)\n"

HONEST = {
    "own": own(),
    "library": module(LIBRARY + "return y"),
    "by hand": module(
        """
        z = x * self.scale + self.shift
        e = (z - z.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)
        """
    ),
}

WRONG = {
    "zeros": (module("return torch.zeros_like(x)"), Status.WRONG_VALUES),
    "mean": (module("return torch.full_like(x, 1 / x.shape[-1])"), Status.WRONG_VALUES),
    "tail": (own("columns - 1"), Status.WRONG_VALUES),
    "axis": (
        module("return torch.softmax(self.scale * x + self.shift, 0)"),
        Status.WRONG_VALUES,
    ),
    "bf16": (module(LIBRARY + "return y.bfloat16().float()"), Status.WRONG_VALUES),
    "unwritten": (module("return torch.empty_like(x)"), Status.WRONG_VALUES),
    "no maximum": (
        module("e = (x * self.scale + self.shift).exp()\nreturn e / e.sum(-1, keepdim=True)"),
        Status.WRONG_VALUES,
    ),
    "nan lost": (module(LIBRARY + "return y.nan_to_num()"), Status.WRONG_VALUES),
    "computed late": (
        module(
            LIBRARY + "x.copy_(y)\nreturn x",
        ),
        Status.INPUT_MODIFIED,
    ),
    "input": (module(LIBRARY + "x.zero_()\nreturn y"), Status.INPUT_MODIFIED),
    "dtype": (module(LIBRARY + "return y.double()"), Status.WRONG_DTYPE),
    "shape": (module(LIBRARY + "return y[:, 1:]"), Status.WRONG_STRUCTURE),
    "strides": (module(LIBRARY + "return y.t().contiguous().t()"), Status.WRONG_STRUCTURE),
    "tuple": (module(LIBRARY + "return (y,)"), Status.WRONG_STRUCTURE),
    "lazy": (
        module(
            LIBRARY + "return y.as_subclass(Lazy)",
            "class Lazy(torch.Tensor):\n    pass",
        ),
        Status.WRONG_STRUCTURE,
    ),
    "unsteady": (
        module(
            LIBRARY + "self.calls += 1\nreturn y * (1 + 2e-7 * (self.calls % 2))",
            init="self.calls = 0",
        ),
        Status.NONDETERMINISTIC,
    ),
    "right once": (
        module(
            LIBRARY + "self.calls += 1\nreturn y if self.calls < 14 else y * 1.1",
            init="self.calls = 0",
        ),
        Status.WRONG_VALUES,
    ),
    "wrong and then gone": (
        module(
            "self.calls += 1\nif self.calls > 1:\n    os._exit(0)\n" + LIBRARY + "return y * 1.1",
            "import os",
            init="self.calls = 0",
        ),
        Status.WRONG_VALUES,
    ),
    "replayed": (
        module(
            """
            key = x.data_ptr()
            if key not in self.known:
                self.known[key] = torch.softmax(self.scale * x + self.shift, -1)
            return self.known[key].clone()
            """,
            init="self.known = {}",
        ),
        Status.WRONG_VALUES,
    ),
}

FAULTY = {
    "syntax": (Candidate(source="def (", backend="cpp"), Status.INVALID_SOURCE),
    "no class": (Candidate(source="x = 1", backend="cpp"), Status.INVALID_SOURCE),
    "kernel": (own(kernel=KERNEL.replace("std::exp", "exq")), Status.COMPILE_ERROR),
    "raises": (module("return self.absent"), Status.RUNTIME_ERROR),
    "crashes": (module("return ctypes.string_at(0)", "import ctypes"), Status.CRASHED),
    "leaves": (module("os._exit(0)", "import os"), Status.CRASHED),
    "memory": (module("return torch.ones(1 << 40)"), Status.OUT_OF_MEMORY),
    "floods": (
        module("while True:\n    print('flood' * 1000, flush=True)"),
        Status.OUTPUT_LIMIT,
    ),
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "shifted_softmax.py"
    path.write_text(TASK)
    return Task.load(path)


@pytest.fixture(scope="module")
def config(warm_cache: Path) -> BenchConfig:
    return BenchConfig(
        measurement="quick",
        contract="library_allowed",
        baselines=("eager",),
        cache=warm_cache,
        compile_s=60,
    )


@pytest.fixture(scope="module")
def evaluator(task: Task, config: BenchConfig, servers: WarmServers) -> Iterator[LocalEvaluator]:
    with LocalEvaluator(task, config, servers=servers) as opened:
        yield opened


def judge(evaluator: LocalEvaluator, candidate: Candidate) -> Evaluation:
    return evaluator.compile(candidate) or evaluator.verify(candidate)


@pytest.mark.parametrize("name", HONEST)
def test_honest_candidates_pass(evaluator, task, name):
    candidate = HONEST[name]
    found = judge(evaluator, candidate)
    assert (found.status, found.reason) == (Status.PASSED, "")
    assert (found.candidate, found.task) == (candidate.sha, task.sha)
    assert found.correctness is not None
    assert found.correctness.worst_ratio < 1
    assert {"normal", "special", "denormal", "timed"} <= set(found.correctness.families)
    assert found.timing is not None
    assert found.timing.median_ms > 0
    speedup = found.timing.against("eager")
    assert speedup is not None
    assert speedup.ratio.low <= speedup.ratio.value <= speedup.ratio.high
    assert found.contract is not None
    assert bool(found.contract.own_kernels) == (name == "own")
    assert found.device == evaluator.facts().device


@pytest.mark.parametrize("name", WRONG)
def test_wrong_candidates_are_caught(evaluator, name):
    candidate, status = WRONG[name]
    found = judge(evaluator, candidate)
    assert found.status is status, found.reason
    assert found.reason
    assert found.timing is None
    assert found.correctness is not None
    assert not found.correctness.is_right
    assert found.correctness.mismatches


@pytest.mark.parametrize("name", FAULTY)
def test_faulty_candidates_have_their_status(evaluator, name):
    candidate, status = FAULTY[name]
    found = judge(evaluator, candidate)
    assert found.status is status, (found.reason, found.log)
    assert found.reason


def test_a_good_candidate_passes_after_all_that(evaluator):
    assert judge(evaluator, HONEST["own"]).status is Status.PASSED


def test_messages_name_the_place(evaluator):
    broken = judge(evaluator, FAULTY["kernel"][0])
    assert broken.compiles is False
    assert broken.diagnostics[0].file == "kernel_0.cpp"
    assert "exq" in broken.diagnostics[0].message
    tail = judge(evaluator, WRONG["tail"][0])
    assert tail.correctness is not None
    (mismatch,) = tail.correctness.mismatches
    assert mismatch.worst_index is not None
    assert mismatch.worst_index[1] == COLUMNS - 1
    assert mismatch.wrong == ROWS


def test_a_verdict_needs_no_compile_call(evaluator):
    assert evaluator.verify(HONEST["own"]).status is Status.PASSED


def test_the_profile_places_it_under_the_roofline(evaluator):
    passed = evaluator.profile(HONEST["own"], evaluator.verify(HONEST["own"]))
    assert passed.profile is not None
    assert passed.profile.roofline_share is not None
    assert passed.profile.gbytes_per_s is not None
    failed = judge(evaluator, WRONG["zeros"][0])
    assert evaluator.profile(WRONG["zeros"][0], failed).profile is None


def test_promotion_looks_again_in_fresh_processes(evaluator):
    child, parent = HONEST["own"], HONEST["by hand"]
    wrong_later = "self.calls += 1\nreturn y if self.calls < 8 else y * 1.1"
    tires = module(LIBRARY + wrong_later, init="self.calls = 0")
    claims = (
        Claim(candidate=child, parent=None, kind="kernel"),
        Claim(candidate=child, parent=parent, kind="edit"),
        Claim(candidate=child, parent=parent, kind="fix"),
        Claim(candidate=tires, parent=None, kind="kernel"),
    )
    kernel, edit, fix, wrong = evaluator.promote(claims)
    assert (kernel.claim, kernel.holds, kernel.processes) == ("kernel", True, 3)
    assert kernel.measurement == evaluator.config.measurement
    assert (edit.parent, edit.holds) == (parent.sha, True)
    assert kernel.ratio is not None
    assert edit.ratio is not None
    assert (fix.claim, fix.holds, fix.ratio) == ("fix", True, None)
    assert (wrong.holds, wrong.ratio) == (False, None)
    assert wrong.reason


def test_promotion_goes_on_without_the_kernel_that_breaks_a_round(evaluator):
    late = "self.calls += 1\nif self.calls > 5:\n    os._exit(3)\n" + LIBRARY
    crashing = module(late + "return y", "import os", "self.calls = 0")
    claims = tuple(
        Claim(candidate=candidate, parent=None, kind="kernel")
        for candidate in (HONEST["own"], crashing, HONEST["by hand"])
    )
    first, broken, last = evaluator.promote(claims)
    assert (first.holds, first.processes) == (True, 3)
    assert (last.holds, last.processes) == (True, 3)
    assert (broken.holds, broken.ratio) == (False, None)
    assert broken.reason


@pytest.fixture(scope="module")
def strict(task: Task, config: BenchConfig, servers: WarmServers) -> Iterator[LocalEvaluator]:
    """Own kernels only, and little patience."""
    changes = {"contract": "own_kernels_only", "compile_s": 3.0, "run_s": 4.0}
    strict = config.model_copy(update=changes)
    with LocalEvaluator(task, strict, servers=servers) as opened:
        yield opened


def test_own_kernels_only(evaluator, strict):
    assert judge(evaluator, HONEST["own"]).status is Status.PASSED  # built with more patience
    assert judge(strict, HONEST["own"]).status is Status.PASSED
    found = judge(strict, HONEST["library"])
    assert found.status is Status.CONTRACT
    assert "aten._softmax.default" in found.reason
    assert found.correctness is not None
    assert found.correctness.is_right
    both = judge(strict, own(after="return y * 1.0"))
    assert both.status is Status.CONTRACT
    assert both.contract is not None
    assert both.contract.own_kernels == ("softmax",)
    moved = judge(strict, own(after="return y.clone()"))
    assert moved.status is Status.PASSED


def test_limits_of_time(strict):
    stuck = judge(strict, module("while True:\n    pass"))
    assert stuck.status is Status.TIMEOUT
    slow = "constexpr long f(long n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\n"
    kernel = KERNEL + slow + "constexpr long g = f(60);\n"
    top = f"from evokernel.jit import cpp_module\nbuilt = cpp_module({kernel!r}, {FLAGS!r})"
    found = judge(strict, module("return x", top))
    assert found.status is Status.COMPILE_TIMEOUT, found.reason
    assert found.compiles is False


FLAGS = ("-fconstexpr-ops-limit=2000000000", "-fconstexpr-loop-limit=2000000000")


def test_a_busy_machine_is_a_status_not_a_number(task, config, servers):
    """As many busy loops as cores, twice: nothing can be measured, and nothing is claimed."""
    standard = config.model_copy(update={"measurement": "standard", "quiet_s": 0.2})
    with LocalEvaluator(task, standard, servers=servers) as evaluator:
        evaluator.facts()  # what the machine need not be busy for
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
        try:
            found = judge(evaluator, HONEST["own"])
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
    assert found.status is Status.INFRASTRUCTURE
    assert "busy" in found.reason
    assert found.timing is None
    assert not found.status.is_charged


def test_a_backend_whose_device_is_not_here_is_refused(task, config):
    if not choice.missing("cuda"):
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceMissing, match="`cuda`"):
        LocalEvaluator(task, config, backend="cuda")


def test_memory_that_others_take_is_not_held_against_a_candidate(evaluator, monkeypatch):
    candidate = HONEST[next(iter(HONEST))]
    assert evaluator.compile(candidate) is None
    monkeypatch.setattr(footprint, "is_machine_full", lambda: True)
    found = evaluator.verify(candidate)
    assert found.status is Status.INFRASTRUCTURE
    assert "most of which others take" in found.reason
    assert not found.status.is_charged


def test_a_baseline_that_fails_while_it_is_timed_is_told_in_plain_words(
    task, config, servers, monkeypatch
):
    fault = Fault(status=Status.OUT_OF_MEMORY, reason="no memory was left", phase="flush")

    def short_of_memory(*arguments: object) -> None:
        raise Faulted(fault)

    monkeypatch.setattr(timing, "measure", short_of_memory)
    with (
        LocalEvaluator(task, config, servers=servers) as opened,
        pytest.raises(WorkerError, match="could not be timed: no memory was left; what else runs"),
    ):
        opened.baselines()


def test_a_reference_that_raises_is_the_tasks_fault(config, servers):
    broken = Task.from_source(TASK.replace("self.scale * x", "self.absent * x"), "broken")
    opened = LocalEvaluator(broken, config, servers=servers)
    with opened as evaluator, pytest.raises(TaskError, match="absent"):
        evaluator.baselines()


def test_several_workloads_and_nested_outputs(config, servers):
    source = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, pair, power):
        x, label = pair["x"], pair["label"]
        return x ** power, {"rows": x.sum(-1), "label": label + 1}


def get_inputs():
    return [{"x": torch.randn(8, 100), "label": torch.arange(8)}, 2]


def get_workloads():
    return [{"name": "odd", "inputs": [{"x": torch.randn(3, 7), "label": torch.arange(3)}, 3]}]
"""
    nested = Task.from_source(source, "nested")
    right = source.replace("Model(", "ModelNew(")
    fixed = right.replace("x ** power", "x * x")
    with LocalEvaluator(nested, config, servers=servers) as evaluator:
        good = evaluator.verify(Candidate(source=right, backend="cpp"))
        assert good.status is Status.PASSED, good.reason
        assert good.correctness is not None
        assert good.correctness.workloads == ("default", "odd")
        bad = evaluator.verify(Candidate(source=fixed, backend="cpp"))
        assert bad.status is Status.WRONG_VALUES
        assert "`odd`" in bad.reason


@pytest.mark.parametrize("options", [{"precision": "bf16", "mode": "eval"}, {"mode": "train"}])
def test_precision_and_mode_are_the_tasks(config, servers, options):
    source = f"""
import torch
from torch import nn

EVOKERNEL = {options!r}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [3 + torch.randn(64, 32)]
"""
    right = source.replace("Model(", "ModelNew(")
    other = right.replace("self.norm(x)", "1.5 * self.norm(x)")
    task = Task.from_source(source, "batch_norm")
    with LocalEvaluator(task, config, servers=servers) as evaluator:
        good = evaluator.verify(Candidate(source=right, backend="cpp"))
        assert good.status is Status.PASSED, good.reason
        bad = evaluator.verify(Candidate(source=other, backend="cpp"))
        assert bad.status is Status.WRONG_VALUES, bad.reason


@pytest.mark.usefixtures("warm")
def test_the_command_prints_five_answers(tmp_path, capsys):
    path, candidate = tmp_path / "task.py", tmp_path / "kernel.py"
    path.write_text(TASK)
    tuned = tmp_path / "tuned.py"
    candidate.write_text(HONEST["own"].source + "\nLIKE = 1\nTUNE = {'LIKE': [1, 2]}\n")
    arguments = ["evaluate", str(candidate), "--task", str(path), "--quick"]
    assert main([*arguments, "--write-tuned", str(tuned)]) == 0
    shown = capsys.readouterr().out
    for word in (
        "passed",
        "compiles",
        "right",
        "contract",
        "coverage",
        "faster",
        "as fast as eager",
    ):
        assert word in shown
    assert "(2 of 2 tried;" in shown
    assert "hottest loop" in shown
    assert not Space.declared(tuned.read_text()).is_open
    candidate.write_text(WRONG["tail"][0].source)
    assert main([*arguments, "--json", "--contract", "own"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["evaluation"]["status"] == "wrong_values"
    assert report["baselines"] == []
    assert main(["evaluate", str(tmp_path / "none.py"), "--task", str(path)]) == 2
    assert "cannot read" in capsys.readouterr().err
