"""What a lowered program looks like, and what cannot be lowered is named."""

from pathlib import Path

import pytest

from evokernel.opgraph import Node, OpGraph, Ref, TensorSpec, capture
from evokernel.proposers.templates import emit
from evokernel.proposers.templates.addressing import parameters, pointers
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Level, Load, Program, Reduce, Unsupported
from evokernel.proposers.templates.folds import Fold, carries
from evokernel.proposers.templates.halves import fitted_in_float32
from evokernel.proposers.templates.literals import literal
from evokernel.proposers.templates.lowering import lower
from evokernel.proposers.templates.naming import Names
from evokernel.proposers.templates.views import View
from evokernel.task import Task

TASK = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8))

    def forward(self, {names}):
        return {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def captured(folder: Path, body: str, *inputs: str) -> OpGraph:
    path = folder / "task.py"
    names = ", ".join("xyz"[: len(inputs)])
    path.write_text(TASK.format(names=names, body=body, inputs=", ".join(inputs)))
    return capture(Task.load(path).program())


def lowered(folder: Path, body: str, *inputs: str) -> Program:
    return lower(captured(folder, body, *inputs))


def graph(*calls: Node, shape: tuple[int, ...] = (4, 8), dtype: str = "float32") -> OpGraph:
    """A graph of one input `x` and calls, the last of which is the result."""
    spec = TensorSpec(shape=shape, dtype=dtype)
    return OpGraph(
        nodes=(Node(name="x", kind="input", op="0", outputs=(spec,)), *calls),
        results=(Ref(node=calls[-1].name),),
        source="export",
        flops=0,
        min_bytes=0,
        family="elementwise",
        fingerprint="0",
    )


def call(op: str, shape: tuple[int, ...] = (4, 8), dtype: str = "float32", **args: object) -> Node:
    """A call on `x`."""
    return Node(
        name=f"{op}_1",
        kind="call",
        op=op,
        args=(Ref(node="x"), *args.values()),  # type: ignore[arg-type]
        argnames=("self", *args),
        outputs=(TensorSpec(shape=shape, dtype=dtype),),
    )


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (graph(call("matmul")), "no template covers `matmul`"),
        (graph(call("exp", dtype="bfloat16"), dtype="bfloat16"), "`x` has dtype bfloat16"),
        (graph(call("exp", (0, 8)), shape=(0, 8)), r"no elements \(shape \[0, 8\]\)"),
        (graph(call("dropout", p=0.5, train=True)), "`dropout`"),
        (graph(call("div", other=2.0, rounding_mode="floor")), "rounding mode `floor`"),
        (graph(call("pow", exponent=1.5), call("linalg_vector_norm", (4,), ord=3.0, dim=(1,))),
         "`norm` of order 3"),
        (graph(call("transpose", (8, 4), dim0=0, dim1=1), call("exp")), None),
    ],
)  # fmt: skip
def test_what_is_not_covered_is_named(made: OpGraph, message: str | None) -> None:
    if message is None:
        lower(made)
        return
    with pytest.raises(Unsupported, match=message):
        lower(made)


@pytest.mark.parametrize(
    ("body", "inputs", "message"),
    [
        ("x.cummax(-1)", ["torch.randn(4, 8)"], "output 1 of `cummax`"),
        ("x.sum(0) + x.sum(1)", ["torch.randn(8, 8)"], "in another order than its own"),
        ("torch.softmax(x, 1).mean(0)", ["torch.randn(8, 8)"], "in another order than its own"),
        ("x.cumsum(0) * x.flip(0).cumsum(0).flip(0)", ["torch.randn(8, 8)"], "from both ends"),
        ("F.cross_entropy(x, y)", ["torch.randn(2, 3, 4)", "torch.ones(2, 4).long()"], "dim 1 of"),
        ("torch.cat((x, y))", ["torch.randn(4, 8)", "torch.randn(4, 8)"], "one tensor and zeros"),
        ("x.argmax()", ["torch.randn(4, 8)"], "over everything"),
        ("F.adaptive_avg_pool1d(x, 3)", ["torch.randn(2, 4, 8)"], "windows of different sizes"),
        ("F.avg_pool1d(x, 3, 2, 1, True)", ["torch.randn(2, 4, 8)"], "reaches over the padding"),
        ("F.max_pool1d(x, 8, 3, 1)", ["torch.randn(1, 8)"], "gives one column only"),
        ("F.pad(x, (1, 1), value=2.0)", ["torch.randn(4, 8)"], "anything but zeros"),
        ("F.pad(x * 2, (1, 1))", ["torch.randn(4, 8)"], "of computed values"),
        ("x * y.t()", ["torch.randn(4, 8)", "torch.randn(8, 4)"], "`y` across its rows"),
        ("x.t() + 1", ["torch.randn(8, 4)"], "result 0 is not contiguous"),
        ("(x + self.w) / (x + self.w).norm()", ["torch.randn(4, 8)"], "every row needs again"),
        ("x.sum(-1) + y", ["torch.randn(4, 8)", "torch.randn(7, 4)"], r"shape \[7, 4\]"),
        ("x, (x + 1)", ["torch.randn(4, 8)"], "result 0 is an argument"),
        ("F.linear(x, y)", ["torch.randn(4, 8)", "torch.randn(3, 8)"], "`linear`"),
    ],
)
def test_what_one_kernel_cannot_do_is_named(
    body: str, inputs: list[str], message: str, tmp_path: Path
) -> None:
    made = captured(tmp_path, body, *inputs)
    with pytest.raises(Unsupported, match=message):
        lower(made)


def test_softmax_takes_three_passes(tmp_path: Path) -> None:
    program = lowered(tmp_path, "torch.softmax(x * 2, -1)", "torch.randn(3, 5, 8)")

    assert program.kind == "rows"
    assert (program.domain.outer, program.domain.cols) == ((15,), 8)
    assert [len(p.reductions) for p in program.passes] == [1, 1, 0]
    assert program.passes[-1].outputs == (0,)
    repeated = {program.values[i].name for i in program.repeated()}
    assert repeated == {"mul1", "shifted", "exps"}


def test_equal_values_are_merged_and_unused_ones_dropped(tmp_path: Path) -> None:
    program = lowered(
        tmp_path,
        "[torch.exp(x) + torch.exp(x), torch.cos(y)][0]",
        "torch.randn(4, 8)",
        "torch.randn(4, 8)",
    )

    assert [s.name for s in program.sources] == ["x"]
    assert [v.name for v in program.values] == ["x_c", "exp1", "add1"]


def test_axes_merge_as_far_as_broadcasting_allows(tmp_path: Path) -> None:
    program = lowered(tmp_path, "x + y", "torch.randn(2, 3, 4, 8)", "torch.randn(2, 1, 1, 8)")

    assert (program.domain.outer, program.domain.cols) == ((2, 12), 8)
    assert [v.access.strides for v in program.values if isinstance(v, Load)] == [(96, 8), (8, 0)]
    assert pointers(program) == (
        "const float* x_row = x + r * 8;",
        "const float* y_row = y + r / 12 * 8;",
    )


def test_levels_and_columnwise_values(tmp_path: Path) -> None:
    program = lowered(
        tmp_path, "torch.exp(self.w) * x + y.exp()", "torch.randn(4, 8)", "torch.randn(4, 1)"
    )

    by_name = {v.name: i for i, v in enumerate(program.values)}
    levels = {v.name: v.level for v in program.values}
    assert levels["y_r"] == levels["exp3"] == Level.ROW
    assert levels["w_c"] == levels["exp1"] == Level.ELEMENT
    assert program.columnwise(by_name["exp1"])
    assert not program.columnwise(by_name["add1"])
    assert program.before == (by_name["y_r"], by_name["exp3"])


def test_a_mean_over_rows_comes_last(tmp_path: Path) -> None:
    program = lowered(tmp_path, "torch.logsumexp(x, -1).mean()", "torch.randn(4, 8)")

    reduction, quotient = (program.values[i] for i in program.last)
    assert isinstance(reduction, Reduce)
    assert reduction.level is quotient.level is Level.SCALAR


def test_statements_read_like_the_formula(tmp_path: Path) -> None:
    program = lowered(
        tmp_path, "(x - 2) / (x * y - (1 - y)) - -x", "torch.randn(4, 8)", "torch.randn(4, 8)"
    )
    wanted = [o.value for o in program.outputs]

    assert emit.elements(program, wanted, "vector", count="n").lines == (
        "const V x_c = load_first(x + c, n);",
        "const V y_c = load_first(y + c, n);",
        "const V sub3 = (x_c - 2.0f) / (x_c * y_c - (1.0f - y_c)) - -x_c;",
    )
    assert emit.elements(program, wanted, "scalar").lines[-1].startswith("const float sub3 = ")
    assert [p.declaration for p in parameters(program)] == [
        "const float* x",
        "const float* y",
        "float* out",
    ]


def test_known_values_are_not_computed_again(tmp_path: Path) -> None:
    program = lowered(tmp_path, "torch.exp(x) + 1", "torch.randn(4, 8)")
    by_name = {v.name: i for i, v in enumerate(program.values)}

    block = emit.elements(program, [by_name["add1"]], "vector", known={by_name["exp1"]: "cached_"})

    assert block.lines == ("const V add1 = cached_ + 1.0f;",)
    assert block.names[by_name["add1"]] == "add1"


def test_folds_and_scans(tmp_path: Path) -> None:
    program = lowered(tmp_path, "torch.cumsum(x, -1).amax(-1)", "torch.randn(4, 8)")
    (sweep,) = program.passes

    fold = Fold.of(program, sweep.reductions[0], "vector")

    assert (fold.type, fold.identity) == ("V", "V(-INFINITY)")
    assert fold.step("acc", "v") == "acc = maximum(acc, v);"
    assert fold.step("acc", "v", "n") == "acc = maximum(acc, select(first(n), v, V(-INFINITY)));"
    assert fold.finish("acc") == "reduce_max(acc)"
    assert carries(program, sweep.scans) == ("double cumsum_carry = double(0.0f);",)


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (0.1, "float32", "0.1f"),
        (0.1, "float64", "0.1"),
        (1 / 3, "float32", "0.33333334f"),
        (1e-12, "float32", "1e-12f"),
        (-2, "float32", "-2.0f"),
        (1e300, "float32", "INFINITY"),
        (float("-inf"), "float64", "-INFINITY"),
        (float("nan"), "float32", "NAN"),
        (True, "bool", "true"),
        (7, "int64", "7"),
    ],
)
def test_numbers_are_spelt_exactly(number: float, dtype: str, text: str) -> None:
    assert literal(number, dtype) == text


def test_names_are_identifiers_and_unique() -> None:
    names = Names()
    wishes = ["x", "x", "exp", "layer.0.weight", "2d", "float", "_private__name"]
    taken = [names.take(w) for w in wishes]
    assert taken == ["x", "x1", "exp1", "layer_0_weight", "v2d", "float1", "private_name"]


@pytest.mark.parametrize(
    ("view", "shape", "strides"),
    [
        (View.whole((4, 6)), (2, 2, 6), (12, 6, 1)),
        (View.whole((4, 6)), (24,), (1,)),
        (View.whole((4, 6)).permute((1, 0)), (24,), None),
        (View.whole((4, 6)).permute((1, 0)), (2, 3, 1, 4), (3, 1, 0, 6)),
        (View.whole((4, 6)).narrow(1, 2, 3), (2, 2, 3), (12, 6, 1)),
        (View.whole((4, 6)).narrow(1, 2, 3), (12,), None),
        (View.whole((4, 6)), (3, 4, 6), None),
        (View.whole((1, 6)).expand((4, 6)), (2, 2, 6), (0, 0, 1)),
        (View.whole((4, 1)).expand((4, 6)), (4, 3, 2), (1, 0, 0)),
        (View.whole(()), (1, 1), (0, 0)),
    ],
)
def test_reshaped_windows(
    view: View, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    result = view.reshape(shape)
    assert (result.strides if result else None) == strides


def test_half_precision_lies_in_memory_only(tmp_path: Path) -> None:
    half = "torch.randn(4, 8).to(torch.bfloat16)"
    program = fitted_in_float32(captured(tmp_path, "torch.softmax(x, -1) * y", half, half))
    assert isinstance(program, Program)
    assert {s.dtype for s in program.sources} == {o.dtype for o in program.outputs} == {"bfloat16"}
    assert program.dtypes == {"float32"}


def test_mixed_precision_keeps_each_tensors_dtype(tmp_path: Path) -> None:
    inputs = ("torch.randn(4, 8).half()", "torch.randn(4, 8)")
    program = fitted_in_float32(captured(tmp_path, "(x.float() + y, x.argmax(-1))", *inputs))
    assert [s.dtype for s in program.sources] == ["float16", "float32"]
    assert [o.dtype for o in program.outputs] == ["float32", "int64"]


def test_operands_of_half_precision_products_are_stored_as_such(tmp_path: Path) -> None:
    half = "torch.randn(2, 6, 8).half()"
    body = "F.scaled_dot_product_attention(x, y, z)"
    pipeline = fitted_in_float32(captured(tmp_path, body, half, half, half))
    assert isinstance(pipeline, Pipeline)
    assert {s.dtype for s in pipeline.sources} == {o.dtype for o in pipeline.outputs} == {"float16"}
    stored = {source.name: source.dtype for source in pipeline.between}
    scores, weights = stored.values()
    assert (scores, weights) == ("float32", "float16")
    assert pipeline.stages[-1].program.outputs[0].dtype == "float16"
