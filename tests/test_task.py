"""Task files of every shape load, run and describe themselves; bad ones say what is wrong."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from evokernel.cli.task import app
from evokernel.errors import TaskError
from evokernel.nested import leaves, map_leaves
from evokernel.opgraph import capture
from evokernel.program import Program, to_dtype
from evokernel.program.estimate import MemoryEstimate, plan_reference
from evokernel.program.shapes import cut_rows, shapes
from evokernel.task import Task, TaskOptions

HEAD = "import torch\nfrom torch import nn\n"

SCALE = (
    HEAD
    + """
ROWS = 8
COLUMNS = 2 * ROWS

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]

def get_init_inputs():
    return [COLUMNS]
"""
)


def model(forward: str, inputs: str, init: str = "", more: str = "") -> Program:
    """The program of a file with these parts."""
    return Task.from_source(source(forward, inputs, init, more)).program()


def source(forward: str, inputs: str, init: str = "", more: str = "") -> str:
    constructor = f"    def __init__(self, {init}):\n        super().__init__()\n" if init else ""
    return (
        f"{HEAD}{more}\nclass Model(nn.Module):\n{constructor}"
        f"    def forward({forward}\n\ndef get_inputs():\n    return {inputs}\n"
    )


# Loading without running


def test_a_file_is_checked_without_importing_torch():
    code = (
        "import sys; from evokernel.task import Task; tasks = Task.suite(); "
        "assert len(tasks) > 13; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_load_takes_a_name_or_a_path(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(SCALE)
    assert Task.load("softmax").name == "softmax"
    assert Task.load(path).name == Task.load(str(path)).name == "mine"
    assert Task.load(path).path == str(path)


def test_title_and_level_come_from_options_or_the_docstring():
    assert Task.load("softmax").level == 1
    assert Task.from_source('"""Doubles."""\n' + SCALE).title == "Doubles."
    assert Task.from_source(SCALE, name="mine").title == "mine"
    assert Task.from_source(SCALE).level is None


def test_the_hash_follows_the_source():
    task = Task.from_source(SCALE)
    assert task.sha == Task.from_source(SCALE, name="other").sha
    assert task.sha != task.resized(ROWS=4).sha


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("sofmax", "neither a built-in task nor a file. Did you mean `softmax`"),
        ("xyzzy", "neither a built-in task nor a file. `evokernel task list`"),
        ("nowhere/sofmax.py", "`nowhere/sofmax.py` does not exist"),
        ("/", "is a folder"),
    ],
)
def test_an_unknown_task_is_named_with_the_nearest_ones(where: str, expected: str):
    with pytest.raises(TaskError, match=".") as caught:
        Task.load(where)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = (1,\n", "not valid Python: '(' was never closed (line 1, `x = (1,`)"),
        ("x = 1\0", "not valid Python"),
        ("def get_inputs(): return []", "has no `Model`: a task file defines"),
        ("class ModelNew: pass\ndef get_inputs(): return []", "is it a candidate"),
        ("class Model: pass", "has no `get_inputs`"),
        (SCALE + "EVOKERNEL = {'precison': 'fp32'}", "key `precison`. Did you mean `precision`"),
        (SCALE + "EVOKERNEL = {'precision': 'fp8'}", "`precision` is 'fp8'; expected 'fp32', "),
        (SCALE + "EVOKERNEL = {'tolerance': {'rtoll': 1}}", "Did you mean `rtol`"),
        (SCALE + "EVOKERNEL = {'level': ROWS}", "must be written as a literal dictionary"),
        (SCALE + "EVOKERNEL = [1]", "is a list; expected a dictionary"),
        (SCALE + "EVOKERNEL = {'direction': 'backward'}", "expected 'forward'"),
        (SCALE + "EVOKERNEL = {'sizes': {'cpu': {'ROW': 1}}}", "Did you mean `ROWS`?"),
        (SCALE + "ROWS = 9\nEVOKERNEL = {'sizes': {'cpu': {'ROWS': 1}}}", "exactly once"),
    ],
)
def test_a_bad_file_is_refused_before_it_runs(text: str, expected: str):
    with pytest.raises(TaskError) as caught:
        Task.from_source(text, name="bad")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    path = tmp_path / "binary.py"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="binary.py` is not a Python file in a known encoding"):
        Task.load(path)


def test_parts_may_be_bound_in_any_way():
    for text in (
        "from somewhere import Model\nget_inputs = Model.make",
        "if True:\n    class Model: pass\nelse:\n    pass\ndef get_inputs(): return []",
        "try:\n    import x\nexcept ImportError:\n    class Model: pass\nget_inputs, y = 1, 2",
        "from somewhere import *",
    ):
        Task.from_source(text)


def test_an_unknown_device_is_refused():
    with pytest.raises(TaskError, match="`tpu` is no device"):
        Task.load("softmax", device="tpu")


# Options


def test_every_option_has_a_default():
    assert Task.from_source(SCALE).options == TaskOptions()


def test_a_number_is_the_factor_of_the_tolerance():
    task = Task.from_source(SCALE + "EVOKERNEL = {'tolerance': 4}")
    assert task.options.tolerance.factor == 4


def test_sizes_replace_constants_and_what_derives_from_them():
    text = SCALE + "EVOKERNEL = {'sizes': {'cuda': {'ROWS': 32}}}\n"
    (x,) = Task.from_source(text, device="cuda:0").program().make_inputs()
    assert x.shape == (32, 64)
    (x,) = Task.from_source(text).program().make_inputs()
    assert x.shape == (8, 16)


def test_sizes_keep_line_numbers_and_stand_alone():
    text = "SHAPE = (\n    1,\n    2,\n)  # é\n" + SCALE
    task = Task.from_source(text, SHAPE=(3, 4))
    assert task.source == "SHAPE = (3, 4)  # é\n\n\n\n" + SCALE
    namespace: dict[str, object] = {}
    exec(task.source, namespace)
    assert namespace["SHAPE"] == (3, 4)


def test_resized_makes_a_small_version():
    task = Task.load("softmax").resized(ROWS=4, COLUMNS=8)
    assert task.program().make_inputs()[0].shape == (4, 8)
    assert task.options == Task.load("softmax").options
    with pytest.raises(TaskError, match="no module-level constant `ROW`"):
        task.resized(ROW=1)


# Running


def test_seeds_are_set_where_kernelbench_sets_them():
    text = HEAD + (
        "class Model(nn.Module):\n"
        "    def __init__(self, start):\n"
        "        super().__init__()\n"
        "        self.start = start\n"
        "        self.layer = nn.Linear(3, 2)\n"
        "    def forward(self, x): return self.layer(x) + self.start\n"
        "def get_inputs(): return [torch.randn(4, 3)]\n"
        "def get_init_inputs(): return [torch.randn(2)]\n"
    )
    program = Task.from_source(text).program()
    namespace: dict[str, object] = {}
    exec(text, namespace)
    torch.manual_seed(7)
    init = namespace["get_init_inputs"]()
    torch.manual_seed(7)
    theirs = namespace["Model"](*init)
    torch.manual_seed(9)
    (x,) = namespace["get_inputs"]()
    ours = program.build(seed=7)
    assert torch.equal(ours.start, theirs.start)
    assert torch.equal(ours.layer.weight, theirs.layer.weight)
    assert torch.equal(program.make_inputs(seed=9)[0], x)


def test_the_random_state_of_the_process_is_left_alone():
    program = Task.from_source("import random\n" + SCALE).program()
    before, state = torch.get_rng_state(), random.getstate()
    program.make_inputs(seed=1)
    program.build(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == state


def test_python_and_numpy_randomness_is_seeded_too():
    program = model(
        "self, x, k): return x * k",
        "[torch.from_numpy(np.random.rand(4)), random.random()]",
        more="import random\nimport numpy as np\n",
    )
    one, two = program.make_inputs(seed=3), program.make_inputs(seed=3)
    assert torch.equal(one[0], two[0])
    assert one[1] == two[1]


def test_inputs_may_be_nested_and_of_any_kind():
    program = model(
        "self, xs, table, n, flag, mode, none=None):\n"
        "        return {'sum': xs[0] + table['y'][0] * n, 'rest': (xs[1], None)}",
        "[[torch.ones(2, 3), torch.zeros(1)], {'y': (torch.ones(2, 3),)}, 3, True, 'mean', None]",
    )
    inputs = program.make_inputs()
    outputs = program.call(program.build(), inputs)
    assert [path for path, _ in leaves(inputs)] == ["0.0", "0.1", "1.y.0", "2", "3", "4", "5"]
    assert torch.equal(outputs["sum"], torch.full((2, 3), 4.0))
    graph = capture(program)
    assert [node.op for node in graph.inputs] == ["0", "1", "2"]
    assert len(graph.results) == 2


def test_inputs_may_be_given_by_name():
    program = model("self, x, k=2, *, z=None): return x * k", "{'x': torch.ones(2)}")
    with pytest.raises(TaskError, match="keyword-only arguments of `forward` \\(z\\)"):
        program.make_inputs()
    program = model("self, x, k=2): return x * k", "{'k': 5, 'x': torch.ones(2)}")
    x, k = program.make_inputs()
    assert k == 5
    program = model("self, x): return x", "{'y': 5}")
    with pytest.raises(TaskError, match="missing a required argument: 'x'"):
        program.make_inputs()


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("[3, 4]", ([3, 4], {})),
        ("{'a': 3, 'b': 4}", ([], {"a": 3, "b": 4})),
        ("[[3], {'b': 4}]", ([3], {"b": 4})),
        ("[[], {'a': 1}]", ([], {"a": 1})),
        ("([1, 2, 3], {'x': 1})", ([[1, 2, 3], {"x": 1}], {})),
    ],
)
def test_constructor_arguments_come_in_three_forms(returned: str, expected: object):
    program = model(
        "self, x): return x",
        "[torch.ones(1)]",
        init="a, b=0",
        more=f"def get_init_inputs(): return {returned}\n",
    )
    assert program.init_inputs() == expected
    program.build()


def test_constructor_arguments_may_be_missing():
    program = model("self, x): return x + 1", "[torch.ones(1)]")
    assert program.init_inputs() == ([], {})
    program.check()


@pytest.mark.parametrize("options", ["", "EVOKERNEL = {'precision': 'tf32', 'level': 2}"])
def test_another_precision_is_part_of_the_text(options):
    """So that two precisions of one task are told apart wherever its hash is."""
    task = Task.from_source(SCALE + options)
    other = task.in_precision("bf16")
    assert other.options == task.options.model_copy(update={"precision": "bf16"})
    assert Task.from_source(other.source).options == other.options
    assert other.sha != task.sha


def test_precision_casts_inputs_and_parameters():
    program = Task.from_source(SCALE + "EVOKERNEL = {'precision': 'bf16'}").program()
    assert program.make_inputs()[0].dtype == program.build().weight.dtype == torch.bfloat16
    exact = program.build(dtype=torch.float64)
    assert torch.equal(exact.weight, program.build().weight.double())


def test_fp64_reaches_tensors_kept_as_plain_attributes():
    program = model(
        "self, x): return x @ self.matrix + self.more['a'][0]",
        "[torch.ones(2, 2)]",
        init="size=2",
        more="def _(): pass\n",
    )
    module = program.build()
    module.matrix, module.more = torch.ones(2, 2), {"a": [torch.ones(2)]}
    from evokernel.program import convert

    convert(module, torch.float64)
    outputs = program.call(module, to_dtype(program.make_inputs(), torch.float64))
    assert outputs.dtype == torch.float64


def test_the_module_runs_in_the_mode_the_task_names():
    assert Task.from_source(SCALE).program().build().training
    assert not Task.from_source(SCALE + "EVOKERNEL = {'mode': 'eval'}").program().build().training


def test_more_workloads_follow_the_default():
    text = SCALE + (
        "SMALL = torch.ones(1, COLUMNS)\n"
        "def get_workloads():\n"
        "    return [{'name': 'odd', 'inputs': lambda: [torch.ones(3, COLUMNS)], 'hidden': True},\n"
        "            {'inputs': [SMALL]}]\n"
    )
    program = Task.from_source(text).program()
    names = [(w.name, w.index, w.hidden) for w in program.workloads()]
    assert names == [("default", 0, False), ("odd", 1, True), ("workload_2", 2, False)]
    odd, fixed = program.workloads()[1:]
    assert program.make_inputs(odd)[0].shape == (3, 16)
    program.make_inputs(fixed)[0].zero_()
    assert program.make_inputs(fixed)[0].sum() == 16
    program.check(odd)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("5", "returned a int; expected a list"),
        ("[5]", "Entry 1"),
        ("[{'name': 'x'}]", 'with "inputs"'),
        ("[{'inputs': [], 'hiden': True}]", "Entry 1"),
        ("[{'inputs': [], 'name': 'default'}]", "the name `default` twice"),
    ],
)
def test_bad_workloads_are_refused(listed: str, expected: str):
    with pytest.raises(TaskError) as caught:
        Task.from_source(SCALE + f"def get_workloads(): return {listed}\n").program()
    assert expected in str(caught.value)


def test_a_file_that_raises_shows_the_end_of_its_traceback(tmp_path: Path):
    path = tmp_path / "broken.py"
    path.write_text(SCALE + "\ndef fail():\n    raise ValueError('no luck')\n\nfail()\n")
    with pytest.raises(TaskError) as caught:
        Task.load(path).program()
    message = str(caught.value)
    assert "broken.py`: the file raised `ValueError: no luck` at line 22" in message
    assert "(`raise ValueError('no luck')`), called from line 24 (`fail()`)" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda: model("self, x): return x", "1 / 0"), "raised `ZeroDivisionError"),
        (lambda: model("self, x): return x", "exit(3)"), "raised `SystemExit: 3`"),
        (lambda: model("self, x): return x", "torch.ones(2)"), "are a Tensor; expected a list"),
        (lambda: model("self, x): return x", "[]"), "missing a required argument: 'x'"),
        (lambda: model("self): return 1", "[torch.ones(1)]"), "too many positional arguments"),
        (lambda: model("self, x): raise KeyError('a')", "[1]"), "`Model.forward` raised `KeyError"),
        (lambda: model("self, x): return x @ x", "[torch.ones(2, 3)]"), "raised `RuntimeError"),
        (lambda: model("self, x): return 3.0", "[1]"), "the output is a float; expected tensors"),
        (lambda: model("self, x): return [x, 'a']", "[torch.ones(1)]"), "output `1` is a str"),
        (lambda: model("self, x): return None", "[1]"), "the output is a NoneType"),
        (lambda: model("self, x): return {}", "[1]"), "expected tensors"),
        (lambda: model("self, x): return x", "[1]", init="a"), "the constructor of `Model` raised"),
    ],
)
def test_what_only_running_shows_is_a_task_error(program: object, expected: str):
    with pytest.raises(TaskError) as caught:
        program().check()
    assert expected in str(caught.value)


def test_a_model_that_is_no_module_is_refused():
    program = Task.from_source("class Model: pass\ndef get_inputs(): return []").program()
    with pytest.raises(TaskError, match=r"expected a `torch.nn.Module`"):
        program.build()


def test_prints_of_a_file_do_not_reach_standard_output(capsys: pytest.CaptureFixture[str]):
    Task.from_source("print('hello')\n" + SCALE).program()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "hello\n"


def test_executed_modules_are_forgotten_with_their_program():
    program = Task.from_source(SCALE).program()
    name = program.module.__name__
    assert sys.modules[name] is program.module
    del program
    assert name not in sys.modules


# Nested values


def test_nested_values_keep_their_types():
    from collections import OrderedDict, defaultdict, namedtuple

    pair = namedtuple("pair", "a b")
    kinds = defaultdict(list, x=[1])
    tree = [pair(1, (2,)), OrderedDict(z=3), kinds]
    changed = map_leaves(lambda leaf: leaf + 1, tree)
    assert changed == [pair(2, (3,)), OrderedDict(z=4), {"x": [2]}]
    assert isinstance(changed[0], pair)
    assert changed[2].default_factory is list
    assert kinds == {"x": [1]}


# Memory


def test_shapes_need_no_storage():
    huge = Task.load("softmax").resized(ROWS=1 << 40).program()
    seen = shapes(huge)
    assert seen.outputs is not None
    assert seen.inputs[0].shape == seen.outputs[0].shape == (1 << 40, 2048)
    with pytest.raises(TaskError, match=r"needs about 16777216.0 GiB .*but 1.0 GiB are available"):
        plan_reference(huge, None, None, 1 << 30)


def test_what_a_file_caches_is_never_a_tensor_without_storage():
    program = model(
        "self, x): return x * mask()",
        "[torch.ones(4)]",
        more="import functools\n@functools.cache\ndef mask(): return torch.ones(4)\n",
    )
    capture(program)
    shapes(program)
    program.check()


def test_a_file_that_looks_at_values_is_estimated_from_real_ones():
    program = model(
        "self, x): return x[: int(x.sum())] if x.sum() > 0 else x",
        "[torch.full((int(torch.ones(8).sum()),), 0.5)]",
    )
    seen = shapes(program)
    assert seen.inputs[0].shape == (8,)
    assert seen.outputs is None
    assert program.memory_estimate().outputs == 32


def test_the_estimate_adds_inputs_outputs_and_fp64_copies():
    program = Task.load("rms_norm").resized(TOKENS=64, WIDTH=128).program()
    plane, row = 64 * 128 * 4, 128 * 4
    estimate = program.memory_estimate(None, capture(program))
    assert (estimate.inputs, estimate.parameters, estimate.outputs) == (plane, row, plane)
    assert estimate.fp64_inputs == estimate.fp64_outputs == 2 * plane
    # the squares, then the scaled input, beside one value per row
    assert 2 * plane <= estimate.fp64_intermediates < 2 * plane + 3 * 64 * 8
    assert estimate.total == estimate.own + estimate.fp64


def test_require_fits_names_both_figures():
    estimate = MemoryEstimate(
        inputs=1 << 30,
        parameters=0,
        outputs=1 << 29,
        fp64_inputs=0,
        fp64_parameters=0,
        fp64_outputs=0,
        fp64_intermediates=0,
    )
    estimate.require_fits(3 << 29)
    with pytest.raises(TaskError, match=r"needs about 1.5 GiB .* but 512.0 MiB are available"):
        estimate.require_fits(1 << 29)


def test_independent_rows_are_computed_in_chunks():
    program = Task.load("residual_rms_norm").resized(TOKENS=60, WIDTH=32).program()
    graph, inputs = capture(program), program.make_inputs()
    estimate = program.memory_estimate(None, graph)
    whole = plan_reference(program, None, graph, estimate.total)
    assert whole.mode == "whole"
    assert list(whole.pieces(inputs)) == [inputs]
    plan = plan_reference(program, None, graph, estimate.in_chunks(8))
    assert (plan.mode, plan.chunks, plan.positions) == ("chunked", 8, (0, 1))
    assert plan.label == "fp64 reference computed in 8 chunks of 8 rows"
    module = program.build(dtype=torch.float64)
    exact = to_dtype(inputs, torch.float64)
    pieces = list(plan.pieces(exact))
    assert [len(piece[0]) for piece in pieces] == [8] * 7 + [4]
    joined = plan.join([program.call(module, piece) for piece in pieces])
    for one, two in zip(joined, program.call(module, exact), strict=True):
        torch.testing.assert_close(one, two)


def test_dependent_rows_are_reduced_with_a_label():
    program = Task.load("mse_loss").resized(ROWS=64, COLUMNS=16).program()
    graph = capture(program)
    estimate = program.memory_estimate(None, graph)
    plan = plan_reference(program, None, graph, estimate.own + estimate.fp64 // 3)
    assert (plan.mode, plan.rows, plan.of_rows, plan.positions) == ("reduced", 16, 64, (0, 1))
    assert plan.label.startswith("compared on 16 of 64 rows: the whole needs 40.0 KiB")
    ((predictions, targets),) = plan.pieces(program.make_inputs())
    assert predictions.shape == targets.shape == (16, 16)


def test_what_cannot_be_reduced_is_refused():
    program = model(
        "self, x): return (x @ torch.ones(8, 8)).T @ torch.ones(8, 3)", "[torch.ones(8, 8)]"
    )
    estimate = program.memory_estimate()
    with pytest.raises(TaskError, match="expected it to fit"):
        plan_reference(program, None, None, estimate.own + 8)


def test_a_number_of_rows_in_the_code_forbids_chunks():
    program = model("self, x): return x.cumsum(1) / x.shape[0]", "[torch.ones(8, 64)]")
    graph = capture(program)
    estimate = program.memory_estimate(None, graph)
    plan = plan_reference(program, None, graph, estimate.own + estimate.fp64 // 2)
    assert graph.row_inputs == (0,)
    assert plan.mode == "reduced"


def test_the_tasks_own_limit_counts():
    text = SCALE + "EVOKERNEL = {'memory_bytes': 100}"
    with pytest.raises(TaskError, match="but 100 bytes are available"):
        plan_reference(Task.from_source(text).program(), None, None, 1 << 40)


def test_rows_are_cut_by_flat_position():
    inputs = [{"a": torch.arange(4), "b": 7}, [torch.arange(4)]]
    cut = cut_rows(inputs, [2], 1, 3)
    assert cut[0]["a"].tolist() == [0, 1, 2, 3]
    assert cut[1][0].tolist() == [1, 2]


# Commands


def test_list_answers_quickly_as_table_and_json():
    result = CliRunner().invoke(app, ["list", "--json"])
    rows = json.loads(result.stdout)
    names = [row["name"] for row in rows if row["level"] == 1]
    assert names == sorted(names)
    assert {"cross_entropy", "cumsum"} <= set(names)
    assert set(rows[0]) == {"name", "level", "title", "description"}
    assert "swiglu" in CliRunner().invoke(app, ["list"]).stdout


def test_show_tells_everything(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(SCALE + "EVOKERNEL = {'sizes': {'cuda': {'ROWS': 32}}}\nprint('noise')\n")
    result = CliRunner().invoke(app, ["show", str(path), "--json", "--device", "cuda"])
    shown = json.loads(result.stdout)
    (workload,) = shown["workloads"]
    assert workload["inputs"] == [{"shape": [32, 64], "dtype": "float32", "strides": []}]
    assert workload["operators"]["calls"] == {"mul": 1}
    assert workload["operators"]["rows_independent"] is True
    assert workload["memory"]["inputs"] == 32 * 64 * 4
    text = CliRunner().invoke(app, ["show", str(path)]).stdout
    for part in ("8 x 16", "mul (captured by export)", "elementwise", "fingerprint", "sizes="):
        assert part in text


def test_show_says_why_operators_are_missing(tmp_path: Path):
    path = tmp_path / "flow.py"
    path.write_text(source("self, x): return x if x.sum() > 0 else -x", "[torch.ones(2)]"))
    result = CliRunner().invoke(app, ["show", str(path)])
    assert "cannot be captured" in result.stdout
    assert "depend on values" in result.stdout


def test_show_refuses_a_reference_that_raises(tmp_path: Path):
    path = tmp_path / "broken.py"
    path.write_text(source("self, x): return x.bad()", "[torch.ones(2)]"))
    result = CliRunner().invoke(app, ["show", str(path)])
    assert isinstance(result.exception, TaskError)
    assert "'Tensor' object has no attribute 'bad'" in str(result.exception)
