"""Live modules: captured as a task, and patched with the kernel that was made for it."""

import copy
import re

import pytest
import torch
from torch import nn

import evokernel
from evokernel.config import Budget, RunConfig
from evokernel.errors import ConfigError, ModuleNotCaptured, PatchError, TaskError
from evokernel.optimize.subject import task_of
from evokernel.program.captured import captured
from evokernel.task import Task
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_task
from tests.live_models import KERNEL, Mixer


def ran(folder, module: nn.Module, example: torch.Tensor, source: str = KERNEL):
    """A run whose evaluator is a fake: what is tested here comes after it."""
    task = captured(module, (example,))
    settings = RunConfig(task=task.name, runs=folder / "runs", budget=Budget(attempts=1))
    return evokernel.optimize(
        task,
        settings,
        evaluator=FakeEvaluator(task),
        proposer=ScriptedProposer(lambda request: source),
        graph=fake_graph(),
    )


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Mixer().eval()


@pytest.fixture
def result(tmp_path, model, warm):
    return ran(tmp_path, model.blocks[0][0], model.example)


# -- capturing -------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 24))
        self.register_buffer("mask", torch.ones(4, 4).tril().bool(), persistent=False)
        self.register_buffer("table", torch.randn(300, 50), persistent=False)
        self.scale = torch.tensor(0.5)

    def forward(self, x, *, shift=None):
        q, k, v = self.project(x).chunk(3, -1)
        scores = (q @ k.transpose(-2, -1) * self.scale).masked_fill(~self.mask, -float("inf"))
        y = scores.softmax(-1) @ v + self.table[0, :8]
        return {"y": y if shift is None else y + shift, "scores": [scores]}


def test_captured_task_computes_what_the_module_does():
    torch.manual_seed(1)
    module, x, shift = Attention().eval(), torch.randn(2, 4, 8), torch.randn(8)
    task = evokernel.capture(module, (x,), {"shift": shift})
    assert (task.name, task.options.mode) == ("attention", "eval")
    program = Task.from_source(task.source).program()  # the text stands alone
    found = program.call(program.build(), [x, shift])
    expected = module(x, shift=shift)
    assert torch.equal(found["y"], expected["y"])
    assert torch.equal(found["scores"][0], expected["scores"][0])


def test_inputs_are_drawn_like_the_examples():
    class Taken(nn.Module):
        def forward(self, table, rows, keep):
            return table[rows] * keep

    rows = torch.tensor([3, 1, 2])
    table = torch.rand(8, 5).t() + 2
    task = captured(Taken(), (table, rows, torch.tensor([True, False, True])[:, None]))
    drawn = task.program().make_inputs(seed=1)
    assert drawn[0].stride() == (1, 5)
    assert drawn[0].min() >= 2
    assert set(drawn[1].tolist()) <= {1, 2, 3}
    assert drawn[2].flatten().tolist() == [True, False, True]
    assert not torch.equal(drawn[0], task.program().make_inputs(seed=2)[0])


def test_weights_of_reduced_precision_stay_what_they_are():
    module = nn.Linear(4, 4).bfloat16()
    task = captured(module, (torch.randn(2, 4).bfloat16(),))
    assert task.options.precision == "bf16"
    built = task.program().build()
    assert torch.equal(built.weight, module.weight)


def test_weights_are_known_by_their_hash(tmp_path):
    task = captured(nn.Linear(3, 3), (torch.randn(2, 3),))
    file = task.options.weights.file
    with open(file, "ab") as stream:  # noqa: PTH123
        stream.write(b"!")
    with pytest.raises(TaskError, match="are not those that were captured"):
        task.program().build()


@pytest.mark.parametrize(
    ("module", "inputs", "word"),
    [
        (nn.Linear(4, 4), (torch.randn(3, 5),), "must have same reduction dim"),
        (nn.Linear(4, 4, device="meta"), (torch.randn(3, 4),), "has no weights yet"),
        (nn.Identity(), (object(),), "cannot be captured|expected tensors"),
    ],
)
def test_what_cannot_be_captured_says_why(module, inputs, word):
    with pytest.raises(ModuleNotCaptured, match=word):
        captured(module, inputs)


def test_branch_on_a_value_cannot_be_captured():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ModuleNotCaptured, match=r"`Branching` cannot be captured.*task file"):
        captured(Branching(), (torch.randn(3),))


def test_inputs_and_live_modules_go_together(model):
    with pytest.raises(ConfigError, match="needs `inputs`"):
        evokernel.optimize(model)
    with pytest.raises(ConfigError, match="`softmax` brings its own"):
        evokernel.optimize("softmax", inputs=(model.example,))


def test_text_of_a_task_is_a_task():
    source = fake_task().source
    assert task_of(source).source == source


# -- patching --------------------------------------------------------------------------------------


def test_every_part_that_fits_is_patched_and_undone(model, result):
    x = model.example
    with torch.no_grad():
        expected = model(x)
        with evokernel.patch(model, result) as patched:
            assert list(patched.parts) == ["blocks.0.0", "blocks.1.0"]
            torch.testing.assert_close(model(x), expected)
            assert (patched.calls, patched.fallbacks) == (2, 0)
        assert torch.equal(model(x), expected)
        assert patched.calls == 2
    assert all("forward" not in part.__dict__ for part in model.modules())
    patched.undo()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x[:8], r"float32 \(8, 32\) instead of"),
        (lambda x: x.t().contiguous().t(), "has strides"),
        (lambda x: x.clone().requires_grad_(), "a gradient is wanted"),
    ],
)
def test_calls_that_were_not_verified_run_the_original(model, result, change, reason):
    norm, x = model.blocks[0][0], change(model.example)
    with torch.set_grad_enabled(x.requires_grad):
        expected = norm(x)
        with evokernel.patch(model, result) as patched:
            assert torch.equal(norm(x), expected)
            assert patched.calls == 0
    ((why, count),) = patched.reasons.items()
    assert count == 1
    assert re.search(reason, why)


def test_gradients_are_the_originals(model, result):
    x = model.example.clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(x).square().sum(), x)
    with evokernel.patch(model, result):
        (found,) = torch.autograd.grad(model(x).square().sum(), x)
    assert torch.equal(found, expected)


def test_other_precision_runs_the_original(model, result):
    with evokernel.patch(model, result) as patched, torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(model.example)
        assert patched.reasons == {"autocast is on": 2}
        model.bfloat16()
        model(model.example.bfloat16())
        assert patched.calls == 0


def test_both_modes_are_served_where_the_bits_agree(model, result):
    """A layer norm does the same in both; its kernel was verified in one."""
    with evokernel.patch(model, result) as patched, torch.no_grad():
        model.train()
        model(model.example)
        assert (patched.calls, patched.fallbacks) == (2, 0)


def test_weights_that_change_are_followed(model, result):
    norm = model.blocks[0][0]
    with torch.no_grad(), evokernel.patch(model, result) as patched:
        norm.weight.mul_(3)
        model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
        expected = nn.functional.layer_norm(model.example, (32,), norm.weight, norm.bias)
        torch.testing.assert_close(norm(model.example), expected)
        assert patched.calls == 1


def test_what_was_changed_after_patching_is_not_served(model, result):
    norm = model.blocks[0][0]
    with torch.no_grad(), evokernel.patch(model, result, at="blocks.0.0") as patched:
        norm.eps = 0.5
        norm(model.example)
        assert patched.reasons == {"`eps` was changed after the module was made": 1}


def test_strict_patch_raises(model, result):
    with evokernel.patch(model, result, is_strict=True), torch.no_grad():
        model(model.example)
        with pytest.raises(evokernel.OutsideVerifiedDomain, match="instead of float32"):
            model(model.example[:4])


def test_part_that_computes_something_else_is_refused(model, result):
    model.blocks[1][0].eps = 1e-3
    with evokernel.patch(model, result) as patched:
        assert list(patched.parts) == ["blocks.0.0"]
        with pytest.raises(PatchError, match="is patched already"):
            evokernel.patch(model, result, at="blocks.0.0")
    with pytest.raises(PatchError, match=r"`blocks.1.0`: it computes something else.*0\.001"):
        evokernel.patch(model, result, at="blocks.1.0")
    with pytest.raises(PatchError, match="was made for `torch.nn.modules.normalization.LayerNorm`"):
        evokernel.patch(model, result, at="last")
    with pytest.raises(PatchError, match=r"no part `blocks\.1\.9`"):
        evokernel.patch(model, result, at="blocks.1.9")
    with pytest.raises(PatchError, match="no part of the model fits"):
        evokernel.patch(model.last, result)


def test_wrong_kernel_is_refused_whatever_its_run_says(tmp_path, model, warm):
    wrong = ran(tmp_path, model.blocks[0][0], model.example, KERNEL.replace("1e-5", "1e-2"))
    with pytest.raises(PatchError, match="its error of"):
        evokernel.patch(model, wrong)
    deaf = KERNEL.replace("* weight[i] + bias[i]", "")
    with pytest.raises(PatchError, match="its error of"):
        evokernel.patch(model, ran(tmp_path, model.blocks[0][0], model.example, deaf))
    nameless = KERNEL.replace("self.bias", "self.shift")
    with pytest.raises(PatchError, match="other names or shapes"):
        evokernel.patch(model, ran(tmp_path, model.blocks[0][0], model.example, nameless))
    assert "forward" not in model.blocks[0][0].__dict__


def test_copies_and_compiled_models_work(model, result):
    with torch.no_grad(), evokernel.patch(model, result) as patched:
        expected, twin = model(model.example), copy.deepcopy(model)
        patched.undo()
        torch.testing.assert_close(twin(model.example), expected)
        assert twin.blocks[0][0].evokernel.calls == 2
        assert model.blocks[0][0](model.example).shape == (16, 32)


def test_best_kernel_loads_as_a_module(model, result):
    loaded = result.best.load()
    norm = model.blocks[0][0]
    with torch.no_grad():
        torch.testing.assert_close(loaded(model.example), norm(model.example))
    assert loaded.evokernel.calls == 1
    assert loaded.state_dict().keys() == norm.state_dict().keys()
    with pytest.raises(evokernel.OutsideVerifiedDomain), torch.no_grad():
        result.best.load(is_strict=True)(model.example[:3])
