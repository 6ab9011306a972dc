"""Owns a quick look at the templates' GPU candidates: right, and how near to the copy bandwidth.

Captures built-in tasks at their GPU sizes, writes the plain plan and some of its neighbours, builds
them on all cores, then runs each on the GPU: largest error beside eager's own (both against
float64), and device times beside eager's. No run, no memory, no integrity checks: for those, see
`evokernel run`. Usage: python benchmarks/gpu_templates.py --plans 3 [TASK[@NAME=SIZE,...] ...]
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import re
import statistics
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from evokernel.compilers import KernelSource
from evokernel.compilers.cuda import CudaCompiler
from evokernel.opgraph import capture
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.template import Template
from evokernel.task import Precision, Task

ODD = {"ROWS": 1003, "TOKENS": 1003, "IMAGES": 7, "BATCH": 3}
"""Other sizes, for a second look at what is right; constants that a task does not have are left."""
AHEAD = 400_000
"""Clock cycles for which the GPU is kept busy before a timed call, some 0.2 ms."""
FEW_LONG_ROWS = "softmax@ROWS=64,COLUMNS=131072"


class Written(NamedTuple):
    """The candidates of one task in one precision."""

    task: Task
    precision: str
    min_bytes: int
    sources: list[tuple[str, str]]
    """Plan and text."""
    fault: str
    is_odd: bool


class Truth(NamedTuple):
    """What results are held against."""

    expected: list[Any]
    """In float64."""
    eager: list[Any]
    own: list[float]
    """Eager's errors."""
    floor: float
    """The least error that is held against a candidate."""


class Measured(NamedTuple):
    """One candidate that ran."""

    seconds: float
    ratio: float
    """Its error over eager's."""
    plan: str


def odd(task: Task) -> Task | None:
    """The task with sizes that fit nothing; None where no constant is known."""
    for name, value in ODD.items():
        if re.search(rf"^{name} = ", task.source, re.MULTILINE):
            return task.resized(**{name: value})
    return None


def write(job: tuple[str, Precision, str, int, int, str, bool]) -> Written:
    """Capture, write and build, in a process of its own."""
    name, precision, backend, plans, seed, cache, is_odd = job
    name, _, sizes = name.partition("@")
    task = Task.load(name, "cuda").in_precision(precision)
    if sizes:
        pairs = (pair.split("=") for pair in sizes.split(","))
        task = task.resized(**{key: int(value) for key, value in pairs})
    task = (odd(task) or task) if is_odd else task
    try:
        graph = capture(task.program())
        template = Template(task, graph, backend)  # type: ignore[arg-type]
        dice = random.Random(f"{seed} {name} {precision}")
        plain = template.space.plain()
        near = [move.on(template.space, plain) for move in template.space.moves(plain)]
        chosen = [plain, *dice.sample(near, min(plans, len(near)))]
        sources = [
            (_differences(template.space.plain(), plan), template.source(plan)) for plan in chosen
        ]
        if backend == "cuda":
            for _, source in sources:
                _build(source, cache)
        return Written(task, precision, graph.min_bytes, sources, "", is_odd)
    except Unsupported as reason:
        return Written(task, precision, 0, [], f"unsupported: {reason}", is_odd)
    except Exception:
        return Written(task, precision, 0, [], traceback.format_exc()[-1500:], is_odd)


def _differences(plain: Plan, plan: Plan) -> str:
    """What a plan has that the plain one has not."""
    return json.dumps({k: v for k, v in plan.choices.items() if plain.choices.get(k) != v})


def _build(source: str, cache: str) -> None:
    found = re.search(r'= r"""\n(.*?)"""', source, re.DOTALL)
    assert found
    kernel = KernelSource(backend="cuda", source=f"\n{found[1]}", arch="sm_90a", name="kernel_0.cu")
    CudaCompiler(Path(cache)).build(kernel)


class Bench:
    """Runs candidates on the GPU."""

    def __init__(self, cache: str, repeats: int, shows_every: bool) -> None:
        import torch

        from evokernel import jit

        self.torch = torch
        self.repeats = repeats
        self.shows_every = shows_every
        jit.use_broker(CudaCompiler(Path(cache), arch="sm_90a").build)
        big = torch.empty(2**28, device="cuda")
        out = torch.empty_like(big)
        self.copy = 2 * big.nbytes / self.seconds(lambda: out.copy_(big))

    def seconds(self, call: Any) -> float:
        """Median device time of a call."""
        torch = self.torch
        for _ in range(2):
            call()
        times = []
        for _ in range(self.repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(AHEAD)  # while Python gets everything launched
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return statistics.median(times)

    def run(self, written: Written) -> list[str]:
        """Lines about one task: right or wrong, times."""
        torch = self.torch
        program = written.task.program()
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        with torch.device("cuda"):
            inputs = program.make_inputs()
            model = program.build()
        inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in inputs]
        model = model.cuda()
        expected = flat(self.exact(program, model, inputs))
        with torch.no_grad():
            eager = flat(model(*inputs))
            own = [error(e, x) for e, x in zip(eager, expected, strict=True)]
            base = self.seconds(lambda: model(*inputs))
        truth = Truth(expected, eager, own, 4e-7 if written.precision == "fp32" else 4e-3)
        faults, times = [], []
        for plan, source in written.sources:
            try:
                call = partial(self.loaded(source, program, model), *inputs)
                ratio, fault = judged(call, truth)
                if fault:
                    faults.append(f"{fault} {plan}")
                times.append(Measured(self.seconds(call), ratio, plan))
            except Exception:
                faults.append(f"FAILED {plan}\n{traceback.format_exc()[-900:]}")
        lines = self.lines(written, base, times) if times else []
        return [*lines, *(f"  {fault}" for fault in faults)]

    def lines(self, written: Written, base: float, times: list[Measured]) -> list[str]:
        """The draft, the fastest and eager beside the copy bandwidth."""
        draft, fastest = times[0], min(times)
        rates = [written.min_bytes / s / self.copy for s in (base, draft.seconds, fastest.seconds)]
        best = "the draft" if fastest is draft else fastest.plan
        line = (
            f"{written.task.name:<22}{written.precision:<5}{'odd ' if written.is_odd else ''}"
            f"{written.min_bytes / 1e6:7.0f} MB  eager {base * 1e3:8.3f} {rates[0]:4.0%}  "
            f"draft {draft.seconds * 1e3:8.3f} {rates[1]:4.0%}  "
            f"best {fastest.seconds * 1e3:8.3f} {rates[2]:4.0%}  "
            f"err x{max(one.ratio for one in times):.2g}  {best}"
        )
        every = sorted(times) if self.shows_every else ()
        shares = ((written.min_bytes / one.seconds / self.copy, one) for one in every)
        return [line, *(f"    {o.seconds * 1e3:8.3f} {s:4.0%}  {o.plan}" for s, o in shares)]

    def exact(self, program: Any, model: Any, inputs: list[Any]) -> Any:
        """What the reference gives in float64."""
        import copy

        torch = self.torch
        wide = copy.deepcopy(model).double()
        with torch.no_grad():
            return wide(
                *[
                    x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                    for x in inputs
                ]
            )

    def loaded(self, source: str, program: Any, model: Any) -> Any:
        """The candidate's `forward` with the reference's parameters; candidates may be Triton."""
        folder = Path(tempfile.mkdtemp())
        path = folder / "candidate.py"
        path.write_text(source)
        import importlib.util

        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        positional, named = program.init_inputs()
        made = module.ModelNew(*positional, **named)
        made.load_state_dict(model.state_dict())
        dtype = next((p.dtype for p in model.parameters()), None)
        made = made.cuda() if dtype is None else made.to("cuda", dtype)
        for name, buffer in model.named_buffers():
            made.get_buffer(name).data = buffer.data
        made.train(model.training)

        def call(*inputs: Any) -> Any:
            with self.torch.no_grad():
                return made(*inputs)

        return call


def judged(call: Any, truth: Truth) -> tuple[float, str]:
    """Error over eager's own, and what is wrong with the results of two calls; empty if nothing."""
    got, again = flat(call()), flat(call())
    errors = [error(g, x) for g, x in zip(got, truth.expected, strict=True)]
    ratios = [e / max(o, truth.floor) for e, o in zip(errors, truth.own, strict=True)]
    ratio = max(ratios, key=lambda r: float("inf") if math.isnan(r) else r)
    repeats = all(a.equal(b) for a, b in zip(map(_told, got), map(_told, again), strict=True))
    dtypes = [a.dtype for a in got] == [b.dtype for b in truth.eager]
    if ratio <= 4 and repeats and dtypes:
        return ratio, ""
    return ratio, f"WRONG error x{ratio:.3g} repeats={repeats} dtypes={dtypes}"


def _told(tensor: Any) -> Any:
    """Comparable: NaN equals nothing."""
    return tensor.nan_to_num() if tensor.is_floating_point() else tensor


def flat(result: Any) -> list[Any]:
    """The tensors of a result."""
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, list | tuple) else [result]


def error(got: Any, exact: Any) -> float:
    """Largest distance relative to the largest number; places differ or not."""
    if not got.is_floating_point():
        return float((got != exact).double().mean())
    difference = (got.double() - exact).abs().max()
    return float(difference / exact.abs().max().clamp_min(1e-30))


def main() -> None:
    """Print one line per task, faults first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=[])
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--plans", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--every", action="store_true", help="the time of every plan")
    parser.add_argument("--odd", action="store_true", help="odd sizes too")
    parser.add_argument("--seconds", type=float, default=110, help="begin no task after this")
    given = parser.parse_args()
    began = time.monotonic()
    cache = tempfile.mkdtemp()
    names = given.tasks or [FEW_LONG_ROWS, *Task.names()]
    jobs = [
        (name, precision, given.backend, given.plans, given.seed, cache, is_odd)
        for is_odd in ((False, True) if given.odd else (False,))
        for name in names
        for precision in given.precisions.split(",")
    ]
    lines, faults = [], []
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        made = pool.imap(write, jobs)
        bench = None
        for written in made:
            if bench is None:
                bench = Bench(cache, given.repeats, given.every)
                print(f"copy {bench.copy / 1e12:.2f} TB/s", flush=True)
            where = f"{written.task.name} {written.precision}"
            if time.monotonic() - began > given.seconds:
                faults.append(f"{where}: no time left")
            elif written.fault:
                faults.append(f"{where}: {written.fault}")
            else:
                try:
                    found = bench.run(written)
                    wrong = [line for line in found if line.startswith(("  WRONG", "  FAILED"))]
                    lines += [line for line in found if line not in wrong]
                    faults += [f"{where}:{line}" for line in wrong]
                except Exception:
                    faults.append(f"{where}: {traceback.format_exc()[-900:]}")
                bench.torch.cuda.empty_cache()
    print("\n".join([*faults, *lines]))
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(0)


if __name__ == "__main__":
    main()
