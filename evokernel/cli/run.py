"""Owns the commands `run` and `resume`."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evokernel.cli import campaign, completion, model_options, options, run_options
from evokernel.cli.faults import complain, paragraph
from evokernel.cli.flat import flat
from evokernel.cli.runs import RunName, found
from evokernel.errors import ConfigError, EvoKernelError

if TYPE_CHECKING:
    from evokernel.config import RunConfig
    from evokernel.optimize import RunResult
    from evokernel.record import Event

    Work = Callable[[Callable[[Event], None]], RunResult]


@flat
def run(
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK",
            autocompletion=completion.tasks,
            help="Names of built-in tasks, paths of task files, or one campaign file (.toml).",
        ),
    ],
    kernel: run_options.KernelOptions,
    search: run_options.SearchOptions,
    author: model_options.AuthorOptions,
    memory: run_options.MemoryOptions,
    measuring: options.Measuring,
    runs_dir: options.RunsDir = options.RUNS,
    jobs: options.Jobs = None,
    force: options.Force = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Make one task fast, or several one after the other.

    A task is checked first, as `evokernel task doctor` does; one that fails needs `--force`. Exit
    code 1: no kernel passed, or a run failed. Ctrl-C leaves a run that `evokernel resume`
    continues.

    Example: evokernel run softmax my_task.py --attempts 8

    Example: evokernel run my_task.py --model openai/gpt-5 --usd 2

    Example: evokernel run softmax rms_norm gelu --jobs 2

    Example: evokernel run rms_norm --model replay:rms_norm --attempts 4
    """
    if author.record and len(tasks) > 1:
        raise ConfigError("`--record` takes the calls of one task; run the others by themselves")
    parts = run_options.parts(kernel, search, author, memory, measuring)
    parts = {**parts, "runs": runs_dir, "force": force}
    if campaign.is_wanted(tasks, jobs):
        campaign.begin(tasks, jobs, parts, _config, as_json)
        return
    configs = [_config(task=_task(task), **parts) for task in tasks]
    ends = [_end(config, as_json, is_only=len(configs) == 1) for config in configs]
    if len(ends) > 1 and not as_json:
        _tell_all(configs, ends)
    if not all(end and end.best for end in ends):
        raise typer.Exit(1)


def resume(
    run: RunName,
    runs_dir: options.RunsDir = options.RUNS,
    as_json: options.AsJsonLines = False,
) -> None:
    """Continue a run that was interrupted, as if it never had been.

    Example: evokernel resume runs/20260131-180000-softmax-1a2b
    """
    path = found(run, runs_dir)
    if (path / "campaign.json").is_file():
        from evokernel.campaign.folder import CampaignFolder

        campaign.carry(CampaignFolder(path), as_json)
        return
    from evokernel.optimize import resume as go_on

    result = conduct(lambda listen: go_on(path, on_event=listen), as_json)
    if result.best is None:
        raise typer.Exit(1)


def conduct(work: "Work", as_json: bool) -> "RunResult":
    """Show a run while it goes on, and sum it up; also one that is interrupted."""
    from evokernel.cli.progress import shown
    from evokernel.optimize import RunStopped

    try:
        with shown(as_json) as listen:
            result = work(listen)
    except RunStopped as stop:
        if not as_json and sys.stdout.isatty():
            _sum_up(stop.path, "")
        raise
    if as_json:
        print(result.model_dump_json(), flush=True)
    else:
        _sum_up(result.path, result.reason)
    return result


def _end(config: "RunConfig", as_json: bool, is_only: bool) -> "RunResult | None":
    """Carry one run out; among several, a fault is told and the others go on."""
    from evokernel.optimize import optimize

    try:
        return conduct(lambda listen: optimize(config.task, config, on_event=listen), as_json)
    except EvoKernelError as error:
        if is_only:
            raise
        complain(f"{config.task}: {paragraph(error)}")
        return None


def _sum_up(path: Path, reason: str) -> None:
    from rich.console import Console

    from evokernel.cli.summary import Summary, init_args
    from evokernel.record import RunRecord

    record = RunRecord.open(path)
    try:
        given = init_args(record) if record.best() else ""
    except EvoKernelError:  # the task file needs something that is gone by now
        given = "..."
    console = Console(highlight=False)
    width = shutil.get_terminal_size().columns if console.is_terminal else None
    console.print(Summary(record, reason, given).text(width), soft_wrap=True, end="")


def _tell_all(configs: "list[RunConfig]", ends: "list[RunResult | None]") -> None:
    """One line a task, after several."""
    from evokernel.cli.wording import milliseconds, with_interval

    print()
    for config, end in zip(configs, ends, strict=True):
        name = config.task.ljust(max(len(config.task) for config in configs))
        if end is None or end.best is None or end.best.median_ms is None:
            print(f"{name}  no kernel")
            continue
        speedups = (
            f"{with_interval(ratio)} {baseline}"
            for baseline in ("eager", "compile")
            if (ratio := end.speedup(baseline))
        )
        print(f"{name}  {', '.join((milliseconds(end.best.median_ms), *speedups))}")


def _task(where: str) -> str:
    """Read each task before the first run begins: the last one may be misspelt."""
    from evokernel.task import Task

    Task.load(where)
    return where


def _config(**parts: Any) -> "RunConfig":
    from pydantic import ValidationError

    from evokernel.config import RunConfig

    try:
        return RunConfig.model_validate(parts)
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + str(first["loc"][-1]).replace("_", "-")
        expected = first["msg"].replace("Input should be", "expected a value")
        raise ConfigError(f"`{name}` cannot be {first['input']!r}: {expected}") from error
