"""Lowered graphs mean what the reference computes, as programs and as the C++ written from them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn import functional as F

from evokernel.jit import CppModule, cpp_module
from evokernel.opgraph import OpGraph, capture
from evokernel.proposers.templates import emit
from evokernel.proposers.templates.addressing import output_row, parameters, pointers
from evokernel.proposers.templates.domain import Access, Walk
from evokernel.proposers.templates.emit import vector_problem
from evokernel.proposers.templates.expressions import (
    Constant,
    Level,
    Load,
    Map,
    Pass,
    Pick,
    Program,
    Reduce,
    Scan,
    Value,
)
from evokernel.proposers.templates.folds import Fold, carries
from evokernel.proposers.templates.header import preamble
from evokernel.proposers.templates.lowering import lower
from evokernel.task import Task

X = "torch.randn(6, 37)"
POINTWISE = {
    "add_bias": ("x + self.p0", [X], ["torch.randn(37)"]),
    "per_channel": ("F.hardswish(x * self.p0 + self.p1)", ["torch.randn(2, 3, 4, 5)"],
                    ["torch.randn(3, 1, 1)", "torch.randn(3, 1, 1)"]),
    "mask_4d": ("x.masked_fill(y, -1.5)", ["torch.randn(2, 3, 4, 5)",
                                           "torch.rand(2, 1, 4, 5) > 0.5"], []),
    "outer_sum": ("x[:, None] + y[None, :]", ["torch.randn(6)", "torch.randn(7)"], []),
    "swiglu": ("F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]", ["torch.randn(2, 3, 26)"], []),
    "glu": ("F.glu(x, -1)", ["torch.randn(5, 26)"], []),
    "sliced": ("x[:, 3:20] * x[:, 20:]", [X], []),
    "scalar_parameter": ("x * self.p0 + 2 * y", [X, X], ["torch.randn(1)"]),
    "comparisons": ("torch.where((x > y) & ~(x >= 1.0) | torch.isnan(y), x, y * 2)", [X, X], []),
    "to_bool": ("(x > 0) ^ (y > 0)", [X, X], []),
    "cast": ("(x > 0).float() * y + (y < 1).to(torch.float32)", [X, X], []),
    "clamps": ("torch.clamp(x, -0.5, 0.5) + torch.clamp(x, min=y) + torch.relu(y)", [X, X], []),
    "powers": ("x**2 + x**3 + x**4 + y**-1 + y**-2 + y.abs()**0.5 + y.abs()**-0.5 + y.abs()**1.7",
               [X, X], []),
    "numbers": ("1 / (2 - x.abs() - 3) - torch.sub(x, y, alpha=0.25)", [X, X], []),
    "roots": ("torch.rsqrt(x.abs() + 0.1) + torch.sqrt(x.abs()) + torch.reciprocal(y)", [X, X], []),
    "double": ("F.gelu(x) + torch.exp(x) * 0.1", ["torch.randn(6, 37).double()"], []),
    "whole_numbers": ("x * 3 + y", ["torch.randint(0, 9, (4, 5))", "torch.randint(0, 9, (4, 5))"],
                      []),
    "mixed_dtypes": ("x * y", ["torch.randn(4, 5)", "torch.randint(0, 9, (4, 5))"], []),
    "two_results": ("x + y, x - y", [X, X], []),
    "expanded": ("torch.zeros_like(x) + x[:, :1], x + 1", [X], []),
    "batch_norm": ("F.batch_norm(x, self.p0, self.p1, self.p2, self.p3)", ["torch.randn(2, 3, 8)"],
                   ["torch.randn(3)", "torch.rand(3)", "torch.randn(3)", "torch.randn(3)"]),
    "lerp": ("torch.lerp(x, y, 0.3) + torch.addcmul(x, x, y, value=0.5) + torch.addcdiv(x, x, y)",
             [X, X], []),
    "rounding": ("torch.floor(x) + torch.ceil(y) + torch.trunc(x * 3) + torch.sign(y)", [X, X], []),
    "remainders": ("torch.remainder(x, y) + torch.fmod(x, y)", [X, X], []),
    "nan_to_num": ("torch.nan_to_num(x / torch.relu(x), 3.0, 8.0, -8.0)", [X], []),
    "activations": (
        "F.leaky_relu(x, 0.1) + F.elu(x, 0.7) + F.selu(y) + F.celu(y, 1.3) + F.hardsigmoid(x) "
        "+ F.softsign(y) + F.relu6(4 * x) + F.hardtanh(y, -0.3, 0.4) + F.logsigmoid(x)", [X, X], []
    ),
    "more_activations": (
        "F.gelu(x) + F.gelu(y, approximate='tanh') + F.silu(x) + F.mish(y) + torch.tanh(x) "
        "+ torch.sigmoid(y) + F.softplus(x, 2.0, 3.0) + F.tanhshrink(x) + F.hardshrink(x, 0.4) "
        "+ F.softshrink(y, 0.3) + F.threshold(x, 0.1, 20.0)", [X, X], []
    ),
    "functions": (
        "torch.exp(x) + torch.expm1(y) + torch.log(x.abs()) + torch.log1p(y.abs()) + torch.erf(x) "
        "+ torch.exp2(y) + torch.log2(x.abs()) + torch.log10(y.abs()) + torch.sin(x) "
        "+ torch.cos(y) + torch.erfc(x) + torch.atan(torch.sinh(y))", [X, X], []
    ),
    "one_column": ("torch.softmax(x, -1) + x.sum(-1, keepdim=True)", ["torch.randn(6, 1)"], []),
    "prelu": ("F.prelu(x, self.p0)", ["torch.randn(2, 3, 8)"], ["torch.rand(3)"]),
}  # fmt: skip
ROWS = {
    "softmax": ("torch.softmax(x, -1)", ["torch.randn(2, 3, 37)"], []),
    "log_softmax": ("torch.log_softmax(x, 1)", [X], []),
    "masked_softmax": ("torch.softmax((x * 0.3).masked_fill(y, -torch.inf), -1)",
                       ["torch.randn(2, 3, 4, 19)", "torch.rand(2, 1, 4, 19) > 0.7"], []),
    "logsumexp": ("torch.logsumexp(x, -1, keepdim=True)", [X], []),
    "layer_norm": ("F.layer_norm(x + y, (37,), self.p0, self.p1)", [X, X],
                   ["torch.randn(37)", "torch.randn(37)"]),
    "layer_norm_2d": ("F.layer_norm(x, (4, 9), self.p0)", ["torch.randn(5, 4, 9)"],
                      ["torch.randn(4, 9)"]),
    "rms_norm": ("(F.rms_norm(x + y, (37,), self.p0, 1e-5), x + y)", [X, X], ["torch.randn(37)"]),
    "written_rms": ("x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.p0", [X],
                    ["torch.randn(37)"]),
    "normalize": ("F.normalize(x, dim=-1)", ["torch.randn(2, 3, 8)"], []),
    "norms": ("x.norm(1, -1) + x.norm(float('inf'), -1) + x.norm(dim=-1)", [X], []),
    "variance": ("x.var(-1) + x.std(-1, correction=0) + torch.var_mean(x, -1)[1]", [X], []),
    "reductions": ("x.sum(-1) + x.mean(-1) - x.amax(-1) * x.amin(-1) + x.max(-1).values", [X], []),
    "reduced_twice": ("x.sum((1, 2)) + y", ["torch.randn(4, 3, 5)", "torch.randn(4)"], []),
    "prod": ("(x + 1.5).prod(-1)", ["torch.rand(5, 9)"], []),
    "any_all": ("(x > 2).any(-1) | (x < 3).all(-1)", [X], []),
    "cumsum": ("torch.cumsum(x * 2, -1) + 1", [X], []),
    "cumprod": ("torch.cumprod(x + 1, -1)", ["torch.rand(5, 29)"], []),
    "cummax": ("torch.cummax(x, -1).values - torch.cummin(x, -1).values", [X], []),
    "scan_then_norm": ("F.layer_norm(torch.cumsum(x, -1), (37,))", [X], []),
    "cross_entropy": ("F.cross_entropy(x, y)", [X, "torch.randint(0, 37, (6,))"], []),
    "ignored": ("F.cross_entropy(x, torch.where(y > 20, -100, y))",
                [X, "torch.randint(0, 37, (6,))"], []),
    "weighted": ("F.cross_entropy(x, y, weight=self.p0, reduction='none')",
                 [X, "torch.randint(0, 37, (6,))"], ["torch.rand(37)"]),
    "weighted_mean": ("F.cross_entropy(x, y, weight=self.p0)", [X, "torch.randint(0, 37, (6,))"],
                      ["torch.rand(37)"]),
    "smoothed": ("F.cross_entropy(x, y, label_smoothing=0.1)", [X, "torch.randint(0, 37, (6,))"],
                 []),
    "soft_targets": ("F.cross_entropy(x, torch.softmax(y, -1))", [X, X], []),
    "nll": ("F.nll_loss(torch.log_softmax(x, -1), y, reduction='sum')",
            [X, "torch.randint(0, 37, (6,))"], []),
    "plain_nll": ("F.nll_loss(x, y)", [X, "torch.randint(0, 37, (6,))"], []),
    "kl_div": ("F.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1), reduction='batchmean')",
               [X, X], []),
    "instance_norm": ("F.group_norm(x, 3)", ["torch.randn(2, 6, 4, 5)"], []),
    "affine_instance_norm": (
        "F.instance_norm(x, weight=self.p0, bias=self.p1)",
        ["torch.randn(2, 3, 4, 5)"],
        ["torch.randn(3)", "torch.randn(3)"],
    ),
    "cosine": ("F.cosine_similarity(x, y, -1)", [X, X], []),
    "triplet": ("F.triplet_margin_loss(x, y, x * 0.5 + y * 2)", [X, X], []),
    "head_norm": ("F.rms_norm(x.view(2, 3, 4, 8), (8,)).reshape(2, 3, 32)",
                  ["torch.randn(2, 3, 32)"], []),
    "row_operand": ("torch.softmax(x / y, -1) * y", [X, "torch.rand(6, 1) + 0.5"], []),
    "batch_operand": ("(x * y).sum(-1)", ["torch.randn(3, 4, 8)", "torch.randn(3, 1, 8)"], []),
    "total_of_rows": ("(x - self.p0).square().mean()", [X], ["torch.randn(37)"]),
    "row_mean_total": ("torch.logsumexp(x, -1).mean()", [X], []),
    "row_backwards": ("x.flip(-1).cumsum(-1).flip(-1) * y", [X, X], []),
    "row_exclusive": ("torch.cat((torch.zeros_like(x[:, :1]), x), 1)[:-1].cumsum(1)", [X], []),

    "half_targets": ("x.narrow(1, 0, 18).softmax(-1) * x.narrow(1, 18, 18)", [X], []),
}  # fmt: skip
FLAT = {
    "mse": ("((x - y) ** 2).mean()", [X, X], []),
    "mse_loss": ("F.mse_loss(x, y, reduction='sum')", [X, X], []),
    "huber": ("F.huber_loss(x, y, delta=0.5) + F.smooth_l1_loss(x, y, beta=0.3)", [X, X], []),
    "l1": ("F.l1_loss(x, y)", [X, X], []),
    "bce": ("F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(y))", [X, X], []),
    "bce_logits": ("F.binary_cross_entropy_with_logits(x, torch.sigmoid(y))", [X, X], []),
    "total_norm": ("x / x.norm()", [X], []),
    "one_row": ("torch.softmax(x, 0)", ["torch.randn(77)"], []),
    "one_row_scan": ("torch.cumsum(x, 0)", ["torch.randn(77)"], []),
}  # fmt: skip
WINDOWS = {
    "max_pool": ("F.max_pool2d(x * self.p0, 3, 2, 1)", ["torch.randn(2, 3, 9, 10)"],
                 ["torch.randn(3, 1, 1)"]),
    "avg_pool": ("F.avg_pool1d(x, 5, 3, 2)", ["torch.randn(2, 3, 25)"], []),
    "counted_pool": ("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)",
                     ["torch.randn(2, 3, 8, 9)"], []),
    "deep_pool": ("F.max_pool3d(x, 2, 2, 1, 2)", ["torch.randn(2, 3, 6, 7, 8)"], []),
}  # fmt: skip
PLACES = {"row_places": ("x.argmax(-1), x.min(-1, keepdim=True).indices", [X], [])}
PLANES = {
    "group_norm": ("F.group_norm(x, 2, self.p0, self.p1)", ["torch.randn(3, 8, 5)"],
                   ["torch.randn(8)", "torch.randn(8)"]),
    "batch_statistics": ("F.batch_norm(x, None, None, self.p0, self.p1, training=True)",
                         ["torch.randn(4, 3, 5, 2)"], ["torch.randn(3)", "torch.randn(3)"]),
    "outer_and_inner": ("x.sum((0, 2)) * 2", ["torch.randn(4, 3, 5)"], []),
    "padded": ("F.pad(x, (1, 2, 1, 0)).amax((0, 2))", ["torch.randn(3, 4, 5)"], []),
}  # fmt: skip
COLUMNS = {
    "column_sum": ("x.sum(0)", [X], []),
    "two_axes": ("x.mean((0, 1)) + y", ["torch.randn(3, 4, 5)", "torch.randn(5)"], []),
    "middle_softmax": ("torch.softmax(x * self.p0, 1)", ["torch.randn(2, 3, 4, 5)"],
                       ["torch.randn(3, 1, 1)"]),
    "column_std": ("x.std(1), x.var(1, correction=0, keepdim=True)", ["torch.randn(3, 7, 5)"], []),
    "channel_normalize": ("F.normalize(x, dim=1) * y", ["torch.randn(3, 7, 5)"] * 2, []),
    "column_logsumexp": ("torch.logsumexp(x, 0)", [X], []),
    "column_scan": ("torch.cumsum(x, 0) * 2, torch.cumprod(x, 0)", [X], []),
    "column_places": ("x.argmax(0), x.max(0).values", [X], []),
    "backwards": ("x.flip(1).cumsum(1).flip(1) + x", ["torch.randn(3, 7, 5)"], []),
    "exclusive": ("torch.cat((torch.zeros_like(x[:1]), x), 0)[:-1].cumsum(0)", [X], []),
    "column_loss": ("F.cosine_similarity(x, y, 1).mean()", ["torch.randn(3, 7, 5)"] * 2, []),
    "transposed": ("x.transpose(0, 1).sum(-1)", [X], []),
}  # fmt: skip
CASES = {**POINTWISE, **ROWS, **FLAT}
OTHER_AXES = {**PLACES, **PLANES, **COLUMNS, **WINDOWS}

TASK = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for number, parameter in enumerate(({parameters})):
            self.register_buffer(f"p{{number}}", parameter)

    def forward(self, {names}):
        return {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


class Case(NamedTuple):
    """A captured reference with one set of inputs."""

    graph: OpGraph
    module: torch.nn.Module
    inputs: list[torch.Tensor]

    def expected(self, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, ...]:
        module, inputs = self.module, self.inputs
        if dtype is not None:
            module = module.to(dtype)
            inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        result = module(*inputs)
        return result if isinstance(result, tuple) else (result,)

    def operands(self, program: Program) -> list[torch.Tensor]:
        """The sources' tensors, in order."""
        state = {**dict(self.module.named_buffers()), **dict(self.module.named_parameters())}
        return [
            self.inputs[int(s.key)] if s.kind == "input" else state[s.key] for s in program.sources
        ]


def made(folder: Path, body: str, inputs: list[str], held: list[str]) -> Case:
    names = ", ".join("xyz"[: len(inputs)])
    path = folder / "task.py"
    path.write_text(
        TASK.format(
            parameters="".join(f"{p}, " for p in held),
            names=names,
            body=body,
            inputs=", ".join(inputs),
        )
    )
    reference = Task.load(path).program()
    graph = capture(reference)
    return Case(graph, reference.build(seed=1), reference.make_inputs(seed=2))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    every = {**CASES, **OTHER_AXES}
    return {name: made(tmp_path_factory.mktemp(name), *case) for name, case in every.items()}


@pytest.fixture(scope="module")
def kernels(
    cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CppModule]:
    """Every case in both forms, in one file because one compiler start serves all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOKERNEL_HOME", str(tmp_path_factory.mktemp("home")))
        body = ""
        for name in CASES:
            program = lower(cases[name].graph)
            forms: tuple[emit.Form, ...] = ("scalar",)
            if vector_problem(program) is None:
                forms = ("scalar", "vector")
            body += "".join(written(program, f"{name}_{form}", form) for form in forms)
        yield cpp_module(f'{preamble(body)}\nextern "C" {{\n{body}}}\n', flags=("-O1",))


def written(program: Program, name: str, form: emit.Form) -> str:
    """The plainest loops around what `emit` writes: rows, sweeps, a step, a rest."""
    lines = [f"void {name}({', '.join(p.declaration for p in parameters(program))}) {{"]
    first = [i for i in program.before if program.values[i].level is Level.SCALAR]
    start = emit.at_rest(program, first)
    names = dict(start.names)
    lines += start.lines
    totals = [i for i in program.last if isinstance(program.values[i], Reduce)]
    folds = {i: Fold.of(program, i, "scalar") for i in totals}
    lines += [f"{f.type} {program.values[i].name} = {f.identity};" for i, f in folds.items()]
    lines.append(f"for (int64_t r = 0; r < {program.domain.rows}; ++r) {{")
    lines += pointers(program)
    block = emit.at_rest(program, program.before, known=names)
    lines += block.lines
    inner = dict(block.names)
    for sweep in program.passes:
        lines += swept(program, sweep, form)
        inner.update({i: program.values[i].name for i in sweep.reductions})
        block = emit.at_rest(program, sweep.after, known=inner)
        lines += block.lines
        inner.update(block.names)
    lines += stores(program, Level.ROW, "r")
    for i, fold in folds.items():
        lines.append(fold.step(program.values[i].name, inner_name(program, i)))
    if not program.domain.outer:
        lines += stores(program, Level.SCALAR, "0")
    lines.append("}")
    if program.domain.outer:
        rest = [i for i in program.last if i not in totals]
        lines += emit.at_rest(program, rest, known=names).lines
        lines += stores(program, Level.SCALAR, "0")
    return "\n".join([*lines, "}", ""])


def inner_name(program: Program, reduction: int) -> str:
    value = program.values[reduction]
    assert isinstance(value, Reduce)
    return program.values[value.arg].name


def stores(program: Program, level: Level, place: str) -> list[str]:
    return [
        f"{o.name}[{place}] = {program.values[o.value].name};"
        for o in program.outputs
        if program.values[o.value].level is level
    ]


def swept(program: Program, sweep: Pass, form: emit.Form) -> list[str]:
    reductions, outputs = sweep.reductions, sweep.outputs
    folds = {i: Fold.of(program, i, form) for i in reductions}
    lines = [f"{f.type} acc{i}_ = {f.identity};" for i, f in folds.items()]
    wanted = [emit_arg(program, i) for i in reductions]
    wanted += [program.outputs[n].value for n in outputs]

    def step(count: str) -> list[str]:
        block = emit.elements(program, wanted, form, count=count)
        text = list(block.lines)
        for i, fold in folds.items():
            text.append(fold.step(f"acc{i}_", block.names[emit_arg(program, i)], count))
        for n in outputs:
            value = block.names[program.outputs[n].value]
            step = (program.outputs[n].walk or program.domain.in_order).step
            target = emit.place(output_row(program, n), "c", step)
            text.append(emit.store(form, target, value, count, step=step))
        return text

    cols = program.domain.cols
    lines += ["{", *carries(program, sweep.scans), "int64_t c = 0;"]
    width = "LANES" if form == "vector" else "1"
    lines += [f"for (; c + {width} <= {cols}; c += {width}) {{", *step(""), "}"]
    if form == "vector":
        lines += [f"if (const int64_t n = {cols} - c; n > 0) {{", *step("n"), "}"]
    lines.append("}")
    for i, fold in folds.items():
        lines.append(f"const auto {program.values[i].name} = {fold.finish(f'acc{i}_')};")
    return lines


def emit_arg(program: Program, reduction: int) -> int:
    value = program.values[reduction]
    assert isinstance(value, Reduce)
    return value.arg


def evaluate(program: Program, operands: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the program means, every value as a [rows, lines, cols] tensor in double precision."""
    values: list[torch.Tensor] = []
    for value in program.values:
        values.append(meaning(program, value, values, operands))
    results = []
    for output in program.outputs:
        level, found = program.values[output.value].level, values[output.value]
        if level is Level.ELEMENT:
            result = torch.empty(program.domain.size, dtype=found.dtype)
            result[places(program, output.walk or program.domain.in_order)] = found
        elif level is Level.ROW:
            result = found[:, 0] if program.domain.across else found[:, 0, 0]
        else:
            result = found[0, 0, 0]
        results.append(result.reshape(output.shape))
    return results


def places(program: Program, walk: Walk) -> torch.Tensor:
    """The number that a walk gives at each row, line and column."""
    domain = program.domain

    def along(sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
        count = below = math.prod(sizes)
        found = torch.zeros(count, dtype=torch.int64)
        for size, stride in zip(sizes, strides, strict=True):
            below //= size
            found += torch.arange(count) // below % size * stride
        return found

    rows, lines = along(domain.outer, walk.strides), along(domain.depth, walk.depth)
    columns = walk.offset + torch.arange(domain.cols) * walk.step
    return rows[:, None, None] + lines[:, None] + columns


def loaded(program: Program, access: Access, flat: torch.Tensor) -> torch.Tensor:
    index = places(program, access).clamp(0, flat.numel() - 1)  # pools never use what is beyond
    inside = torch.ones_like(index, dtype=torch.bool)
    for guard in access.guards:
        place = places(program, guard.walk)
        inside &= (place >= 0) & (place < guard.size)
    return flat[index].masked_fill(~inside, 0)


UNARY: dict[str, Any] = {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "softplus": lambda x: F.softplus(x, threshold=1e9),
    "not": torch.logical_not,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
    "clamp_min": torch.maximum,
    "clamp_max": torch.minimum,
    "copy": lambda x: x,
}


def meaning(
    program: Program, value: Value, values: list[torch.Tensor], operands: list[torch.Tensor]
) -> torch.Tensor:
    domain = program.domain
    shape = (domain.rows, domain.lines, domain.cols)
    match value:
        case Constant():
            dtype = getattr(torch, value.dtype)
            wide = torch.float64 if dtype == torch.float32 else dtype
            return torch.full(shape, value.number, dtype=wide)
        case Load():
            return loaded(program, value.access, operands[value.access.source].reshape(-1))
        case Pick():
            flat = operands[value.access.source].reshape(-1)
            column = values[value.index]
            first = places(program, value.access)[..., :1]
            return flat[first + torch.where((column >= 0) & (column < domain.cols), column, 0)]
        case Map(op="cast"):
            (arg,) = (values[a] for a in value.args)
            wide = "float64" if value.dtype == "float32" else value.dtype
            return arg.to(getattr(torch, wide))
        case Map():
            function = UNARY.get(value.op) or getattr(torch, value.op)
            return function(*(values[a] for a in value.args))
        case Reduce():
            arg = values[value.arg]
            for guard in value.guards:
                place = places(program, guard.walk)
                neutral = -math.inf if value.op == "max" else 0
                arg = arg.masked_fill((place < 0) | (place >= guard.size), neutral)
            if program.values[value.arg].level is Level.ELEMENT:
                inner = arg.transpose(1, 2) if domain.across else arg.flatten(1)[:, None]
                return reduced(value.op, inner, 2).transpose(1, 2).expand(shape)
            return reduced(
                value.op, arg[:, :1, : None if domain.across else 1].flatten(), 0
            ).expand(shape)
        case Scan():
            axis = 1 if domain.across else 2
            scan = getattr(torch, f"cum{value.op}")(values[value.arg], axis)
            return scan if isinstance(scan, torch.Tensor) else scan.values
    raise AssertionError(value)


def reduced(op: str, x: torch.Tensor, axis: int) -> torch.Tensor:
    name = {"max": "amax", "min": "amin", "fmax": "amax", "fmin": "amin"}.get(op, op)
    result: torch.Tensor = getattr(torch, name)(x, axis, keepdim=True)
    return result


@pytest.mark.parametrize("name", [*CASES, *OTHER_AXES])
def test_a_program_means_its_reference(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    program = lower(case.graph)
    operands = [x.double() if x.dtype == torch.float32 else x for x in case.operands(program)]

    results = evaluate(program, operands)

    for result, expected in zip(results, case.expected(torch.float64), strict=True):
        torch.testing.assert_close(
            result.to(expected.dtype), expected, rtol=2e-7, atol=2e-7, equal_nan=True
        )


@pytest.mark.parametrize("form", ["scalar", "vector"])
@pytest.mark.parametrize("name", CASES)
def test_its_kernel_computes_the_same(
    name: str, form: emit.Form, cases: dict[str, Case], kernels: CppModule
) -> None:
    case = cases[name]
    program = lower(case.graph)
    if form == "vector" and vector_problem(program):
        pytest.skip(str(vector_problem(program)))
    outputs = [torch.full(o.shape, 7, dtype=getattr(torch, o.dtype)) for o in program.outputs]
    case.module.float()

    getattr(kernels, f"{name}_{form}")(*case.operands(program), *outputs)

    wide = case.expected(torch.float64)
    for output, plan, expected in zip(outputs, program.outputs, wide, strict=True):
        assert plan.dtype == str(output.dtype).removeprefix("torch.")
        torch.testing.assert_close(
            output, expected.to(output.dtype), rtol=2e-5, atol=2e-5, equal_nan=True
        )


SPECIAL = """
softmax log_softmax logsumexp masked_softmax layer_norm reductions norms cumsum cummax
cross_entropy smoothed comparisons clamps activations more_activations functions nan_to_num mse
huber prod roots
"""


@pytest.mark.parametrize("form", ["scalar", "vector"])
@pytest.mark.parametrize("name", SPECIAL.split())
def test_special_values_follow_the_reference(
    name: str, form: emit.Form, cases: dict[str, Case], kernels: CppModule
) -> None:
    case = cases[name]
    case.module.float()
    program = lower(case.graph)
    spoilt = case._replace(inputs=[x.clone() for x in case.inputs])
    x = spoilt.inputs[0].view(-1, spoilt.inputs[0].shape[-1])
    x[0, 0], x[1, 1], x[2, 2], x[3, :], x[4, 0] = (
        torch.nan,
        torch.inf,
        -torch.inf,
        -torch.inf,
        1e-40,
    )
    outputs = [torch.empty(o.shape, dtype=getattr(torch, o.dtype)) for o in program.outputs]

    getattr(kernels, f"{name}_{form}")(*spoilt.operands(program), *outputs)

    for output, expected in zip(outputs, spoilt.expected(torch.float64), strict=True):
        torch.testing.assert_close(
            output, expected.to(output.dtype), rtol=1e-4, atol=1e-4, equal_nan=True
        )


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (POINTWISE, "pointwise"),
        (ROWS, "rows"),
        (FLAT, "flat"),
        (PLANES, "planes"),
        (COLUMNS, "columns"),
        (WINDOWS, "windows"),
    ],
)
def test_kinds(names: dict[str, Any], kind: str, cases: dict[str, Case]) -> None:
    assert {lower(cases[name].graph).kind for name in names} == {kind}
