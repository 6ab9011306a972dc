"""Owns small references for kernels on a GPU, and the check of their candidates against float64.

Run by `test_gpu_templates.py`, and by itself: `python tests/cuda_cases.py [CASE ...]`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from evokernel import jit
from evokernel.compilers import KernelSource
from evokernel.compilers.cuda import CudaCompiler
from evokernel.jit import device
from evokernel.opgraph import OpGraph, capture
from evokernel.proposers.templates.expressions import Unsupported
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


def get_init_inputs():
    return []
"""

X = "torch.randn(6, 37)"
LONG = "torch.randn(3, 4500)"
LABELS = "torch.where(torch.arange(7) == 5, -100, torch.randint(0, 50, (7,)))"
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "swiglu": ("F.silu(x) * y", ["torch.randn(5, 4001)"] * 2, []),
    "rest": ("torch.tanh(x) + 1", ["torch.randn(1, 4003)"], []),
    "bias_gelu": ("F.gelu(x + self.p0)", ["torch.randn(7, 48)"], ["torch.randn(48)"]),
    "broadcast": ("torch.where(y, x * self.p0, -x), x > self.p0",
                  ["torch.randn(2, 3, 4, 35)", "torch.rand(2, 1, 4, 35) > 0.5"],
                  ["torch.randn(3, 1, 1)"]),
    "halves": ("x.chunk(2, -1)[0] * torch.sigmoid(x.chunk(2, -1)[1])", ["torch.randn(9, 64)"], []),
    "softmax": ("torch.softmax(x * 1.5, -1)", [X], []),
    "even_softmax": ("torch.softmax(x, -1)", ["torch.randn(2, 40, 128)"], []),
    "long_softmax": ("torch.log_softmax(x, -1)", [LONG], []),
    "wide_softmax": ("torch.softmax(x, -1)", ["torch.randn(3, 32000)"], []),
    "one_column": ("torch.softmax(x, -1) + x", ["torch.randn(6, 1)"], []),
    "infinite": ("torch.softmax(x, -1), torch.logsumexp(x, -1)",
                 ["torch.tensor([[1., float('inf')] * 40, [float('-inf')] * 80, [0., 1.] * 40])"],
                 []),
    "logsumexp": ("torch.logsumexp(x + self.p0, -1)", [X], ["torch.randn(37)"]),
    "layer_norm": ("F.layer_norm(x + y, (64,), self.p0, self.p1)", ["torch.randn(60, 64)"] * 2,
                   ["torch.randn(64)", "torch.randn(64)"]),
    "odd_norm": ("F.layer_norm(x, (4500,))", [LONG], []),
    "rms_norm": ("[F.rms_norm(x + y, (37,), self.p0, 1e-5), x + y]", [X, X], ["torch.randn(37)"]),
    "cross_entropy": ("F.cross_entropy(x, y)", ["torch.randn(7, 50)", LABELS], []),
    "cumsum": ("torch.cumsum(x, -1) * 2", ["torch.randn(70, 300)"], []),
    "long_cumsum": ("torch.cumsum(x, -1)", ["torch.randn(3, 9000)"], []),
    "cummax": ("torch.cummax(x, -1).values", ["torch.randn(3, 2500)"], []),
    "any_all": ("(x > 2).any(-1) | (x < 3).all(-1)", [X], []),
    "few_rows": ("torch.softmax(x, -1)", ["torch.randn(2, 66000)"], []),
    "few_norms": ("F.layer_norm(x, (70000,))", ["torch.randn(3, 70000) + 3"], []),
    "few_scans": ("torch.cumsum(x, -1)", ["torch.randn(2, 66003)"], []),
    "mse": ("((x - y) ** 2).mean()", ["torch.randn(70, 1000)"] * 2, []),
    "total_norm": ("x / x.norm()", ["torch.randn(6, 3000)"], []),
    "column_sum": ("(x * self.p0).sum(0) + 1", ["torch.randn(37, 45)"], ["torch.randn(37, 1)"]),
    "tall_mean": ("x.mean(0), x.amin(0)", ["torch.randn(2100, 24)"], []),
    "tall_norm": ("x * torch.rsqrt(x.pow(2).mean(0) + 1)", ["torch.randn(2100, 24)"], []),
    "middle_softmax": ("torch.softmax(x * 0.5 + y, 1)",
                       ["torch.randn(2, 19, 3, 11)", "torch.randn(2, 19, 3, 11)"], []),
    "channel_norm": ("x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * self.p0",
                     ["torch.randn(3, 12, 5, 16)"], ["torch.randn(12, 1, 1)"]),
    "column_scans": ("torch.cumsum(x, 1).abs(), torch.cummax(x, 1).values",
                     ["torch.randn(3, 9, 21)"], []),
    "tall_scan": ("torch.cumsum(x, 0)", ["torch.randn(3000, 16)"], []),
    "places": ("x.argmax(1), x.min(1).indices, x.max(1).values", ["torch.randn(3, 9, 21)"], []),
    "row_places": ("x.argmax(-1), x.argmin(-1) + y", [X, "torch.arange(6)"], []),
    "column_loss": ("F.cosine_similarity(x, y, 1).mean()", ["torch.randn(5, 7, 33)"] * 2, []),
    "group_norm": ("F.relu(F.group_norm(x, 3, self.p0, self.p1))", ["torch.randn(2, 6, 4, 35)"],
                   ["torch.randn(6)", "torch.randn(6)"]),
    "batch_statistics": ("(x - x.mean((0, 2, 3), keepdim=True)) * torch.rsqrt("
                         "x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5) * self.p0",
                         ["torch.randn(4, 3, 8, 16)"], ["torch.randn(3, 1, 1)"]),
    "large_statistics": ("F.batch_norm(x, None, None, training=True)",
                         ["torch.randn(64, 3, 32, 32) * 3 + 1"], []),
    "backwards": ("x.flip(-1).cumsum(-1).flip(-1) * y", [X, X], []),
    "exclusive": ("torch.cat((torch.zeros_like(x[:, :1]), x), 1)[:, :-1].cumsum(1)", [X], []),
    "any_column": ("(x > 1.5).any(0), (x < 2).all(0)", [X], []),
    "max_pool": ("F.relu(F.max_pool2d(x * 2, 3, 2, 1)) + self.p0", ["torch.randn(2, 3, 21, 23)"],
                 ["torch.randn(3, 1, 1)"]),
    "wide_pool": ("F.max_pool1d(x, 4, 1, 1, 2)", ["torch.randn(2, 3, 83)"], []),
    "avg_pool": ("F.avg_pool1d(x, 5, 3, 2) * y", ["torch.randn(2, 3, 75)", "torch.randn(2, 3, 25)"],
                 []),
    "counted_pool": ("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)",
                     ["torch.randn(2, 3, 12, 13)"], []),
    "deep_pool": ("F.avg_pool3d(x, 2, 2, 1), F.max_pool3d(x, 2, 2, 1)",
                  ["torch.randn(2, 3, 6, 7, 8)"], []),
    "long_scan": ("torch.cumsum(x, 0)", ["torch.randn(66001)"], []),
    "product": ("x @ y", ["torch.randn(130, 72)", "torch.randn(72, 136)"], []),
    "odd_product": ("x @ y", ["torch.randn(67, 33)", "torch.randn(33, 45)"], []),
    "turned_left": ("x.t() @ y", ["torch.randn(72, 136)", "torch.randn(72, 200)"], []),
    "linear": ("F.gelu(F.linear(x, self.p0, self.p1)) + y",
               ["torch.randn(150, 96)", "torch.randn(150, 264)"],
               ["torch.randn(264, 96)", "torch.randn(264)"]),
    "stack": ("torch.bmm(x, y.transpose(1, 2))",
              ["torch.randn(5, 40, 64)", "torch.randn(5, 70, 64)"], []),
    "attention": ("F.scaled_dot_product_attention(x, y, z)",
                  ["torch.randn(2, 3, 100, 64)"] * 3, []),
    "norm_product": ("F.layer_norm(x, (64,)) @ self.p0", ["torch.randn(200, 64)"],
                     ["torch.randn(64, 88)"]),
    "scores": ("torch.logsumexp(x @ self.p0, -1)", ["torch.randn(100, 64)"],
               ["torch.randn(64, 200)"]),
    "conv": ("F.relu(F.conv2d(x, self.p0, self.p1, 1, 1))", ["torch.randn(3, 8, 14, 15)"],
             ["torch.randn(16, 8, 3, 3)", "torch.randn(16)"]),
    "depthwise": ("F.conv2d(x, self.p0, self.p1, 1, 1, 1, 3)", ["torch.randn(2, 3, 10, 16)"],
                  ["torch.randn(3, 1, 3, 3)", "torch.randn(3)"]),
    "grouped_conv": ("F.conv1d(x, self.p0, None, 2, 2, 2, 2)", ["torch.randn(3, 8, 50)"],
                     ["torch.randn(6, 4, 5)"]),
}  # fmt: skip
FLOORS = {"fp32": 3e-7, "fp16": 1e-3, "bf16": 8e-3}
"""Errors relative to the largest number that are small in each precision."""


class Case(NamedTuple):
    """A reference in one precision, with its candidates."""

    name: str
    precision: str
    task: Task
    candidates: list[tuple[str, str]]
    """Plan and text."""


def case(name: str, precision: str, backend: str, plans: int) -> Case:
    """Capture a case and write its plain plan and some others.

    Raises:
        Unsupported: the backend does not cover it.
    """
    task, graph = captured(name, precision)
    template = Template(task, graph, backend)  # type: ignore[arg-type]
    dice = random.Random(f"{name} {precision}")
    chosen = [template.space.plain()]
    for _ in range(6 * plans):
        wish = {c.name: dice.choice(c.values) for c in template.space.choices}
        plan = template.space.settle(wish)
        if plan not in chosen and len(chosen) <= plans:
            chosen.append(plan)
    texts = [(json.dumps(plan.choices), template.source(plan)) for plan in chosen]
    return Case(name, precision, task, texts)


def captured(name: str, precision: str) -> tuple[Task, OpGraph]:
    """A case's task and operator graph."""
    body, inputs, held = CASES[name]
    text = TASK.format(
        precision=precision,
        parameters="".join(f"{p}, " for p in held),
        names=", ".join("xyz"[: len(inputs)]),
        body=body,
        inputs=", ".join(inputs),
    )
    task = Task.from_source(text, name=name, device="cuda")
    return task, capture(task.program())


def kernels_of(source: str) -> str:
    """The CUDA text of a candidate."""
    return source.partition('CUDA_SOURCE = r"""')[2].partition('"""')[0]


def faults(found: Case) -> Iterator[str]:
    """Run a case's candidates on the GPU; say what is wrong with each."""
    program = found.task.program()
    inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in program.make_inputs()]
    model = program.build().cuda()
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    exact = flat(program.build().cuda().double()(*wide))
    own = flat(model(*inputs))
    for plan, source in found.candidates:
        try:
            made = loaded(source).ModelNew().cuda()
            for name, buffer in model.named_buffers():
                setattr(made, name, buffer)
            got = flat(made(*inputs))
            torch.cuda.synchronize()
            again = flat(made(*inputs))
        except Exception:
            yield f"{found.name} {found.precision} {plan}\n{traceback.format_exc()[-1200:]}"
            continue
        for number, (result, twice, mine, right) in enumerate(
            zip(got, again, own, exact, strict=True)
        ):
            problem = compared(result, mine, right, FLOORS[found.precision])
            if not torch.equal(
                result.nan_to_num() if result.is_floating_point() else result,
                twice.nan_to_num() if twice.is_floating_point() else twice,
            ):
                problem = problem or "differs from call to call"
            if problem:
                yield f"{found.name} {found.precision} result {number}: {problem} {plan}"


def compared(got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, floor: float) -> str:
    """What is wrong with a result; empty if nothing is."""
    if (got.dtype, got.shape) != (own.dtype, own.shape):
        return f"is {got.dtype} {tuple(got.shape)}, not {own.dtype} {tuple(own.shape)}"
    if not got.is_floating_point():
        # Ties of rounded numbers may fall either way.
        differing = (got != exact).double().mean().item()
        return f"differs in {differing:.1%} of places" if differing > 0.02 else ""
    if not torch.equal(got.isnan(), own.isnan()) or not torch.equal(got.isinf(), own.isinf()):
        return "has NaN or infinities elsewhere"
    usual = exact.isfinite() & got.isfinite() & own.isfinite()
    if not usual.any():
        return ""
    scale = exact[usual].abs().max().clamp_min(1e-30)
    wrong = ((got.double() - exact)[usual].abs().max() / scale).item()
    eager = ((own.double() - exact)[usual].abs().max() / scale).item()
    allowed = max(4 * eager, floor)
    return f"is wrong by {wrong:.2e}, eager by {eager:.2e}" if wrong > allowed else ""


def loaded(source: str) -> ModuleType:
    """A candidate as a module, from a file as Triton needs it."""
    path = Path(tempfile.mkdtemp()) / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flat(result: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    return list(result) if isinstance(result, list | tuple) else [result]


def prepared(
    names: list[str], precisions: list[str], backend: str, plans: int, cache: Path
) -> tuple[list[Case], list[str]]:
    """The cases, their kernels built on all cores; and what is not covered."""
    compiler = CudaCompiler(cache, arch=device.current().arch)
    found, refused, jobs = [], [], []
    with ThreadPoolExecutor(12) as pool:
        for name in names:
            for precision in precisions:
                try:
                    made = case(name, precision, backend, plans)
                except Unsupported as reason:
                    refused.append(f"{name} {precision}: {reason}")
                    continue
                found.append(made)
                if backend == "cuda":
                    for _, source in made.candidates:
                        kernel = KernelSource(
                            backend="cuda", source=kernels_of(source), name="k.cu"
                        )
                        jobs.append(pool.submit(compiler.build, kernel))
        for job in jobs:
            job.result()
    jit.use_broker(compiler.build)
    return found, refused


def main() -> None:
    """Check all cases and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=[])
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--precisions", default="fp32,bf16,fp16")
    parser.add_argument("--plans", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    began = time.monotonic()
    names, precisions = given.cases or list(CASES), given.precisions.split(",")
    found, refused = prepared(
        names, precisions, given.backend, given.plans, Path(tempfile.mkdtemp())
    )
    print(f"{len(found)} cases after {time.monotonic() - began:.0f} s", flush=True)
    checked, wrong = 0, []
    for each in found:
        if time.monotonic() - began > given.seconds:
            break
        try:
            wrong += list(faults(each))
        except Exception:
            wrong.append(f"{each.name} {each.precision}: {traceback.format_exc()[-1200:]}")
        checked += len(each.candidates)
    print("\n".join([*wrong, *(f"not covered: {reason}" for reason in refused)]))
    print(f"{checked} candidates, {len(wrong)} faults, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
