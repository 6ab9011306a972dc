"""Contractions and other graphs in stages: every form is written right, whatever is chosen."""

import re
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from evokernel.jit import CppModule, cpp_module
from evokernel.opgraph import capture
from evokernel.proposers.techniques import catalogue
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program, Unsupported
from evokernel.proposers.templates.header import preamble
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

TASK = """
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(8, 21)
        self.back = nn.Linear(21, 8, bias=False)
        self.norm = nn.LayerNorm(8)
        self.conv = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
        self.point = nn.Conv2d(4, 6, 1)
        self.each = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.apart = nn.Conv2d(6, 6, 3, stride=2, dilation=2, groups=6, bias=False)
        self.up = nn.ConvTranspose2d(3, 5, (3, 2), padding=1, dilation=2)
        self.line = nn.Conv1d(4, 6, 3, padding="same", dilation=2, bias=False)

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]
"""

HEADS = "2, 3, 7, 8"
CASES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "square": ("x @ y", ("70, 140", "140, 265"), "contraction"),
    "thin": ("x @ y", ("2, 70", "70, 37"), "contraction"),
    "one_step": ("x @ y", ("9, 1", "1, 40"), "contraction"),
    "left_transposed": ("x.T @ y + 1", ("19, 10", "19, 17"), "contraction"),
    "with_itself": ("x @ x.T", ("20, 30",), "contraction"),
    "sliced": ("x[:, 2:9] @ y[::2]", ("9, 12", "14, 20"), "contraction"),
    "linear": ("F.gelu(self.wide(x)) * y", ("2, 5, 8", "21"), "contraction"),
    "residual": ("y + 0.5 * (x @ y).tanh()", ("16, 16", "16, 16"), "contraction"),
    "addmm": ("torch.addmm(y, x, x.T, beta=0.5, alpha=2)", ("9, 8", "9, 9"), "contraction"),
    "stack": ("torch.baddbmm(x, y, y)", ("3, 8, 8", "3, 8, 8"), "contraction"),
    "one_for_all": ("torch.matmul(x, y)", ("8, 12", "2, 3, 12, 9"), "contraction"),
    "row_each": ("x @ y", ("9, 1, 8", "8, 20"), "contraction"),
    "masked": ("torch.where(x @ y > 0, z, x @ y)", ("5, 8", "8, 19", "5, 1"),
               "contraction contraction"),
    "halves": ("x.reshape(2, 4, 2, 4).transpose(1, 2) @ y", ("2, 4, 8", "2, 2, 4, 3"),
               "contraction"),
    "einsum": ("torch.einsum('bik,jk->jbi', x, y)", ("2, 4, 8", "5, 8"), "contraction"),
    "tensordot": ("torch.tensordot(x, y, dims=2)", ("4, 3, 8", "3, 8, 18"), "contraction"),
    "double": ("(x.double() @ y.double()).relu()", ("7, 9", "9, 20"), "fused fused contraction"),
    "point_first": ("F.relu(x) @ y", ("7, 9", "9, 20"), "fused contraction"),
    "softmax_after": ("torch.softmax(x @ y, -1).amax(-1)", ("6, 8", "8, 33"), "contraction fused"),
    "both_results": ("x @ y, (x @ y).sum(-1)", ("6, 8", "8, 33"),
                     "contraction contraction fused"),
    "block": ("x + self.back(F.relu(self.wide(self.norm(x))))", ("2, 5, 8",),
              "fused contraction contraction"),
    "gated": ("(F.silu(x @ y) * (x @ z)) @ y.T", ("5, 8", "8, 19", "8, 19"),
              "contraction contraction contraction"),
    "attention": ("F.scaled_dot_product_attention(x, y, z)", (HEADS,) * 3,
                  "contraction fused contraction"),
    "heads_joined": ("(x @ y).transpose(1, 2).reshape(2, 7, 15) @ z",
                     (HEADS, "2, 3, 8, 5", "15, 4"), "contraction fused contraction"),
    "two_grids": ("torch.softmax(x, -1).mean(0)", ("9, 12",), "fused fused"),
    "conv": ("F.relu(self.conv(x))", ("2, 4, 9, 11",), "contraction"),
    "conv_point": ("self.point(x) + y", ("2, 4, 5, 7", "2, 6, 5, 7"), "contraction"),
    "conv_apart": ("self.apart(x)", ("2, 6, 9, 21",), "contraction"),
    "conv_back": ("self.up(x) + 1", ("2, 3, 6, 9",), "fused contraction"),
    "triangle": ("torch.tril(x.triu(1) @ y, -2)", ("20, 30", "30, 25"),
                 "fused contraction fused"),
    "diagonal": ("torch.diag(x) @ y", ("9", "9, 20"), "fused contraction"),
    "pool_then_sum": ("F.max_pool2d(x, 3, 2, 1).sum()", ("2, 3, 9, 21",), "fused fused"),
    "two_pools": ("F.max_pool2d(x, 2).flatten(1), F.avg_pool2d(x, 3, 1).flatten(1)",
                  ("2, 3, 8, 10",), "fused fused"),
    "attention_masked": ("F.scaled_dot_product_attention(x, x, x, (y > 0) & (z > 0))",
                         (HEADS, "7, 7", "7, 1"), "contraction fused contraction"),
    "attention_added": ("F.scaled_dot_product_attention(x, x, x, y + (z > 0).log())",
                        (HEADS, "7, 7", "7, 1"), "contraction fused contraction"),
    "conv_line": ("self.line(x) * y", ("2, 4, 30", "30"), "contraction"),
}  # fmt: skip

WITHOUT_PRODUCT: dict[str, tuple[str, tuple[str, ...]]] = {
    "matvec": ("torch.mv(x, y) + 1", ("40, 30", "30")),
    "column": ("torch.relu(x @ y)", ("2, 40, 30", "30, 1")),
    "token": ("self.wide(x)", ("1, 8",)),
    "dot": ("torch.dot(x, y)", ("300", "300")),
    "outer": ("torch.outer(x, y)", ("8", "5")),
    "by_channel": ("F.relu(self.each(x))", ("2, 6, 9, 21",)),
}
"""Products with a vector are sums along rows; windows of single channels are sums of terms."""


class Case(NamedTuple):
    """A captured reference with the plans to try."""

    template: Template
    module: torch.nn.Module
    exact: torch.nn.Module
    inputs: list[torch.Tensor]
    plans: list[Plan]


def made(name: str, body: str, shapes: tuple[str, ...]) -> Case:
    inputs = ", ".join(f"torch.randn({shape})" for shape in shapes)
    text = TASK.format(names=", ".join("xyz"[: len(shapes)]), body=body, inputs=inputs)
    task = Task.from_source(text, name=name)
    reference = task.program()
    template = Template(task, capture(reference))
    module, exact = reference.build(seed=1), reference.build(seed=1, dtype=torch.float64)
    return Case(template, module, exact, reference.make_inputs(seed=2), list(spanning(template)))


BEST = {"form": "vector", "tile": "6x2", "left": "block", "right": "whole"}
OTHERS = (
    {"depth": 5, "rows": 8, "cols": 16, "schedule": 1},
    {**BEST, "left": "whole", "right": "block", "steps": 2, "fetch": 8, "threads": "half"},
    {**BEST, "depth": 5, "rows": 8, "cols": 16, "left": "none", "right": "none"},
    {**BEST, "tile": "8x1", "depth": 3, "rows": 16, "cols": 8, "functions": "short"},
)
"""Wishes that go beyond what a small product offers: what is not offered becomes plain."""


def spanning(template: Template) -> Iterator[Plan]:
    """The plain plan, one that is usually best, sometimes another; once each value of each choice.

    Compilers take their time: not every case is for every plan.
    """
    number = list(CASES).index(template.task.name) if template.task.name in CASES else 1
    wishes: list[dict[str, str | int]] = [{}, dict(BEST)]
    if number % 2 == 0:
        wishes.append(dict(OTHERS[number // 2 % len(OTHERS)]))
    if template.task.name == "square":
        for choice in template.space.choices:
            wishes += [{"form": "vector", choice.name: value} for value in choice.values]
    seen: list[Plan] = []
    for wish in wishes:
        plan = template.space.settle(wish)
        if plan not in seen:
            seen.append(plan)
            yield plan


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    found = {name: made(name, body, shapes) for name, (body, shapes, _) in CASES.items()}
    return found | {name: made(name, *case) for name, case in WITHOUT_PRODUCT.items()}


def written(case: Case) -> list[Kernel]:
    return [case.template.kernel(plan) for plan in case.plans]


@pytest.fixture(scope="module")
def kernels(
    cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, CppModule]]:
    """Every plan of every case, in two files because two compilers run at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOKERNEL_HOME", str(tmp_path_factory.mktemp("home")))
        names = sorted(cases)
        shares = (names[::2], names[1::2])
        with ThreadPoolExecutor(2) as pool:
            built = list(pool.map(together, [{n: cases[n] for n in share} for share in shares]))
        yield {name: module for share, module in zip(shares, built, strict=True) for name in share}


FIRST_LINE = r'^(namespace \{\n\n(constexpr int64_t TILE|void )|extern "C")'
"""Where a kernel begins behind what is copied from the header."""


def together(cases: dict[str, Case]) -> CppModule:
    bodies = []
    for name, case in cases.items():
        for number, kernel in enumerate(written(case)):
            start = re.search(FIRST_LINE, kernel.source, re.MULTILINE)
            assert start
            body = kernel.source[start.start() :].replace(kernel.function, f"{name}_{number}")
            bodies.append(f"namespace of_{name}_{number} {{\n{body}\n}}\n")
    body = "\n".join(bodies)
    return cpp_module(f"{preamble(body)}\n{body}", flags=("-O0",))


def variants(inputs: list[torch.Tensor]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    yield "normal", inputs
    yield "large", [x * 1000 for x in inputs]
    yield "whole numbers", [x.round() for x in inputs]
    yield "nan", [x.index_fill(-1, torch.tensor([0]), float("nan")) for x in inputs]
    yield "inf", [x.index_fill(0, torch.tensor([0]), float("inf")) for x in inputs]


def tensors(result: object) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)  # type: ignore[call-overload]


def assert_close(got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, label: str) -> None:
    """As near to fp64 as 20 times what torch's own kernel errs, or 64 units in the last place."""
    assert got.dtype == own.dtype, label
    assert got.shape == own.shape, label
    finite, special = own.isfinite() & exact.isfinite(), ~(own.isfinite() | exact.isfinite())
    assert not got[special].isfinite().any(), label
    assert got[finite].isfinite().all(), label
    got, own, exact = got[finite].double(), own[finite].double(), exact[finite].double()
    if got.numel():
        scale = exact.abs() + exact.abs().mean()
        limit = 20 * (own - exact).abs().max() + 64 * torch.finfo(torch.float32).eps * scale
        assert ((got - exact).abs() <= limit).all(), f"{label}: {(got - exact).abs().max()}"


@pytest.mark.parametrize("name", [*CASES, *WITHOUT_PRODUCT])
def test_every_form_gives_the_reference_values(
    name: str, cases: dict[str, Case], kernels: dict[str, CppModule]
) -> None:
    case = cases[name]
    program, state = case.template.program, dict(case.module.state_dict())
    sizes = {"rows": program.domain.rows, "cols": program.domain.cols}
    for family, inputs in variants(case.inputs):
        sizes["threads"] = 2 if family == "normal" else 1
        with torch.no_grad():
            own = tensors(case.module(*inputs))
            with sdpa_kernel(SDPBackend.MATH):  # fused, a row of NaN may count as masked
                exact = tensors(case.exact(*(x.double() for x in inputs)))
        operands = [
            inputs[int(s.key)] if s.kind == "input" else state[s.key] for s in program.sources
        ]
        for number, (plan, kernel) in enumerate(zip(case.plans, written(case), strict=True)):
            outputs = [
                torch.full(o.shape, -77, dtype=getattr(torch, o.dtype)) for o in program.outputs
            ]
            arguments = [*operands, *outputs, *(sizes[size] for size in kernel.sizes)]
            getattr(kernels[name], f"{name}_{number}")(*arguments)
            for got, mine, true in zip(outputs, own, exact, strict=True):
                assert_close(got, mine, true, f"{family}: {plan.choices}")


@pytest.mark.parametrize("name", CASES)
def test_graphs_are_cut_into_stages(name: str, cases: dict[str, Case]) -> None:
    program = cases[name].template.program
    assert isinstance(program, Pipeline)
    assert " ".join(stage.kind for stage in program.stages) == CASES[name][2]


@pytest.mark.parametrize("name", WITHOUT_PRODUCT)
def test_what_needs_no_product_is_one_program(name: str, cases: dict[str, Case]) -> None:
    assert isinstance(cases[name].template.program, Program)


def test_every_option_of_every_choice_is_tried(cases: dict[str, Case]) -> None:
    case = cases["square"]
    tried = {(c, v) for plan in case.plans for c, v in plan.choices.items()}
    assert tried == {(c.name, v) for c in case.template.space.choices for v in c.values}


def test_techniques_are_those_of_the_catalogue(cases: dict[str, Case]) -> None:
    applied = {
        technique
        for case in cases.values()
        for plan in case.plans
        for technique in case.template.space.techniques(plan)
    }
    assert applied <= set(catalogue())
    assert applied >= {"register-tiling", "panel-packing", "cache-blocking", "output-blocking"}


def test_other_choices_are_other_sources(cases: dict[str, Case]) -> None:
    case = cases["square"]
    assert len({kernel.source for kernel in written(case)}) == len(case.plans)


def test_matrices_that_share_the_right_one_are_rows_of_one_product(cases: dict[str, Case]) -> None:
    program = cases["row_each"].template.program
    assert isinstance(program, Pipeline)
    assert [(stage.batch, stage.rows) for stage in program.contractions] == [((), 9)]


def test_no_block_is_too_large_for_a_thread_to_pack() -> None:
    body = "F.conv2d(x, y, padding=1)"
    sizes = {}
    for side in (64, 224):
        case = made("image", body, (f"1, 64, {side}, {side}", "8, 64, 3, 3"))
        choices = {choice.name: choice.values for choice in case.template.space.choices}
        sizes[side] = choices["cols"]
    assert 0 in sizes[64]
    assert 0 not in sizes[224]
    assert {64, 1024} <= set(sizes[224])


@pytest.fixture(scope="module")
def candidate(cases: dict[str, Case], kernels: dict[str, CppModule]) -> torch.nn.Module:
    """A candidate of the residual block, as it is handed over, with the reference's weights."""
    case = cases["block"]
    source = case.template.source(case.template.space.settle(BEST))
    module = types.ModuleType("block")
    exec(compile(source, "block.py", "exec"), module.__dict__)
    made = module.ModelNew()
    made.load_state_dict(case.module.state_dict())
    return made  # type: ignore[no-any-return]


def test_a_candidate_takes_any_number_of_rows(
    candidate: torch.nn.Module, cases: dict[str, Case]
) -> None:
    for rows in (0, 1, 2, 9):
        x = torch.randn(rows, 5, 8)
        torch.testing.assert_close(candidate(x), cases["block"].module(x))


def test_a_candidate_takes_inputs_that_are_not_contiguous_and_refuses_other_shapes(
    candidate: torch.nn.Module, cases: dict[str, Case]
) -> None:
    x = torch.randn(8, 5, 2).permute(2, 1, 0)
    torch.testing.assert_close(candidate(x), cases["block"].module(x))
    with pytest.raises(ValueError, match="`x` must be"):
        candidate(torch.randn(2, 6, 8))


def test_rows_are_free_where_nothing_else_depends_on_them(cases: dict[str, Case]) -> None:
    free = {n for n in CASES if getattr(cases[n].template.program, "moving", None)}
    fixed = {"left_transposed", "with_itself", "addmm", "tensordot", "einsum", "one_for_all"}
    assert free >= {"square", "linear", "block", "conv", "attention", "softmax_after"}
    assert not free & fixed


@pytest.mark.parametrize(
    ("body", "shapes", "word"),
    [
        ("torch.einsum('ij,jk,kl->il', x, x, x)", ("4, 4",), "einsum"),
        ("torch.einsum('bij,bjk->bik', x, y)", ("1, 4, 5", "3, 5, 6"), "einsum"),
        ("torch.einsum('bij,bjk->bik', x, y)", ("3, 4, 5", "3, 1, 6"), "einsum"),
        ("torch.linalg.inv(x) @ x", ("4, 4",), "inv"),
        ("x.long() @ x.long()", ("4, 4",), "matmul"),
        ("F.conv_transpose2d(x, y, stride=2)", ("1, 2, 5, 5", "2, 3, 3, 3"), "conv_transpose2d"),
    ],
)
def test_what_has_no_template_is_named(body: str, shapes: tuple[str, ...], word: str) -> None:
    with pytest.raises(Unsupported, match=f"`{word}|{word}`"):
        made("odd", body, shapes)
