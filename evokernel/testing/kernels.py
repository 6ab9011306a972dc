"""Owns fake tasks, kernels that say how they will be judged, and the verdicts that they ask for."""

import re

from evokernel import __version__
from evokernel.attempt import Candidate
from evokernel.bench import Claim
from evokernel.evaluation import (
    Contract,
    Correctness,
    Diagnostic,
    Evaluation,
    Interval,
    Promotion,
    Speedup,
    Status,
    Timing,
)
from evokernel.opgraph import Node, OpGraph, Ref, TensorSpec
from evokernel.task import Task
from evokernel.tuning import Space, Try, Tuning, written

EAGER_MS = 10.0
"""Time of the fake eager baseline, milliseconds."""
COMPILE_MS = 8.0
"""Time of the fake compiled baseline, milliseconds."""

_TASK = '''"""Adds one to every element."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(8, 16)]
'''


def fake_task(name: str = "add-one") -> Task:
    """A task small enough for any machine: `x + 1` on 8 x 16 numbers."""
    return Task.from_source(_TASK, name)


def fake_graph(family: str = "elementwise", rows: int = 8) -> OpGraph:
    """The operator graph of `fake_task`, made without torch; `rows` makes it another task's."""
    x = TensorSpec(shape=(rows, 16), dtype="float32")
    return OpGraph(
        nodes=(
            Node(name="x", kind="input", op="0", outputs=(x,)),
            Node(name="add", kind="call", op="add", args=(Ref(node="x"), 1, 1), outputs=(x,)),
        ),
        results=(Ref(node="add"),),
        source="export",
        flops=rows * 16,
        min_bytes=2 * rows * 16 * 4,
        family=family,
        fingerprint=f"fake-{family}-{rows}",
    )


def fake_kernel(
    median_ms: float = 1.0,
    status: Status = Status.PASSED,
    techniques: tuple[str, ...] = (),
    note: str = "",
    **markers: object,
) -> str:
    """Source of a kernel that says how it will be judged; `note` makes it another candidate."""
    lines = {"median_ms": median_ms, "status": status.value, "note": note, **markers}
    if techniques:
        lines["techniques"] = " ".join(techniques)
    comments = "\n".join(f"# {name}: {value}" for name, value in lines.items() if value != "")
    return f"{comments}\n\n\nclass ModelNew:\n    pass\n"


def fake_evaluation(candidate: Candidate, task: Task) -> Evaluation:
    """The verdict that the candidate's own comments ask for."""
    status = _status(candidate)
    compiles = status not in _BEFORE_COMPILING
    if status is not Status.PASSED:
        broken = Diagnostic(severity="error", message=f"the kernel says {status}", line=1)
        return Evaluation(
            candidate=candidate.sha,
            task=task.sha,
            status=status,
            reason=f"the kernel's own comment says {status}",
            compiles=compiles,
            diagnostics=(broken,),
            harness=__version__,
            device="fake",
        )
    return Evaluation(
        candidate=candidate.sha,
        task=task.sha,
        status=status,
        compiles=True,
        correctness=Correctness(
            is_right=True,
            families=("normal",),
            workloads=("default",),
            comparisons=1,
            worst_ratio=0.1,
            tolerance="as the fake says",
        ),
        contract=Contract(policy="own_kernels_only", is_kept=True, own_kernels=("kernel",)),
        timing=_timing(_median_ms(candidate), float(marker(candidate, "doubt") or DOUBT)),
        harness=__version__,
        device="fake",
    )


DOUBT = 0.01
_BEFORE_COMPILING = {Status.INVALID_SOURCE, Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT}


def _timing(median_ms: float, doubt: float) -> Timing:
    opponents = {"eager": EAGER_MS, "compile": COMPILE_MS}
    return Timing(
        median_ms=median_ms,
        spread=0.02,
        samples=30,
        dropped=0,
        processes=1,
        speedups=tuple(
            Speedup(
                against=name,
                ratio=_around(opponent / median_ms, doubt),
                opponent_ms=opponent,
                is_faster=opponent > 1.02 * median_ms,
                is_slower=opponent < 0.98 * median_ms,
            )
            for name, opponent in opponents.items()
        ),
        roofline_share=min(1.0, 0.5 / median_ms),
    )


def _around(ratio: float, doubt: float = DOUBT) -> Interval:
    return Interval(value=ratio, low=(1 - doubt) * ratio, high=(1 + doubt) * ratio)


def marker(candidate: Candidate, name: str) -> str:
    """What a fake kernel's comment of that name says; empty if it has none."""
    found = re.search(rf"^# {name}: (.+)$", candidate.source, re.MULTILINE)
    return found[1].strip() if found else ""


def fake_tuning(candidate: Candidate) -> Tuning | None:
    """A search through every combination, as the candidate's comments say how each is judged."""
    space = Space.declared(candidate.source)
    if space is None or not space.is_open:
        return None
    tries: list[Try] = []
    best: Candidate | None = None
    chosen = space.first
    for values in space.near(space.first):
        variant = Candidate(source=space.frozen(values), backend=candidate.backend)
        status = _status(variant)
        ratio = _around(_median_ms(best) / _median_ms(variant)) if best else None
        is_best = status.is_feasible and (ratio is None or ratio.low > 1)
        if is_best:
            best, chosen = variant, values
        tries.append(
            Try(
                values=values,
                candidate=variant.sha,
                status=status,
                ratio=ratio if status.is_feasible else None,
                is_best=is_best,
            )
        )
    return Tuning(
        source=candidate.source,
        parameters=space.parameters,
        chosen=chosen,
        tries=tuple(tries),
        combinations=space.size,
        stopped="every combination was tried",
    )


def _status(candidate: Candidate) -> Status:
    return Status(_marker_at(candidate, "status") or Status.PASSED)


def _median_ms(candidate: Candidate) -> float:
    return float(_marker_at(candidate, "median_ms") or 1.0)


def _marker_at(candidate: Candidate, name: str) -> str:
    """What is said for the values in place (`# median_ms at BLOCK=64: 2.0`), else in general."""
    space = Space.declared(candidate.source)
    special = marker(candidate, f"{name} at {written(space.first)}") if space else ""
    return special or marker(candidate, name)


def fake_promotion(claim: Claim) -> Promotion:
    """The answer that the claim's candidate asks for."""
    holds = marker(claim.candidate, "promotes") != "no"
    before = _median_ms(claim.parent) if claim.parent else EAGER_MS
    ratio = _around(before / _median_ms(claim.candidate))
    return Promotion.model_validate(
        {
            "candidate": claim.candidate.sha,
            "parent": claim.parent.sha if claim.parent else None,
            "claim": claim.kind,
            "holds": holds,
            "ratio": None if claim.kind == "fix" else ratio,
            "processes": 3,
            "reason": "" if holds else "the kernel's own comment says so",
        }
    )
