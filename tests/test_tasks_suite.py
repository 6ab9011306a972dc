"""The built-in suite: valid, typical in size, and without the holes that let cheats pass."""

import ast
from pathlib import Path

import pytest
import torch

from evokernel.bench.examination import examine
from evokernel.nested import leaves
from evokernel.opgraph import capture
from evokernel.program.shapes import shapes
from evokernel.task import BUILT_IN, Task

FAMILIES = {
    "attention": "attention",
    "avg_pool1d": "pooling",
    "batch_norm": "normalization",
    "batched_matmul": "contraction",
    "bias_gelu": "elementwise",
    "channel_max": "reduction",
    "column_sum": "reduction",
    "conv2d": "convolution",
    "conv_bias_relu": "convolution",
    "cross_entropy": "loss",
    "cumsum": "scan",
    "depthwise_conv2d": "convolution",
    "gelu": "elementwise",
    "group_norm": "normalization",
    "huber_loss": "loss",
    "instance_norm": "normalization",
    "kl_div": "loss",
    "l2_normalize": "normalization",
    "layer_norm": "normalization",
    "linear_gelu": "contraction",
    "linear_logsumexp": "contraction",
    "log_softmax": "softmax",
    "logsumexp": "reduction",
    "matmul": "contraction",
    "matmul_transposed": "contraction",
    "matvec": "contraction",
    "max_pool2d": "pooling",
    "mish": "elementwise",
    "mlp": "contraction",
    "mse_loss": "loss",
    "norm_linear": "contraction",
    "residual_layer_norm": "normalization",
    "residual_rms_norm": "normalization",
    "rms_norm": "normalization",
    "row_mean": "reduction",
    "scale_mask_softmax": "softmax",
    "scale_shift_hardswish": "elementwise",
    "softmax": "softmax",
    "swiglu": "elementwise",
}

SMALL = {
    "BATCH": 2,
    "CHANNELS": 8,
    "CLASSES": 80,
    "COLUMNS": 96,
    "DOCUMENTS": 24,
    "FILTERS": 6,
    "GROUPS": 2,
    "HEADS": 2,
    "HEAD_WIDTH": 16,
    "HIDDEN": 80,
    "IMAGES": 2,
    "INNER": 24,
    "LENGTH": 32,
    "OUTPUTS": 40,
    "PADDED": 4,
    "QUERIES": 16,
    "ROWS": 32,
    "SAMPLES": 96,
    "SIDE": 7,
    "TOKENS": 32,
    "VOCABULARY": 200,
    "WIDTH": 96,
}


def small(name: str) -> Task:
    """The task with sizes that take no time."""
    task = Task.load(name)
    bound = {n.targets[0].id for n in ast.parse(task.source).body if isinstance(n, ast.Assign)}
    return task.resized(**{key: value for key, value in SMALL.items() if key in bound})


def tensors(tree: object) -> list[torch.Tensor]:
    return [leaf for _, leaf in leaves(tree)]


def test_the_suite_is_complete():
    assert set(Task.names()) == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_task_is_captured_as_what_it_is(name: str):
    graph = capture(Task.load(name).program())
    assert graph.source == "export"
    assert graph.family == FAMILIES[name]
    mixes_rows = FAMILIES[name] == "loss" or name == "column_sum"
    assert (graph.row_inputs is None) == mixes_rows
    cpu_bytes = graph.min_bytes
    assert cpu_bytes > 16e6 or graph.flops > 3e8
    assert cpu_bytes < 140e6
    cuda = shapes(Task.load(name, device="cuda").program())
    assert cuda.outputs is not None
    moved = sum(spec.nbytes for spec in (*cuda.inputs, *cuda.outputs))
    assert 2 * cpu_bytes < moved < 4e9


@pytest.mark.parametrize("name", FAMILIES)
def test_a_task_says_what_it_is_and_runs_without_this_package(name: str):
    text = Path(BUILT_IN, f"{name}.py").read_text()
    assert "evokernel" not in text.replace("EVOKERNEL", "")
    task = Task.load(name)
    assert task.description.endswith(".")
    assert "\n" not in task.description
    assert task.options.title
    assert task.level in (1, 2)
    assert set(task.options.sizes) == {"cuda"}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_task_tells_right_answers_from_null_ones(name: str):
    found = examine(small(name))
    wrong = [check for check in found.checks if not check.passed and check.name != "timed"]
    assert [check.detail for check in wrong] == []  # that the sizes are small is the test's doing
    assert len(found.checks) == 13


@pytest.mark.parametrize("name", FAMILIES)
def test_every_weight_has_values_of_its_own(name: str):
    for parameter in small(name).program().build(seed=1).parameters():
        assert parameter.std() > 0.01


@pytest.mark.parametrize("name", FAMILIES)
def test_a_task_is_deterministic_and_leaves_its_inputs_alone(name: str):
    program = small(name).program()
    inputs, again = program.make_inputs(seed=3), program.make_inputs(seed=3)
    one = tensors(program.call(program.build(seed=3), inputs))
    two = tensors(program.call(program.build(seed=3), again))
    assert all(torch.equal(*pair) for pair in zip(one, two, strict=True))
    assert all(torch.equal(*p) for p in zip(tensors(inputs), tensors(again), strict=True))


def test_builtin_and_written_out_forms_agree():
    program = small("rms_norm").program()
    module, (x,) = program.build(), program.make_inputs()
    expected = torch.nn.functional.rms_norm(x, x.shape[-1:], module.weight, module.eps)
    torch.testing.assert_close(program.call(module, [x]), expected)


def test_masked_positions_get_no_weight():
    program = small("scale_mask_softmax").program()
    scores, mask = program.make_inputs()
    weights = program.call(program.build(), [scores, mask])
    assert mask.any()
    assert not mask.all(-1).any()
    assert (weights[mask.expand_as(weights)] == 0).all()
