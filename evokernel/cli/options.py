"""Owns the options that several commands share, so that they look and mean the same everywhere."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from evokernel.attempt import Backend as BackendName
from evokernel.cli import completion
from evokernel.cli.choices import choice, own_policy
from evokernel.task import Precision as PrecisionName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evokernel.config import TuneConfig


def _policies() -> "Iterable[str]":
    from evokernel.memory.policies import POLICIES

    return POLICIES


def _rewards() -> "Iterable[str]":
    from evokernel.memory.reward_rules import RULES

    return RULES


BACKENDS = get_args(BackendName)
PRECISIONS = get_args(PrecisionName)
CREDITS = ("equal", "evidence")
"""As `config.Credit`, which is not imported for it."""
STARTS = ("hope", "bandit")
"""As `config.StartRule`."""


def tune_budget(no_tune: bool, text: str) -> "TuneConfig":
    """What the search among declared values may spend.

    Args:
        no_tune: It may not begin.
        text: Tries, seconds or both, e.g. `24`, `90s`, `24,90s`; empty is the default.

    Raises:
        ConfigError: another text.
    """
    from evokernel.config import TuneConfig

    if no_tune:
        return TuneConfig(tries=0)
    found = re.fullmatch(r"(?:([1-9]\d*)(?:,|$))?(?:(\d+(?:\.\d+)?)s)?", text)
    if found is None or text.endswith(",") or found[2] and not float(found[2]):
        from evokernel.errors import ConfigError

        raise ConfigError(
            f"`--tune-budget` cannot be `{text}`; expected a number of tries, seconds or both, "
            "such as `24`, `90s` or `24,90s`"
        )
    named = {"tries": found[1], "seconds": found[2]}
    return TuneConfig.model_validate({name: value for name, value in named.items() if value})


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print every event and the result as JSON lines.")
]
BackendOrNone = Annotated[
    str | None,
    choice(
        "--backend",
        BACKENDS,
        "Language of the kernels: cpp (C++ with OpenMP), cuda (CUDA C++) or triton; the last "
        "two need a GPU.  [default: what fits the machine and the file]",
    ),
]
PrecisionOrNone = Annotated[
    str | None,
    choice(
        "--precision",
        PRECISIONS,
        "fp32, tf32, fp16 or bf16 in place of the task's own.  [default: the task's]",
    ),
]
Device = Annotated[
    str,
    choice("--device", ("cpu", "cuda"), "Whose sizes the built-in tasks take: cpu or cuda."),
]
Attempts = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Candidates to judge at most.  [default: 16; with --model width x depth]",
    ),
]
Minutes = Annotated[float | None, typer.Option(metavar="M", help="Minutes to spend at most.")]
Width = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Trajectories that take turns.  [default: 2; with --model 4, fewer for few attempts]",
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Turns of each trajectory at most.  [default: what --attempts allows; with --model 8]",
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="End after so many rounds without a gain of 2 %; 0 is never.  "
        "[default: never; with --model 3]",
    ),
]
RooflineShare = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SHARE",
        help="End once the best kernel reaches this share of the roofline, such as 0.9; 0 is "
        "never.  [default: never; with --model 0.95]",
    ),
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of every random choice.")]
Start = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A kernel of your own to start from; may be repeated."),
]
MemoryPath = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Folder of the memory.  [default: the user's own]"),
]
MemoryOrNone = Annotated[
    str | None,
    typer.Option(
        metavar="PATH|none",
        help="Folder of the memory; none starts from nothing and keeps nothing.  "
        "[default: the user's own]",
    ),
]
Policy = Annotated[
    str | None,
    choice(
        "--policy",
        _policies,
        "How memory chooses what to show: none, random, similarity, evokernel, memrl, hybrid, "
        "placebo, or MODULE:NAME of your own.  [default: evokernel]",
        own=own_policy,
    ),
]
Reward = Annotated[
    str | None,
    choice(
        "--reward",
        _rewards,
        "What a step earns: evokernel, parent, milestone, kevin, sigmoid or cuda-l1.  "
        "[default: parent for hybrid and placebo, evokernel for the others]",
    ),
]
Starts = Annotated[
    str,
    choice(
        "--starts",
        STARTS,
        "How the next start point is chosen: by the best gain seen around it, or by an upper "
        "confidence bound.",
        "|".join(STARTS),
    ),
]
Credit = Annotated[
    str,
    choice(
        "--credit",
        CREDITS,
        "How a reward is shared among the experiences shown: alike, as the paper has it, or by "
        "what the candidate made use of.",
        "|".join(CREDITS),
    ),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder with texts of your own for a model, in place of ours file by file; "
        "`evokernel prompts copy DIR` makes one.",
    ),
]
NoTune = Annotated[
    bool, typer.Option("--no-tune", help="Take declared values (`TUNE`) as they stand.")
]
TuneBudget = Annotated[
    str,
    typer.Option(
        metavar="N|Ss|N,Ss",
        help="Combinations to try, seconds to spend on it, or both, for each candidate that "
        "declares values (`TUNE`).  [default: 16,60s]",
        show_default=False,
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Measure roughly, within about a second.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Make a campaign of the tasks, N runs at a time: one budget, one table, resumable.",
    ),
]
RunsDir = Annotated[Path, typer.Option(metavar="FOLDER", help="Where run folders lie.")]
Threads = Annotated[int, typer.Option(min=0, metavar="N", help="CPU threads; 0 is all.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Run a task that fails its check all the same; the results say so."
    ),
]
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        autocompletion=completion.tasks,
        help="Name of a built-in task, or path of a task file.",
    ),
]

RUNS = Path("runs")
"""The default of `--runs-dir`."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How candidates are tuned and timed."""

    no_tune: NoTune = False
    tune_budget: TuneBudget = ""
    threads: Threads = 0
    quick: Quick = False

    def bench(self) -> dict[str, Any]:
        """Fields of `BenchConfig`.

        Raises:
            ConfigError: a budget that cannot be read.
        """
        return {
            "threads": self.threads,
            "measurement": "quick" if self.quick else "standard",
            "tune": tune_budget(self.no_tune, self.tune_budget),
        }
