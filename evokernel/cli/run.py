"""Owns the commands `run` and `resume`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from evokernel.config import RunConfig
    from evokernel.optimize import RunResult

Event = dict[str, Any]


def run(
    tasks: Annotated[
        list[str], typer.Argument(metavar="TASK", help="Built-in task, or path of a task file.")
    ],
    backend: Annotated[str, typer.Option(help="Language of the kernels: cpp.")] = "cpp",
    attempts: Annotated[int, typer.Option(min=1, help="Candidates to judge at most.")] = 16,
    minutes: Annotated[float | None, typer.Option(help="Minutes to spend at most.")] = None,
    width: Annotated[int, typer.Option(min=1, help="Trajectories that take turns.")] = 2,
    depth: Annotated[int | None, typer.Option(min=1, help="Turns of each trajectory.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random choice.")] = 0,
    start: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Your own kernel to start from.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="PATH|none", help="Memory to use; none forgets.")
    ] = None,
    policy: Annotated[str, typer.Option(help="How memory chooses what to show.")] = "evokernel",
    runs_dir: Annotated[Path, typer.Option(help="Folder that receives the run folder.")] = Path(
        "runs"
    ),
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 is all.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Measure roughly, in a second.")] = False,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print every event and the result as JSON lines.")
    ] = False,
) -> None:
    """Optimise one task, or several one after the other."""
    for task in tasks:
        config = _config(
            task=task,
            backend=backend,
            runs=runs_dir,
            budget={"attempts": attempts, "minutes": minutes},
            search={"width": width, "depth": depth, "seed": seed, "start": tuple(start or ())},
            memory=_memory(memory, policy),
            bench={"threads": threads, "measurement": "quick" if quick else "standard"},
        )
        from evokernel.optimize import optimize

        _report(optimize(task, config, on_event=_printer(json_lines)), json_lines)


def resume(
    run: Annotated[str, typer.Argument(help="Run folder, or its name below --runs-dir.")],
    runs_dir: Annotated[Path, typer.Option(help="Folder that holds the run folder.")] = Path(
        "runs"
    ),
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print every event and the result as JSON lines.")
    ] = False,
) -> None:
    """Continue a run that was interrupted, as if it never had been."""
    from evokernel.optimize import resume as go_on

    path = Path(run) if Path(run).is_dir() else runs_dir / run
    _report(go_on(path, on_event=_printer(json_lines)), json_lines)


def _memory(memory: str | None, policy: str) -> dict[str, Any]:
    from evokernel.config import home

    if memory == "none":
        return {"path": None, "policy": "none"}
    return {"path": Path(memory) if memory else home() / "memory", "policy": policy}


def _config(**parts: Any) -> "RunConfig":
    from pydantic import ValidationError

    from evokernel.config import RunConfig
    from evokernel.errors import ConfigError

    try:
        return RunConfig.model_validate(parts)
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + str(first["loc"][-1]).replace("_", "-")
        raise ConfigError(f"`{name}` cannot be {first['input']!r}: {first['msg']}") from error


class _Printer:
    """One plain line an event that the user waits for."""

    def __init__(self) -> None:
        self.step = ""

    def __call__(self, event: Event) -> None:
        line = getattr(self, f"_{event['kind']}", lambda event: "")(event)
        if line:
            print(f"{event['elapsed']:7.1f} s  {line}", flush=True)

    def _began(self, event: Event) -> str:
        return f"run {event['run']}: {event['task']} ({event['path']})"

    def _resumed(self, event: Event) -> str:
        return f"resumed {event['run']}: {event['task']} ({event['path']})"

    def _note(self, event: Event) -> str:
        return str(event["text"])

    def _baselines(self, event: Event) -> str:
        times = ", ".join(f"{name} {ms:.3g} ms" for name, ms in event["median_ms"].items())
        return f"baselines: {times}"

    def _step(self, event: Event) -> str:
        self.step = f"{event['number']:3} {event['stage']:6}"
        return ""

    def _skipped(self, event: Event) -> str:
        return f"{self.step} nothing new: {event['why']}"

    def _proposed(self, event: Event) -> str:
        names = event["changed"] or event["techniques"]
        return f"{self.step} {', '.join(names) or event['rationale']}"

    def _disturbed(self, event: Event) -> str:
        return f"{self.step} not judged, again: {event['reason']}"

    def _evaluated(self, event: Event) -> str:
        if event["median_ms"] is None:
            return f"{self.step} {event['status']}: {event['reason']}"
        speedups = ", ".join(f"{x:.2f}x {name}" for name, x in event["speedups"].items())
        return f"{self.step} {event['median_ms']:.4g} ms, {speedups}"

    def _promoting(self, event: Event) -> str:
        return f"measuring {event['claims']} claims again in fresh processes"

    def _promoted(self, event: Event) -> str:
        return f"{event['hold']} of {event['claims']} claims hold"

    def _ended(self, event: Event) -> str:
        return str(event["reason"])


def _printer(json_lines: bool) -> Any:
    return _print_json if json_lines else _Printer()


def _print_json(event: Event) -> None:
    import json

    print(json.dumps(event), flush=True)


def _report(result: "RunResult", json_lines: bool) -> None:
    if json_lines:
        print(result.model_dump_json())
        return
    if result.best is None or result.kernel is None:
        print(f"no kernel passed in {result.attempts} attempts; see {result.path}")
        return
    speedups = [
        f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}] against {name}"
        for name in ("eager", "compile")
        if (ratio := result.speedup(name))
    ]
    print(f"best: attempt {result.best.number}, {', '.join(speedups)}")
    print(f"kernel: {result.kernel}")
