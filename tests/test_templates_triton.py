"""Triton candidates of every family are right in Triton's interpreter, and build for a GPU."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from evokernel.attempt import Candidate
from evokernel.compilers import Artefact, KernelSource
from evokernel.opgraph import capture
from evokernel.proposers.techniques import catalogue
from evokernel.proposers.templates.choices import Plan, Space, read_plan
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

TASK = """
import torch
from torch import nn
from torch.nn import functional as F

EVOKERNEL = {{"precision": "{precision}"}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for number, parameter in enumerate(({parameters})):
            self.register_buffer(f"p{{number}}", parameter)

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]
"""

X, HALVES = "torch.randn(6, 37)", {"fp16": torch.float16, "bf16": torch.bfloat16}
HEADS = ["torch.randn(1, 2, 19, 8)", "torch.randn(1, 2, 21, 8)", "torch.randn(1, 2, 21, 8)"]
LABELS = "torch.where(torch.arange(7) == 5, -100, torch.randint(0, 50, (7,)))"
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "gelu": ("F.gelu(x) + torch.tanh(y) + F.mish(x)", [X, X], []),
    "bias": ("F.silu(x + self.p0) * self.p1", [X], ["torch.randn(37)", "torch.randn(6, 1)"]),
    "halves": ("F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]", ["torch.randn(5, 38)"], []),
    "broadcast": ("torch.where(y, x * self.p0, -x), x > self.p0",
                  ["torch.randn(2, 3, 4, 35)", "torch.rand(2, 1, 4, 35) > 0.5"],
                  ["torch.randn(3, 1, 1)"]),
    "softmax": ("torch.softmax(x * 1.5, -1)", [X], []),
    "log_softmax": ("torch.log_softmax(x, -1)", ["torch.randn(3, 300)"], []),
    "masked": ("torch.softmax(x.masked_fill(y, -torch.inf), -1)",
               ["torch.randn(2, 5, 19)", "torch.rand(2, 1, 19) > 0.5"], []),
    "logsumexp": ("torch.logsumexp(x + self.p0, -1)", [X], ["torch.randn(37)"]),
    "layer_norm": ("F.layer_norm(x + y, (64,), self.p0, self.p1)", ["torch.randn(6, 64)"] * 2,
                   ["torch.randn(64)", "torch.randn(64)"]),
    "rms_norm": ("[F.rms_norm(x + y, (37,), self.p0, 1e-5), x + y]", [X, X], ["torch.randn(37)"]),
    "cross_entropy": ("F.cross_entropy(x, y)", ["torch.randn(7, 50)", LABELS], []),
    "mse": ("((x - y) ** 2).mean()", ["torch.randn(70, 100)"] * 2, []),
    "total_norm": ("x / x.norm()", ["torch.randn(6, 300)"], []),
    "cumsum": ("torch.cumsum(x, -1) * 2", [X], []),
    "backwards": ("x.flip(-1).cumsum(-1).flip(-1) * y", [X, X], []),
    "cumprod": ("torch.cumprod(x, -1)", ["torch.tensor([[3e30, 3e30, *[1e-20] * 9] * 4] * 4)"], []),
    "places": ("x.argmax(1), x.min(1).indices, x.amax(1)", ["torch.randn(2, 5, 7)"], []),
    "row_places": ("x.argmax(-1), (x > 2).any(-1)", ["torch.randn(5, 11)"], []),
    "column_sum": ("(x * self.p0).sum(0) + 1", ["torch.randn(37, 45)"], ["torch.randn(37, 1)"]),
    "middle_softmax": ("torch.softmax(x * 0.5, 1)", ["torch.randn(2, 19, 3, 5)"], []),
    "column_scan": ("torch.cumsum(x, 1).abs()", ["torch.randn(3, 9, 21)"], []),
    "column_loss": ("F.cosine_similarity(x, y, 1).mean()", ["torch.randn(5, 7, 33)"] * 2, []),
    "group_norm": ("F.relu(F.group_norm(x, 3, self.p0, self.p1))", ["torch.randn(2, 6, 4, 7)"],
                   ["torch.randn(6)", "torch.randn(6)"]),
    "max_pool": ("F.relu(F.max_pool2d(x * 2, 3, 2, 1)) + self.p0", ["torch.randn(2, 3, 9, 11)"],
                 ["torch.randn(3, 1, 1)"]),
    "avg_pool": ("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)",
                 ["torch.randn(1, 2, 8, 9)"], []),
    "product": ("F.gelu(x @ y + self.p0)", ["torch.randn(19, 35)", "torch.randn(35, 41)"],
                ["torch.randn(41)"]),
    "transposed": ("torch.bmm(x, y.mT) * 0.5 + x.sum(-1, keepdim=True)",
                   ["torch.randn(3, 17, 20)", "torch.randn(3, 33, 20)"], []),
    "conv": ("F.relu(F.conv2d(x, self.p0, self.p1, 2, 1))", ["torch.randn(2, 4, 9, 8)"],
             ["torch.randn(5, 4, 3, 3)", "torch.randn(5)"]),
    "norm_linear": ("F.linear(F.layer_norm(x, (24,)), self.p0)", ["torch.randn(9, 24)"],
                    ["torch.randn(18, 24)"]),
    "attention": ("torch.softmax(x @ y.mT * 0.3, -1) @ z", HEADS, []),
    "masked_attention": ("F.scaled_dot_product_attention(x, y, z, self.p0)", HEADS,
                         ["torch.rand(19, 21) > 0.4"]),
}  # fmt: skip
PRODUCTS = {"product", "transposed", "conv", "norm_linear", "attention", "masked_attention"}
FULL = {"cumprod"}
"""Cases with numbers that half precision does not have."""


class Tried(NamedTuple):
    """A plan of a case with what it has to give."""

    case: str
    plan: Plan
    own: list[list[torch.Tensor]]
    """What the reference gives, for each of the inputs."""
    exact: list[list[torch.Tensor]]
    """The same in fp64."""


def template_of(folder: Path, name: str, precision: str = "fp32") -> tuple[Template, Any]:
    body, inputs, held = CASES[name]
    path = folder / f"{name}.py"
    path.write_text(
        TASK.format(
            parameters="".join(f"{p}, " for p in held),
            names=", ".join("xyz"[: len(inputs)]),
            body=body,
            inputs=", ".join(inputs),
            precision=precision,
        )
    )
    task = Task.load(path)
    program = task.program()
    return Template(task, capture(program), "triton"), program


def spread(space: Space, most: int) -> Iterator[Plan]:
    """The plain plan, one of each structure, and a few at random; each once."""
    dice = random.Random(5)
    wishes: list[dict[str, Any]] = [{}]
    for choice in space.choices:
        if choice.name in ("sweep", "sweeps", "grid", "functions", "kernels", "products"):
            ways = ("whole", "loop", "split")
            is_way = choice.name == "sweep"
            for value in choice.values[1:]:
                for way in (value,) if is_way else ways:
                    wishes.append({choice.name: value, "sweep": way})
    wishes += [{c.name: dice.choice(c.values) for c in space.choices} for _ in range(2)]
    seen: list[Plan] = []
    for wish in wishes:
        plan = space.settle(wish)
        if plan not in seen and len(seen) < most:
            seen.append(plan)
            yield plan


def variants(inputs: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The inputs as they are, far from zero, and with what is no number."""
    made = [inputs]
    for change in (lambda x: x + 30, lambda x: x.index_fill(-1, torch.tensor([0]), -torch.inf)):
        made.append([change(x.clone()) if x.is_floating_point() else x for x in inputs])
    return made


def listed(result: object) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Tried, object]]]:
    """Every candidate with what it gave; the interpreter starts once for all."""
    folder = tmp_path_factory.mktemp("triton")
    made: list[Tried] = []
    for number, name in enumerate(CASES):
        # Triton's interpreter multiplies the bits of bfloat16.
        half = "fp16" if number % 2 or name in PRODUCTS else "bf16"
        for precision in ("fp32", half)[: 1 if name in FULL else 2]:
            template, program = template_of(folder, name, precision)
            module, wide = program.build(seed=1), program.build(seed=1, dtype=torch.float64)
            inputs = program.make_inputs(seed=2)
            for plan in spread(template.space, 4 if precision == "fp32" else 1):
                is_first = precision == "fp32" and plan == template.space.plain()
                several = variants(inputs) if is_first else [inputs]
                (folder / f"c{len(made)}.py").write_text(template.source(plan))
                given = {
                    "init": [],
                    "inputs": several,
                    "state": module.state_dict(),
                    "dtype": HALVES.get(precision, torch.float32),
                }
                torch.save(given, folder / f"{len(made)}.pt")
                own = [listed(module(*one)) for one in several]
                exact = [listed(wide(*widened(one))) for one in several]
                made.append(Tried(f"{name}-{precision}", plan, own, exact))
    (folder / "list.json").write_text(json.dumps(list(range(len(made)))))
    run = Path(__file__).with_name("triton_interpreted.py")
    subprocess.run([sys.executable, str(run), str(folder)], check=True, env={**os.environ})
    found: dict[str, list[tuple[Tried, object]]] = {}
    for number, one in enumerate(made):
        result = torch.load(folder / f"{number}.out.pt", weights_only=False)
        found.setdefault(one.case.partition("-")[0], []).append((one, result))
    return found


def widened(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x.double() if x.is_floating_point() else x for x in inputs]


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
    eps = torch.finfo(own.dtype).eps
    got, own, exact = got[finite].double(), own[finite].double(), exact[finite]
    if got.numel():
        limit = 20 * (own - exact).abs().max() + 16 * eps * (exact.abs() + exact.abs().mean())
        assert ((got - exact).abs() <= limit).all(), f"{label}: {(got - exact).abs().max()}"


@pytest.mark.parametrize("name", CASES)
def test_every_structure_gives_the_reference_values(
    name: str, tried: dict[str, list[tuple[Tried, object]]]
) -> None:
    for one, result in tried[name]:
        label = f"{one.case} {one.plan.choices}"
        assert isinstance(result, list), f"{label}: {result}"
        for got, own, exact in zip(result, one.own, one.exact, strict=True):
            for mine, theirs, true in zip(listed(got), own, exact, strict=True):
                assert_close(mine, theirs, true, label)


def test_every_task_has_candidates_in_every_precision() -> None:
    dice = random.Random(7)
    for name in Task.names():
        for precision in ("fp32", "fp16", "bf16"):
            task = Task.load(name, device="cuda")
            options = task.options.model_copy(update={"precision": precision})
            task = task.model_copy(update={"options": options})
            with torch.device("meta"):
                template = Template(task, capture(task.program()), "triton")
            plans = [template.space.plain()]
            for _ in range(3):
                wish = {c.name: dice.choice(c.values) for c in template.space.choices}
                plans.append(template.space.settle(wish))
            for plan in plans:
                source = template.source(plan)
                compile(source, f"{name}.py", "exec")
                assert read_plan(source) == plan
            known = catalogue()
            named = {o.technique for c in template.space.choices for o in c.options if o.technique}
            assert all("triton" in known[technique].backends for technique in named)


@pytest.mark.parametrize(
    ("name", "precision"), [("norm_linear", "bf16"), ("masked_attention", "fp16")]
)
def test_drafts_build_without_a_gpu(name: str, precision: str, tmp_path: Path) -> None:
    triton = pytest.importorskip("evokernel.compilers.triton")
    template, _ = template_of(tmp_path, name, precision)
    candidate = Candidate(source=template.source(template.space.plain()), backend="triton")
    compiler = triton.TritonCompiler(tmp_path / "cache", arch="sm_90")
    built = compiler.build(KernelSource(source=candidate.source, backend="triton"))
    assert isinstance(built, Artefact), built
    assert all(found.spill_stores == 0 for found in built.resources), built.resources
