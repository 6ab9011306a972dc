"""Experiences, graphs and queries that the tests of the memory are made of."""

from pathlib import Path
from typing import Any

import typer

from evokernel.attempt import Stage
from evokernel.cli.memory import app
from evokernel.config import MemoryConfig
from evokernel.errors import UsageError
from evokernel.evaluation import (
    Contract,
    Correctness,
    Evaluation,
    Interval,
    Speedup,
    Status,
    Timing,
)
from evokernel.memory.experience import Experience, Measurement, Origin
from evokernel.memory.retrieval import Query
from evokernel.memory.rewards import Reward
from evokernel.memory.store import Memory
from evokernel.opgraph import Node, OpGraph, Ref, TensorSpec
from evokernel.profile import Profile

GOOD = Reward(value=0.6, feasible=True, latency_ms=1.0, best_ms=2.0, parent_ms=2.0)
BAD = Reward(value=-1.0, feasible=False, best_ms=2.0, parent_ms=2.0)


def graph(*ops: str, family: str = "softmax", size: int = 4096, dtype: str = "float32") -> OpGraph:
    """A chain of operators on one matrix."""
    spec = TensorSpec(shape=(64, size), dtype=dtype)
    nodes = [Node(name="x", kind="input", op="0", outputs=(spec,))]
    for number, op in enumerate(ops or ("mul", "softmax")):
        args = (Ref(node=nodes[-1].name),)
        nodes.append(Node(name=f"n{number}", kind="call", op=op, args=args, outputs=(spec,)))
    return OpGraph(
        nodes=tuple(nodes),
        results=(Ref(node=nodes[-1].name),),
        source="export",
        flops=5 * 64 * size,
        min_bytes=2 * 4 * 64 * size,
        family=family,
        fingerprint=f"{family}-{'-'.join(ops)}-{size}-{dtype}",
    )


_PLAIN = {"shown_draft": 2, "shown_refine": 2, "epsilon": 0.0, "task_slots": 0, "bank": 0}


def config(path: Path | None = None, **changes: Any) -> MemoryConfig:
    """Two slots, no chance and no bounds, so that a test knows what is shown."""
    return MemoryConfig(**{**_PLAIN, "path": path, **changes})


def lesson(name: str, run: str = "old", **changes: Any) -> Experience:
    """What a failure taught: active at once."""
    return experience(name, run, kind="lesson", outcome="failure", **changes)


def edit(name: str, run: str = "old", **changes: Any) -> Experience:
    """A measured change: in quarantine until promoted."""
    speedup = Interval(value=1.5, low=1.4, high=1.6)
    measured = Measurement(median_ms=1.0, speedup=speedup)
    return experience(name, run, **{"kind": "edit", "measurement": measured, **changes})


def experience(name: str, run: str = "old", **changes: Any) -> Experience:
    """An experience of its own step; `name` is its candidate, technique and text."""
    origin = Origin(
        run=run,
        step=f"{run}/{name}",
        task=changes.pop("task", "softmax"),
        candidate=f"sha-{name}",
        parents=changes.pop("parents", ()),
        context=changes.pop("context", ()),
    )
    fields = {
        "stage": Stage.REFINE,
        "backend": "cpp",
        "family": "softmax",
        "fingerprint": "softmax-of-old",
        "techniques": (name,),
        "summary": f"about {name}",
        "payload": {"source": f"source of {name}"},
    }
    return Experience(origin=origin, **{**fields, **changes})


def query(step: str, stage: Stage = Stage.REFINE, run: str = "new", **changes: Any) -> Query:
    """A step of another run on a like task."""
    fields = {
        "task": "softmax",
        "graph": graph(),
        "stage": stage,
        "backend": "cpp",
        "family": "softmax",
        "fingerprint": graph().fingerprint,
        "run": run,
        "step": f"{run}/{step}",
        "seed": 0,
    }
    return Query(**{**fields, **changes})


def keep(memory: Memory, *experiences: Experience) -> list[str]:
    """Add each in its own step; returns the ids."""
    return [memory.add([e], e.origin.step, graph())[0] for e in experiences]


def shows(memory: Memory, step: str, *hidden: str, **changes: Any) -> tuple[str, ...]:
    """Ids that a step is shown, of which some are excluded."""
    return memory.recall(query(step, exclude=hidden, **changes)).ids


def command_line(capsys: Any, *words: object) -> tuple[int, str]:
    """Run `evokernel memory`; a fault comes as its exit code and its message."""
    command = typer.main.get_command(app)
    try:
        command.main([str(word) for word in words], prog_name="evokernel", standalone_mode=False)
    except UsageError as error:
        return error.exit_code, str(error)
    return 0, capsys.readouterr().out


def judged(
    status: Status = Status.PASSED, ms: float = 1.0, candidate: str = "c", **ratios: Interval
) -> Evaluation:
    """A verdict; `ratios` are the speedups by opponent."""
    if status is not Status.PASSED:
        return Evaluation(candidate=candidate, task="t", status=status, reason="it went wrong")
    speedups = tuple(
        Speedup(against=name, ratio=ratio, opponent_ms=1.0, is_faster=ratio.low > 1)
        for name, ratio in ratios.items()
    )
    return Evaluation(
        candidate=candidate,
        task="t",
        status=status,
        compiles=True,
        correctness=Correctness(
            is_right=True, families=(), workloads=(), comparisons=1, worst_ratio=0, tolerance=""
        ),
        contract=Contract(policy="own_kernels_only", is_kept=True),
        timing=Timing(median_ms=ms, spread=0, samples=1, dropped=0, processes=1, speedups=speedups),
        profile=Profile(bound_by="memory", roofline_share=0.5),
    )
