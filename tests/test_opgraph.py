"""References become graphs with one spelling, whatever way they are written."""

import math

import pytest

from evokernel.opgraph import (
    CaptureFailed,
    Node,
    OpGraph,
    Ref,
    TensorSpec,
    capture,
    itemsize,
    rows_independent,
    same_operators,
)
from evokernel.task import Task

HEAD = (
    "import math\nimport torch\nfrom dataclasses import dataclass\nfrom torch import nn\n"
    "from torch.nn import functional as F\n"
)


def graph_of(
    body: str, inputs: str = "torch.randn(8, 16)", init: str = "", more: str = ""
) -> OpGraph:
    """The graph of a forward whose body is one expression, or statements that end in `return`."""
    return capture(program_of(body, inputs, init, more))


def program_of(body: str, inputs: str = "torch.randn(8, 16)", init: str = "", more: str = ""):
    names = ", ".join("xyz"[: len(eval(f"[{inputs}]", _names()))])
    lines = body if "return" in body else f"return {body}"
    indented = "\n".join(f"        {line}" for line in lines.splitlines())
    setup = "\n".join(f"        {line}" for line in init.splitlines())
    return Task.from_source(
        f"{HEAD}{more}\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n{setup}\n"
        f"    def forward(self, {names}):\n{indented}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    ).program()


def _names() -> dict[str, object]:
    import torch

    return {"torch": torch}


def ops(graph: OpGraph) -> list[str]:
    return [node.op for node in graph.calls]


def only(graph: OpGraph) -> dict[str, object]:
    """The arguments of the only call, without its tensor."""
    (node,) = graph.calls
    named = dict(zip(node.argnames, node.args, strict=True))
    return {name: value for name, value in named.items() if not isinstance(value, Ref)}


# Spelling

REDUCED = {"dim": (1,), "keepdim": False, "dtype": None}
FEATURES = {"normalized_shape": (16,), "weight": None}


@pytest.mark.parametrize(
    ("body", "op", "arguments"),
    [
        ("torch.softmax(x, -1)", "softmax", {"dim": 1, "dtype": None}),
        ("x.softmax(dim=1)", "softmax", {"dim": 1, "dtype": None}),
        ("x.sum()", "sum", {"dim": (0, 1), "keepdim": False, "dtype": None}),
        ("x.sum(-1, keepdim=True)", "sum", {"dim": (1,), "keepdim": True, "dtype": None}),
        ("x.mean((-1, 0))", "mean", {"dim": (0, 1), "keepdim": False, "dtype": None}),
        ("x.max()", "amax", {"dim": (0, 1), "keepdim": False}),
        ("x.var(1, False)", "var", {"dim": (1,), "keepdim": False, "correction": 0}),
        ("x.std()", "std", {"dim": (0, 1), "keepdim": False, "correction": 1}),
        ("x.argmax(-1)", "argmax", {"dim": 1, "keepdim": False}),
        ("x.cumsum(-1)", "cumsum", {"dim": 1, "dtype": None}),
        ("x.norm(dim=1)", "linalg_vector_norm", {"ord": 2} | REDUCED),
        ("x.square()", "pow", {"exponent": 2}),
        ("x ** 2", "pow", {"exponent": 2}),
        ("1 - x", "sub", {"self": 1, "alpha": 1}),
        ("x / 2", "div", {"other": 2, "rounding_mode": None}),
        ("torch.true_divide(x, 2)", "div", {"other": 2, "rounding_mode": None}),
        ("x.clamp_min(0.5)", "clamp", {"min": 0.5, "max": None}),
        ("F.relu6(x)", "clamp", {"min": 0.0, "max": 6.0}),
        ("F.hardtanh(x, -2, 2)", "clamp", {"min": -2.0, "max": 2.0}),
        ("x.double()", "to", {"dtype": "float64"}),
        ("x.T", "transpose", {"dim0": 0, "dim1": 1}),
        ("x.view(-1, 4)", "view", {"size": (32, 4)}),
        ("x[:, -3:]", "slice", {"dim": 1, "start": 13, "end": 16, "step": 1}),
        ("x[-1]", "select", {"dim": 0, "index": 7}),
        ("x.unsqueeze(-1)", "unsqueeze", {"dim": 2}),
        ("x.masked_fill(x > 0, -math.inf)", None, None),
        ("F.gelu(x)", "gelu", {"approximate": "none"}),
        ("F.layer_norm(x, (16,))", "layer_norm", FEATURES | {"bias": None, "eps": 1e-5}),
        ("F.rms_norm(x, (16,))", "rms_norm", FEATURES | {"eps": 2.0**-23}),
        ("x * torch.tensor(3.0)", "mul", {"other": 3.0}),
        ("torch.zeros_like(x) + x", None, None),
    ],
)  # fmt: skip
def test_every_call_has_one_spelling(body: str, op: str | None, arguments: dict[str, object]):
    graph = graph_of(body)
    assert graph.source == "export"
    assert OpGraph.model_validate_json(graph.model_dump_json()) == graph
    if op is not None:
        assert ops(graph) == [op]
        found = only(graph)
        assert found == arguments
        assert list(found) == list(arguments)


def test_two_tensors_make_another_operator_than_one():
    assert ops(graph_of("torch.max(x, y)", "torch.randn(4), torch.randn(4)")) == ["maximum"]
    (node,) = graph_of("x.max(-1)").calls
    assert node.op == "max"
    assert [spec.dtype for spec in node.outputs] == ["float32", "int64"]


def test_what_changes_nothing_is_left_out():
    body = (
        "x = F.dropout(x.detach().clone().contiguous(), 0.5, training=False)\n"
        "x = x.to(torch.float32).expand(8, 16).view(8, 16)\n"
        "return F.dropout(x, 0.0) + 1"
    )
    assert ops(graph_of(body)) == ["add"]
    assert ops(graph_of("x.T.contiguous()")) == ["transpose", "contiguous"]
    assert ops(graph_of("F.dropout(x, 0.5)")) == ["dropout"]


def test_infinite_arguments_survive_json():
    graph = graph_of("x.masked_fill(x > 0, -math.inf)")
    again = OpGraph.model_validate_json(graph.model_dump_json())
    assert again.calls[-1].argument("value") == -math.inf


def test_what_comes_from_outside_is_named():
    graph = graph_of(
        "self.inner(x) * self.scale + self.table + torch.tensor([1.0, 2.0, 3.0])",
        "torch.randn(8, 3)",
        "self.inner = nn.Linear(3, 3)\nself.register_buffer('scale', torch.ones(3))\n"
        "self.table = torch.ones(3)\nself.unused = nn.Parameter(torch.ones(9))",
    )
    outside = {(node.kind, node.op) for node in graph.nodes if node.kind != "call"}
    assert outside == {
        ("input", "0"),
        ("parameter", "inner.weight"),
        ("parameter", "inner.bias"),
        ("parameter", "scale"),
        ("constant", "table"),
        ("constant", ""),
    }


def test_tensors_of_one_element_carry_their_value():
    (constant,) = (n for n in graph_of("x + torch.tensor([2.5])").nodes if n.kind == "constant")
    assert constant.value == 2.5


def test_inputs_count_flat_whatever_they_are():
    program = Task.from_source(
        HEAD + "class Model(nn.Module):\n"
        "    def forward(self, n, xs, table, flag):\n"
        "        return {'a': xs[0] * n, 'b': [table['k'] if flag else xs[0], None]}\n"
        "def get_inputs():\n"
        "    return [2.5, (torch.ones(3), 'text'), {'k': torch.ones(3, dtype=torch.int64)}, True]\n"
    ).program()
    graph = capture(program)
    assert [(node.op, node.outputs[0].dtype) for node in graph.inputs] == [
        ("1", "float32"),
        ("3", "int64"),
    ]
    assert [graph.spec(ref).dtype for ref in graph.results] == ["float32", "int64"]
    assert only(graph)["other"] == 2.5


def test_scalar_results_and_integer_inputs():
    graph = graph_of("x[0, 0] * 2, x.sum()", "torch.arange(6).view(2, 3)")
    assert [graph.spec(ref) for ref in graph.results] == [
        TensorSpec(shape=(), dtype="int64"),
        TensorSpec(shape=(), dtype="int64"),
    ]


# In place


@pytest.mark.parametrize(
    ("body", "functional"),
    [
        ("y = x * 2\ny += 1\nreturn y.relu_()", "((x * 2) + 1).relu()"),
        ("y = x * 2\ny.add_(1)\nreturn y * y", "y = x * 2 + 1\nreturn y * y"),
        ("y = x.clone()\ny.mul_(3)\nreturn x + y", "x + x * 3"),
        ("return F.relu(x + 1, inplace=True)", "F.relu(x + 1)"),
    ],
)
def test_writing_in_place_reads_as_if_it_were_functional(body: str, functional: str):
    assert graph_of(body).fingerprint == graph_of(functional).fingerprint


def test_writing_through_a_view_reaches_what_is_read_later():
    graph = graph_of("y = x * 2\nz = y.view(-1)\nz.add_(1)\nreturn y")
    assert ops(graph) == ["mul", "view", "add", "view"]
    graph = graph_of("out = torch.zeros_like(x)\nout[:, 0] = x[:, 1]\nreturn out")
    assert ops(graph) == ["zeros_like", "select", "select_scatter"]


def test_state_that_is_written_but_not_returned_is_left_out():
    init = "self.norm = nn.BatchNorm1d(16)"
    assert ops(graph_of("self.norm(x)", init=init)) == ["batch_norm"]


def test_writing_into_an_input_cannot_be_captured():
    with pytest.raises(CaptureFailed, match="writes into its own input `x`"):
        graph_of("x.add_(1)\nreturn x")


# What cannot be captured


@pytest.mark.parametrize(
    "body",
    [
        "return x if x.sum() > 0 else -x",
        "return x * x.max().item()",
        "return x[x > 0]",
        "with torch.autocast('cpu', dtype=torch.bfloat16): y = x @ x.T\nreturn y",
    ],
)
def test_what_depends_on_values_is_refused_plainly(body: str, capfd: pytest.CaptureFixture[str]):
    with pytest.raises(CaptureFailed) as caught:
        graph_of(body)
    message = str(caught.value)
    assert message.startswith("`task` cannot be captured as an operator graph: torch.export says")
    assert "The task still runs" in message
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")


def test_fx_takes_over_where_export_fails():
    """It traces without tensors, so that code which refuses the fake ones of export gets by."""
    graph = graph_of(
        "F.softmax(plus_one(x), -1)",
        more="def plus_one(x):\n"
        "    if isinstance(x, torch.Tensor) and type(x).__name__ == 'FakeTensor':\n"
        "        raise RuntimeError('fake')\n"
        "    return x + 1\n",
    )
    assert graph.source == "fx"
    assert ops(graph) == ["add", "softmax"]
    assert graph.fingerprint == graph_of("F.softmax(x + 1, -1)").fingerprint


# Families


@pytest.mark.parametrize(
    ("body", "family"),
    [
        ("F.gelu(x * 2 + 1)", "elementwise"),
        ("torch.softmax(x, -1)", "softmax"),
        ("e = (x - x.amax(-1, keepdim=True)).exp()\nreturn e / e.sum(-1)[:, None]", "softmax"),
        ("x - x.logsumexp(-1, keepdim=True)", "softmax"),
        ("F.layer_norm(x, (16,))", "normalization"),
        ("F.rms_norm(x, (16,))", "normalization"),
        ("x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)", "normalization"),
        ("(x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)", "normalization"),
        ("F.normalize(x, dim=-1)", "normalization"),
        ("x / x.sum(-1)[:, None]", "normalization"),
        ("x.sum(-1)", "reduction"),
        ("x.exp().sum(-1).log()", "reduction"),
        ("torch.logsumexp(x, -1)", "reduction"),
        ("x.pow(2).mean()", "reduction"),
        ("x.cumsum(-1)", "scan"),
        ("x @ x.T", "contraction"),
        ("F.relu(F.linear(x, torch.ones(4, 16)))", "contraction"),
        ("torch.softmax(x @ x.T, -1) @ x", "attention"),
        ("F.conv1d(x[None], torch.ones(2, 8, 3))", "convolution"),
        ("F.max_pool1d(x, 2)", "pooling"),
        ("x.T", "other"),
    ],
)  # fmt: skip
def test_family_follows_from_what_is_computed(body: str, family: str):
    assert graph_of(body).family == family


@pytest.mark.parametrize(
    "body", ["F.mse_loss(x, y)", "((x - y) ** 2).mean()", "F.huber_loss(x, y)", "(x * y).sum()"]
)
def test_comparing_two_inputs_down_to_a_number_is_a_loss(body: str):
    assert graph_of(body, "torch.randn(8, 16), torch.randn(8, 16)").family == "loss"


# Fingerprints


def test_fingerprints_ignore_names_order_and_nesting():
    one = Task.from_source(
        HEAD + "class Model(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.norm = nn.LayerNorm(16)\n"
        "        self.gain = nn.Parameter(torch.ones(16))\n"
        "    def forward(self, x):\n"
        "        a = torch.sigmoid(x)\n"
        "        b = self.norm(x) * self.gain\n"
        "        return a + b\n"
        "def get_inputs(): return [torch.randn(8, 16)]\n"
    )
    two = Task.from_source(
        HEAD + "class Inner(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.scale, self.deep = nn.Parameter(torch.randn(16)), nn.LayerNorm(16)\n"
        "    def forward(self, value):\n"
        "        return self.scale * self.deep(value)\n"
        "class Model(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.block = Inner()\n"
        "    def forward(self, value):\n"
        "        normed = self.block(value)\n"
        "        return normed + value.sigmoid()\n"
        "def get_inputs(): return [torch.randn(8, 16)]\n"
    )
    assert capture(one.program()).fingerprint == capture(two.program()).fingerprint


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("x * 2", "x * 3"),
        ("x - y", "y - x"),
        ("x * y", "x + y"),
        ("torch.softmax(x, 0)", "torch.softmax(x, 1)"),
        ("x * self.a + self.a", "x * self.a + self.b"),
        ("x + 1, y", "y, x + 1"),
        ("x.exp()", "x.double().exp().float()"),
    ],
)
def test_fingerprints_tell_tasks_apart(one: str, two: str):
    inputs = "torch.randn(8, 16), torch.randn(8, 16)"
    init = "self.a, self.b = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(16))"
    prints = {graph_of(body, inputs, init).fingerprint for body in (one, two)}
    assert len(prints) == 2


def test_fingerprints_depend_on_shapes_and_dtypes():
    inputs = ("torch.randn(8, 16)", "torch.randn(16, 8)", "torch.randn(8, 16).double()")
    assert len({graph_of("x.exp()", given).fingerprint for given in inputs}) == 3


def test_operands_that_commute_may_be_swapped():
    inputs = "torch.randn(8, 16), torch.randn(8, 16)"
    one, two = (graph_of(body, inputs) for body in ("x * y.exp()", "y.exp() * x"))
    assert one.fingerprint == two.fingerprint


# Work


@pytest.mark.parametrize(
    ("body", "flops"),
    [
        ("x * 2 + 1", 2 * 8 * 16),
        ("x.exp()", 8 * 16),
        ("x.sum(-1)", 8 * 16),
        ("x.T.contiguous()", 0),
        ("x @ x.T", 2 * 8 * 8 * 16),
        ("torch.einsum('ij,kj->ik', x, x)", 2 * 8 * 8 * 16),
        ("torch.einsum('ji,jk->ik', x, x)", 2 * 16 * 16 * 8),
        ("self.cell(x)[0]", 2 * 8 * (4 * 5) * (16 + 5)),
        ("F.linear(x, torch.ones(4, 16), torch.ones(4))", 2 * 8 * 4 * 16 + 8 * 4),
        ("torch.addmm(torch.ones(8), x, x.T)", 2 * 8 * 8 * 16 + 8 * 8),
        ("F.conv1d(x[None], torch.ones(2, 8, 3))", 2 * (2 * 14) * 8 * 3),
        ("torch.softmax(x, -1)", 5 * 8 * 16),
        ("F.cosine_similarity(x, x)", 6 * 8 * 16),
        ("F.max_pool1d(x[None], 3, stride=1)", 8 * 14 * 3),
        ("F.avg_pool2d(x[None], (2, 4))", 4 * 4 * 8),
        ("F.max_pool2d(x[None], 2, stride=1)", 7 * 15 * 4),
        ("F.adaptive_avg_pool2d(x[None], 1)", 8 * 16),
    ],
)
def test_operations_are_counted_by_formula(body: str, flops: int):
    assert graph_of(body, init="self.cell = nn.LSTM(16, 5)").flops == flops


@pytest.mark.parametrize(
    ("body", "elements"),
    [
        ("x * 2", 128 + 128),
        ("x.sum(-1)", 128 + 8),
        ("x + x.exp() + x", 128 + 128),
        ("x[:, :2] * 2", 16 + 16),
        ("x.T", 0),
        ("x.exp(), x", 128 + 128),
        ("x.sum(-1, keepdim=True).expand(8, 16)", 128 + 8),
    ],
)
def test_bytes_that_nobody_avoids(body: str, elements: int):
    assert graph_of(body).min_bytes == 4 * elements


def test_only_looked_up_rows_of_a_table_are_read():
    graph = graph_of("self.table(x)", "torch.arange(4)", "self.table = nn.Embedding(1000, 16)")
    assert graph.min_bytes == 4 * 8 + 2 * (4 * 16 * 4)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 4), ("int64", 8), ("bool", 1), ("bfloat16", 2), ("complex64", 8), ("uint8", 1)]
    + [("float8_e4m3fn", 1), ("complex128", 16), ("int8", 1), ("float16", 2)],
)
def test_itemsize(dtype: str, size: int):
    assert itemsize(dtype) == size


# Rows


@pytest.mark.parametrize(
    ("body", "inputs", "cut"),
    [
        ("x.exp() * 2", "torch.randn(8, 16)", (0,)),
        ("x + y", "torch.randn(8, 16), torch.randn(8, 16)", (0, 1)),
        ("x + y", "torch.randn(8, 16), torch.randn(16)", (0,)),
        ("x + y", "torch.randn(8, 8), torch.randn(8)", (0,)),
        ("x + y", "torch.randn(8, 16), torch.randn(1, 16)", (0,)),
        ("torch.softmax(x, -1)", "torch.randn(8, 16)", (0,)),
        ("F.layer_norm(x, (16,))", "torch.randn(8, 16)", (0,)),
        ("x.view(8, 4, 4).sum(-1).view(8, 4)", "torch.randn(8, 16)", (0,)),
        ("x @ y", "torch.randn(8, 8), torch.randn(8, 8)", (0,)),
        ("torch.mv(x, y)", "torch.randn(8, 8), torch.randn(8)", (0,)),
        ("torch.bmm(x, y)", "torch.randn(8, 2, 3), torch.randn(8, 3, 2)", (0, 1)),
        ("x.transpose(1, 2)", "torch.randn(8, 2, 3)", (0,)),
        ("F.embedding(x, self.table)", "torch.arange(8)", (0,)),
        ("torch.cat([x, y], 1)", "torch.randn(8, 16), torch.randn(8, 2)", (0, 1)),
        ("x.chunk(2, -1)[0]", "torch.randn(8, 16)", (0,)),
        ("F.cross_entropy(x, y, reduction='none')", "torch.randn(8, 16), torch.arange(8)", None),
        ("x.sum(0)", "torch.randn(8, 16)", None),
        ("x.sum()", "torch.randn(8, 16)", None),
        ("x, x.sum(-1).sum()", "torch.randn(8, 16)", None),
        ("x - x.mean()", "torch.randn(8, 16)", None),
        ("torch.softmax(x, 0)", "torch.randn(8, 16)", None),
        ("x @ x.T", "torch.randn(8, 16)", None),
        ("x.T", "torch.randn(8, 8)", None),
        ("x.view(4, 32)", "torch.randn(8, 16)", None),
        ("x.view(16, 8).view(8, 16)", "torch.randn(8, 16)", None),
        ("x.flip(0)", "torch.randn(8, 16)", None),
        ("x.cumsum(0)", "torch.randn(8, 16)", None),
        ("x[:, 0].expand(8, 8)", "torch.randn(8, 8)", None),
        ("x + torch.arange(8)[:, None]", "torch.randn(8, 16)", None),
        ("F.dropout(x, 0.5)", "torch.randn(8, 16)", None),
        ("self.norm(x)", "torch.randn(8, 16)", None),
        ("x.tril()", "torch.randn(8, 8)", None),
        ("x + 1", "torch.randn(1, 16)", None),
        ("x + 1", "torch.tensor(3.0)", None),
    ],
)
def test_rows_are_independent_only_where_that_is_certain(
    body: str, inputs: str, cut: tuple[int, ...] | None
):
    init = "self.table, self.norm = nn.Parameter(torch.ones(9, 4)), nn.BatchNorm1d(16)"
    graph = graph_of(body, inputs, init)
    assert graph.row_inputs == cut
    assert rows_independent(graph) == (cut is not None)


def test_fewer_rows_run_the_same_operators_unless_the_code_counts_them():
    program = program_of("x.exp().view(-1, 4, 4)")
    assert same_operators(program, None, capture(program), (0,), 4)
    program = program_of("x * x.shape[0]")
    assert not same_operators(program, None, capture(program), (0,), 4)
    program = program_of("x.view(8, 4, 4)")
    assert not same_operators(program, None, capture(program), (0,), 4)


def test_a_node_is_asked_by_name():
    node = Node(name="a", kind="call", op="add", args=(1, (Ref(node="b"), 2)), argnames=("p", "q"))
    assert node.argument("p") == 1
    assert node.argument("r", 5) == 5
    assert list(node.refs()) == [Ref(node="b")]
