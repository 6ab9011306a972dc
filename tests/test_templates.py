"""Every choice of every template gives a right kernel, and candidates stand for their task."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from evokernel.jit import CppModule, cpp_module
from evokernel.opgraph import capture
from evokernel.proposers.techniques import catalogue
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.header import preamble
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

TASK = """
import torch
from torch import nn
from torch.nn import functional as F

SIZE = 3
INPUTS = 2 * SIZE


class Model(nn.Module):
    def __init__(self, start):
        super().__init__()
        for number, parameter in enumerate(({parameters})):
            self.register_buffer(f"p{{number}}", parameter)
        self.start = start

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [SIZE]
"""

X = "torch.randn(6, 37)"
LONG = "torch.randn(3, 4500)"
LABELS = "torch.where(torch.arange(7) == 5, -100, torch.randint(0, 50, (7,)))"
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "swiglu": ("F.silu(x) * y", ["torch.randn(5, 4001)"] * 2, []),
    "bias_gelu": ("F.gelu(x + self.p0)", ["torch.randn(7, 48)"], ["torch.randn(48)"]),
    "broadcast": ("torch.where(y, x * self.p0, -x), x > self.p0",
                  ["torch.randn(2, 3, 4, 35)", "torch.rand(2, 1, 4, 35) > 0.5"],
                  ["torch.randn(3, 1, 1)"]),
    "wide_bias": ("torch.sigmoid(x) + self.p0", ["torch.randn(3, 5000)"], ["torch.randn(5000)"]),
    "double": ("torch.exp(x) + y", ["torch.randn(6, 37).double()"] * 2, []),
    "softmax": ("torch.softmax(x * 1.5, -1)", [X], []),
    "even_softmax": ("torch.softmax(x, -1)", ["torch.randn(2, 4, 128)"], []),
    "long_softmax": ("torch.log_softmax(x, -1)", [LONG], []),
    "one_column": ("torch.softmax(x, -1) + x", ["torch.randn(6, 1)"], []),
    "logsumexp": ("torch.logsumexp(x + self.p0, -1)", [X], ["torch.randn(37)"]),
    "layer_norm": ("F.layer_norm(x + y, (64,), self.p0, self.p1)", ["torch.randn(6, 64)"] * 2,
                   ["torch.randn(64)", "torch.randn(64)"]),
    "odd_norm": ("F.layer_norm(x, (4500,))", [LONG], []),
    "rms_norm": ("[F.rms_norm(x + y, (37,), self.p0, 1e-5), x + y]", [X, X], ["torch.randn(37)"]),
    "cross_entropy": ("F.cross_entropy(x, y)", ["torch.randn(7, 50)", LABELS], []),
    "cumsum": ("torch.cumsum(x, -1) * 2", [X], []),
    "cumprod": ("torch.cumprod(x, -1)", ["torch.tensor([[3e30, 3e30, *[1e-20] * 9] * 4] * 4)"], []),
    "any_all": ("(x > 2).any(-1) | (x < 3).all(-1)", [X], []),
    "few_rows": ("torch.softmax(x, -1)", ["torch.randn(2, 66000)"], []),
    "few_scans": ("torch.cumsum(x, -1)", ["torch.randn(2, 66003)"], []),
    "mse": ("((x - y) ** 2).mean()", ["torch.randn(70, 1000)"] * 2, []),
    "total_norm": ("x / x.norm()", ["torch.randn(6, 3000)"], []),
    "column_sum": ("(x * self.p0).sum(0) + 1", ["torch.randn(37, 45)"], ["torch.randn(37, 1)"]),
    "tall_mean": ("x.mean(0), x.amin(0)", ["torch.randn(2100, 19)"], []),
    "middle_softmax": ("torch.softmax(x * 0.5 + y, 1)",
                       ["torch.randn(2, 19, 3, 11)", "torch.randn(2, 19, 3, 11)"], []),
    "channel_norm": ("x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * self.p0",
                     ["torch.randn(3, 12, 5, 16)"], ["torch.randn(12, 1, 1)"]),
    "column_scans": ("torch.cumsum(x, 1).abs(), torch.cummax(x, 1).values",
                     ["torch.randn(3, 9, 21)"], []),
    "wide_columns": ("F.normalize(x, dim=1)", ["torch.randn(2, 3, 5000)"], []),
    "places": ("x.argmax(1), x.min(1).indices, x.max(1).values", ["torch.randn(3, 9, 21)"], []),
    "row_places": ("x.argmax(-1), x.argmin(-1) + y", [X, "torch.arange(6)"], []),
    "column_loss": ("F.cosine_similarity(x, y, 1).mean()", ["torch.randn(5, 7, 33)"] * 2, []),
    "group_norm": ("F.relu(F.group_norm(x, 3, self.p0, self.p1))", ["torch.randn(2, 6, 4, 35)"],
                   ["torch.randn(6)", "torch.randn(6)"]),
    "batch_statistics": ("(x - x.mean((0, 2, 3), keepdim=True)) * torch.rsqrt("
                         "x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5) * self.p0",
                         ["torch.randn(4, 3, 8, 16)"], ["torch.randn(3, 1, 1)"]),
    "backwards": ("x.flip(-1).cumsum(-1).flip(-1) * y", [X, X], []),
    "backwards_columns": ("x.flip(1).cumsum(1).flip(1)", ["torch.randn(3, 9, 21)"], []),
    "exclusive": ("torch.cat((torch.zeros_like(x[:, :1]), x), 1)[:, :-1].cumsum(1)", [X], []),
    "any_column": ("(x > 1.5).any(0), (x < 2).all(0)", [X], []),
    "max_pool": ("F.relu(F.max_pool2d(x * 2, 3, 2, 1)) + self.p0", ["torch.randn(2, 3, 21, 23)"],
                 ["torch.randn(3, 1, 1)"]),
    "wide_pool": ("F.max_pool1d(x, 4, 1, 1, 2)", ["torch.randn(2, 3, 83)"], []),
    "even_pool": ("F.avg_pool2d(x, 2)", ["torch.randn(2, 3, 12, 70)"], []),
    "avg_pool": ("F.avg_pool1d(x, 5, 3, 2) * y", ["torch.randn(2, 3, 75)", "torch.randn(2, 3, 25)"],
                 []),
    "counted_pool": ("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)",
                     ["torch.randn(2, 3, 12, 13)"], []),
    "deep_pool": ("F.avg_pool3d(x, 2, 2, 1), F.max_pool3d(x, 2, 2, 1)",
                  ["torch.randn(2, 3, 6, 7, 8)"], []),
    "global_pool": ("F.adaptive_max_pool2d(x, 1) + F.adaptive_avg_pool2d(x, 1)",
                    ["torch.randn(2, 3, 9, 12)"], []),
    "whole_columns": ("x.sum(0) * y.prod(0)", ["torch.randint(0, 9, (7, 12))"] * 2, []),
    "long_scan": ("torch.cumsum(x, 0), torch.cummax(x, 0).values", ["torch.randn(66001)"], []),
}  # fmt: skip


class Case(NamedTuple):
    """A captured reference with the plans to try."""

    template: Template
    module: torch.nn.Module
    inputs: list[torch.Tensor]
    plans: list[Plan]
    kernels: list[Kernel]
    """One per plan."""

    def operands(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        state = dict(self.module.named_buffers())
        sources = self.template.program.sources
        return [inputs[int(s.key)] if s.kind == "input" else state[s.key] for s in sources]


def made(folder: Path, body: str, inputs: list[str], held: list[str]) -> Case:
    path = folder / "made.py"
    text = TASK.format(
        parameters="".join(f"{p}, " for p in held),
        names=", ".join("xyz"[: len(inputs)]),
        body=body,
        inputs=", ".join(inputs),
    )
    path.write_text(text)
    task = Task.load(path)
    reference = task.program()
    template = Template(task, capture(reference))
    plans = list(spanning(template))
    kernels = [template.kernel(plan) for plan in plans]
    return Case(template, reference.build(seed=1), reference.make_inputs(seed=2), plans, kernels)


def spanning(template: Template) -> Iterator[Plan]:
    """Plans that show every value of every choice, few at a time and many together."""
    space = template.space
    vector = {"form": "vector"}
    wishes: list[dict[str, str | int]] = [{}, vector]
    for choice in space.choices:
        for value in choice.values[1:]:
            wishes.append({**vector, choice.name: value})
            wishes.append({**vector, "spread": "columns", "scan": "two-level", choice.name: value})
    wishes.append({choice.name: choice.values[-1] for choice in space.choices})
    seen: list[Plan] = []
    for wish in wishes:
        plan = space.settle(wish)
        if plan not in seen:
            seen.append(plan)
            yield plan


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return {name: made(tmp_path_factory.mktemp(name), *case) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for the whole file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOKERNEL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def kernels(cases: dict[str, Case], home: None) -> CppModule:
    """Every plan of every case, in one file because one start of the compiler serves all."""
    bodies = []
    for name, case in cases.items():
        for number, kernel in enumerate(case.kernels):
            body = kernel.source[kernel.source.index('extern "C"') :]
            bodies.append(body.replace("made_kernel", f"{name}_{number}"))
    body = "\n".join(bodies)
    return cpp_module(f"{preamble(body)}\n{body}", flags=("-O0",))


def variants(inputs: list[torch.Tensor]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """The inputs at other sizes, and with what floats can hold beside numbers."""

    def changed(change: object) -> list[torch.Tensor]:
        return [change(x.clone()) if x.is_floating_point() else x for x in inputs]  # type: ignore[operator]

    yield "normal", inputs
    yield "large", changed(lambda x: x * 40)
    yield "small", changed(lambda x: x * 1e-3)
    yield "far from zero", changed(lambda x: x + 300)
    yield "zeros", changed(lambda x: x * 0)
    for value in (float("nan"), float("inf"), -float("inf")):
        yield str(value), changed(lambda x, v=value: x.index_fill(-1, torch.tensor([0]), v))
    yield "nothing but -inf", changed(lambda x: torch.full_like(x, -float("inf")))


def tensors(result: object) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)  # type: ignore[call-overload]


def follows(got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> bool:
    """Special values as torch gives them, at its precision or in fp64: some processors differ."""
    same = [(got == want) | (got.isnan() & want.isnan()) for want in (own, exact)]
    free = own.isfinite() != exact.isfinite()
    return bool((same[0] | same[1] | free).all())


def assert_close(got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, label: str) -> None:
    """As near to fp64 as 20 times what torch's own kernel errs, or 16 units in the last place."""
    assert got.dtype == own.dtype, label
    assert got.shape == own.shape, label
    if not own.is_floating_point():
        assert torch.equal(got, own), label
        return
    finite = own.isfinite() & exact.isfinite()
    assert follows(got[~finite], own[~finite], exact[~finite]), label
    got, own, exact = got[finite].double(), own[finite].double(), exact[finite]
    if got.numel() == 0:
        return
    scale = exact.abs() + exact.abs().mean()
    eps = torch.finfo(torch.float32).eps
    limit = 20 * (own - exact).abs().max() + 16 * eps * scale
    assert ((got - exact).abs() <= limit).all(), f"{label}: {(got - exact).abs().max()}"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that wait by spinning hold up whoever else runs on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", CASES)
def test_every_choice_gives_the_reference_values(
    name: str, cases: dict[str, Case], kernels: CppModule
) -> None:
    case = cases[name]
    program = case.template.program
    exact_module = case.template.task.program().build(seed=1, dtype=torch.float64)
    sizes = {"rows": program.domain.rows, "cols": program.domain.cols}
    for family, inputs in variants(case.inputs):
        sizes["threads"] = 2 if family == "normal" else 1
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        own, exact = tensors(case.module(*inputs)), tensors(exact_module(*wide))
        for number, (plan, kernel) in enumerate(zip(case.plans, case.kernels, strict=True)):
            outputs = [
                torch.full(o.shape, -77, dtype=getattr(torch, o.dtype)) for o in program.outputs
            ]
            arguments = [*case.operands(inputs), *outputs, *(sizes[s] for s in kernel.sizes)]
            getattr(kernels, f"{name}_{number}")(*arguments)
            for got, mine, true in zip(outputs, own, exact, strict=True):
                assert_close(got, mine, true, f"{family}: {plan.choices}")


def test_every_option_of_every_choice_is_tried(cases: dict[str, Case]) -> None:
    for name, case in cases.items():
        tried = {(c, v) for plan in case.plans for c, v in plan.choices.items()}
        offered = {(c.name, v) for c in case.template.space.choices for v in c.values}
        assert offered == tried, name


def test_every_technique_of_the_catalogue_is_applied_somewhere(cases: dict[str, Case]) -> None:
    applied = {
        technique
        for case in cases.values()
        for plan in case.plans
        for technique in case.template.space.techniques(plan)
    }
    of_products = {"register-tiling", "panel-packing", "cache-blocking", "output-blocking"}
    assert applied | of_products == {t.name for t in catalogue().values() if "cpp" in t.backends}


def test_other_choices_are_other_sources(cases: dict[str, Case]) -> None:
    for name, case in cases.items():
        written = {kernel.source for kernel in case.kernels}
        assert len(written) == len(case.plans), name


STANDING = ("broadcast", "even_softmax", "rms_norm", "cross_entropy", "mse", "middle_softmax")


@pytest.fixture(scope="module")
def candidates(cases: dict[str, Case], home: None) -> dict[str, types.ModuleType]:
    """Candidates as they are handed over, each with its kernel built."""
    wished = {"form": "vector", "unroll": 4, "keep": "dear", "stores": "streaming"}
    chosen = STANDING
    made = {}
    for name in chosen:
        template = cases[name].template
        made[name] = types.ModuleType(name)
        source = template.source(template.space.settle(wished))
        exec(compile(source, f"{name}.py", "exec"), made[name].__dict__)
    return made


def built(case: Case, candidate: types.ModuleType) -> torch.nn.Module:
    module = candidate.ModelNew(3)
    module.load_state_dict(case.module.state_dict(), strict=True)
    return module


@pytest.mark.parametrize("name", STANDING)
def test_a_candidate_stands_for_the_reference(
    name: str, cases: dict[str, Case], candidates: dict[str, types.ModuleType]
) -> None:
    case = cases[name]
    module = built(case, candidates[name])
    own = case.module(*case.inputs)

    got = module(*case.inputs)

    assert type(got) is type(own)
    for mine, theirs in zip(tensors(got), tensors(own), strict=True):
        torch.testing.assert_close(mine, theirs)
    again = module(*case.inputs)
    for first, second in zip(tensors(got), tensors(again), strict=True):
        assert torch.equal(first, second)


def test_a_candidate_takes_any_number_of_rows(
    cases: dict[str, Case], candidates: dict[str, types.ModuleType]
) -> None:
    module = built(cases["even_softmax"], candidates["even_softmax"])
    for rows in (0, 1, 5):
        x = torch.randn(rows, 4, 128)
        torch.testing.assert_close(module(x), torch.softmax(x, -1))


def test_a_candidate_of_columns_takes_any_number_of_rows(
    cases: dict[str, Case], candidates: dict[str, types.ModuleType]
) -> None:
    module = built(cases["middle_softmax"], candidates["middle_softmax"])
    for rows in (0, 1, 5):
        x, y = torch.randn(2, rows, 19, 3, 11)
        torch.testing.assert_close(module(x, y), torch.softmax(x * 0.5 + y, 1))


def test_a_candidate_takes_inputs_that_are_not_contiguous(
    cases: dict[str, Case], candidates: dict[str, types.ModuleType]
) -> None:
    module = built(cases["rms_norm"], candidates["rms_norm"])
    x, y = torch.randn(37, 6).T, torch.randn(6, 74)[:, ::2]
    torch.testing.assert_close(module(x, y), cases["rms_norm"].module(x, y))


@pytest.mark.parametrize(
    ("x", "word"),
    [
        (torch.randn(2, 4, 127), "127"),
        (torch.randn(2, 4, 128, dtype=torch.float64), "float64"),
        (torch.randn(2, 512), "512"),
        (torch.randn(2, 4, 128, device="meta"), "meta"),
    ],
)
def test_a_candidate_refuses_what_it_was_not_verified_for(
    x: torch.Tensor,
    word: str,
    cases: dict[str, Case],
    candidates: dict[str, types.ModuleType],
) -> None:
    module = built(cases["even_softmax"], candidates["even_softmax"])
    with pytest.raises(ValueError, match=word) as refused:
        module(x)
    assert "`x`" in str(refused.value)
    assert "128" in str(refused.value)


def test_a_candidate_says_what_it_is(cases: dict[str, Case]) -> None:
    template = cases["even_softmax"].template
    plan = template.space.settle({"form": "vector", "keep": "dear"})
    source = template.source(plan)
    head = source[: source.index("# The reference")]
    assert "vectorized-math, row-caching" in head
    assert "`x` float32 (*, 4, 128)" in head
    assert "get_inputs" not in source
    assert "INPUTS" not in source
    assert source.count("class Model(nn.Module):") == 1


def made_task(tmp_path: Path, forward: str, inputs: str) -> Template:
    path = tmp_path / "odd.py"
    path.write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n"
        f"    def forward({forward}\n\ndef get_inputs():\n    return [{inputs}]\n"
    )
    task = Task.load(path)
    return Template(task, capture(task.program()))


def test_numbers_among_the_arguments_are_checked(tmp_path: Path) -> None:
    template = made_task(
        tmp_path, "self, x, factor, name='a'):\n        return x * factor", "torch.ones(4), 2.5"
    )
    source = template.source(template.space.plain())
    assert "if factor != 2.5:" in source
    assert "def forward(self, x, factor, name='a'):" in source


CLASHES = """
import torch

kernels = 2.0
operand = CPP_SOURCE = "of the reference"


class Model(torch.nn.Module):
    def forward(self, x, rows_, out):
        x_ = x * kernels
        out_ = x_ + rows_
        return torch.relu(out_ - out)


def get_inputs():
    return [torch.randn(6, 40), torch.randn(6, 40), torch.randn(40)]
"""


def test_the_references_own_names_stay_its_own(tmp_path: Path, home: None) -> None:
    path = tmp_path / "clashes.py"
    path.write_text(CLASHES)
    task = Task.load(path)
    template = Template(task, capture(task.program()))
    candidate = types.ModuleType("clashes")
    source = template.source(template.space.plain())

    exec(compile(source, "clashes.py", "exec"), candidate.__dict__)

    assert (candidate.kernels, candidate.operand) == (2.0, "of the reference")
    assert candidate.CPP_SOURCE == "of the reference"
    inputs = task.program().make_inputs(seed=1)
    torch.testing.assert_close(candidate.ModelNew()(*inputs), candidate.Model()(*inputs))


def test_nested_arguments_have_no_template(tmp_path: Path) -> None:
    template = made_task(
        tmp_path,
        "self, pair, z):\n        return pair[0] * pair[1] + z",
        "[torch.ones(4), torch.ones(4)], torch.ones(4)",
    )
    with pytest.raises(Unsupported, match="list"):
        template.source(template.space.plain())
