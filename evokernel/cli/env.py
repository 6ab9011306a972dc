"""Owns `evokernel env`: a step environment, and trajectories as data, for training."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evokernel.cli import completion, options
from evokernel.cli.choices import choice
from evokernel.cli.faults import complain
from evokernel.cli.flat import flat
from evokernel.cli.groups import group
from evokernel.cli.runs import found
from evokernel.cli.waiting import waiting
from evokernel.cli.wording import counted
from evokernel.training.rewards import NAMES

if TYPE_CHECKING:
    from evokernel.training.turns import Turn

app = group(
    "Train models: a step environment, and trajectories as data.",
    "evokernel env export runs/20260131-180000-softmax-1a2b --to turns.parquet",
)

FORMS = ("sum", "max")
KINDS = ("turns", "contrast")

Gamma = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="X", help="Discount.  [default: 0.4 for sum, 0.8 for max]"),
]

RowsOption = Annotated[
    str,
    choice(
        "--rows",
        KINDS,
        "turns: one a row; contrast: groups of kernels from different levels of speed.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Rewarding:
    """How turns are rewarded."""

    reward: Annotated[
        str,
        choice("--reward", NAMES, "evokernel, kevin, milestone, sigmoid, cuda-l1 or dr-kernel."),
    ] = "kevin"
    form: Annotated[str, choice("--form", FORMS, "Returns over turns: sum, or max.")] = "sum"
    gamma: Gamma = None


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How contrastive groups are drawn."""

    variants: Annotated[
        int, typer.Option(min=2, metavar="N", help="Contrast: kernels of a group.")
    ] = 2
    groups: Annotated[
        int, typer.Option(min=1, metavar="N", help="Contrast: groups of a task at most.")
    ] = 8
    temperature: Annotated[
        float, typer.Option(metavar="X", help="Contrast: the larger, the more of slow kernels.")
    ] = 1.0
    seed: options.Seed = 0


@app.command()
@flat
def serve(
    turns: Annotated[int, typer.Option(min=1, metavar="N", help="Turns of an episode.")] = 4,
    *,
    rewarding: Rewarding,
    edits: Annotated[
        str,
        choice(
            "--edits",
            ("last", "best"),
            "What a turn is asked to change: the last attempt, or the best one.",
        ),
    ] = "last",
    backend: options.BackendOrNone = None,
    with_compile: Annotated[
        bool, typer.Option("--compile", help="Time torch.compile, too; half a minute a task.")
    ] = False,
    memory: options.MemoryOrNone = "none",
    runs_dir: options.RunsDir = options.RUNS,
    threads: options.Threads = 0,
    quick: options.Quick = False,
    force: options.Force = False,
) -> None:
    """Answer lines of JSON on standard input: reset, step, leave.

    Every episode becomes a run, which `evokernel env export` makes rows of. docs/training.md
    describes the lines.

    Example: echo '{"op": "reset", "task": "softmax"}' | evokernel env serve --turns 8
    """
    from evokernel.training.environment import EnvironmentConfig
    from evokernel.training.lines import serve as answer

    config = EnvironmentConfig.model_validate(
        {
            "turns": turns,
            **vars(rewarding),
            "edits": edits,
            "backend": backend or "cpp",
            "measurement": "quick" if quick else "standard",
            "compile": with_compile,
            "threads": threads,
            "runs": runs_dir,
            "memory": _memory(memory),
            "force": force,
        }
    )
    if sys.stdin.isatty():
        complain('waiting for lines of JSON, such as `{"op": "reset", "task": "softmax"}`')
    answer(config)


@app.command()
@flat
def export(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            autocompletion=completion.runs,
            help="Run folders, or their names below --runs-dir.",
        ),
    ],
    to: Annotated[Path, typer.Option(metavar="FILE", help="A name in .jsonl or .parquet.")],
    *,
    rows: RowsOption = "turns",
    rewarding: Rewarding,
    compare: Annotated[
        str,
        choice(
            "--group",
            ("turn", "task"),
            "What advantages compare: the same turn of a task's trajectories, or all turns.",
        ),
    ] = "turn",
    drawing: Drawing,
    runs_dir: options.RunsDir = options.RUNS,
    as_json: options.AsJson = False,
) -> None:
    """Write the turns of runs as rows, with rewards, returns and advantages.

    Example: evokernel env export runs/20260131-180000-softmax-1a2b --to turns.jsonl --form max
    """
    from evokernel.record import RunRecord
    from evokernel.training import contrast, table
    from evokernel.training import turns as taken

    table.writer_of(to)  # before anything is read
    with waiting("reading runs", "env export"):
        records = [RunRecord.open(found(run, runs_dir)) for run in dict.fromkeys(runs)]
        settings = taken.Settings.model_validate({**vars(rewarding), "group": compare})
        read = taken.turns(records, settings)
        written: Any = read
        if rows == "contrast":
            written = contrast.contrasts(read, contrast.Contrast(**vars(drawing)))
        table.write(written, to, contrast.Group if rows == "contrast" else taken.Turn)
    told = {"file": str(to), "rows": len(written), **_counts(read)}
    typer.echo(json.dumps(told, indent=2) if as_json else _in_words(rows, told))


def _memory(memory: str | None) -> dict[str, Any]:
    from evokernel.cli import memory_place

    if memory == "none":
        return {"path": None, "policy": "none"}
    return {"path": memory_place.path(memory)}


def _counts(rows: "tuple[Turn, ...]") -> dict[str, int]:
    return {
        "turns": len(rows),
        "right": sum(row.is_right for row in rows),
        "trajectories": len({row.trajectory for row in rows}),
        "tasks": len({row.task_sha for row in rows}),
        "without_reward": sum(row.reward is None for row in rows),
        "without_advantage": sum(row.advantage is None for row in rows),
    }


def _in_words(kind: str, told: dict[str, Any]) -> str:
    what = "turn" if kind == "turns" else "contrastive group"
    lines = [
        f"{told['file']}: {counted(told['rows'], what)}",
        f"  from {counted(told['turns'], 'turn')} ({told['right']} right) of "
        f"{counted(told['trajectories'], 'trajectory').replace('trajectorys', 'trajectories')} on "
        f"{counted(told['tasks'], 'task')}",
    ]
    if told["without_reward"]:
        lines.append(
            f"  {told['without_reward']} without a reward: the rule needs a time that was not taken"
        )
    if kind == "turns" and told["without_advantage"]:
        lines.append(
            f"  {told['without_advantage']} without an advantage: nothing to compare them with; "
            "`--group task`, or more trajectories"
        )
    if kind == "contrast" and not told["rows"]:
        lines.append("  no task has right kernels at two levels of speed")
    return "\n".join(lines)
