"""Owns `evokernel memory record` and `ablate`: does a memory help, and which way of choosing?"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from evokernel.cli import completion, options
from evokernel.cli.choices import choice, one_of, own_policy
from evokernel.cli.listing import put, show
from evokernel.cli.waiting import Waiting, waiting
from evokernel.cli.wording import counted, duration
from evokernel.errors import ConfigError

if TYPE_CHECKING:
    from evokernel.evaluation import Interval
    from evokernel.study.ablation import Design
    from evokernel.study.results import Results

GOES_ON = "what was measured is kept; the same command goes on"
"""What to know after Ctrl-C."""
LIMIT = 36
"""Plans of a recorded space unless asked for more: some two minutes a task."""
Folder = Annotated[
    Path | None,
    typer.Option("--recordings", metavar="FOLDER", help="[default: those of the package]"),
]
Backend = Annotated[str, choice("--backend", options.BACKENDS, "cpp or cuda.")]


def _arms() -> Iterable[str]:
    from evokernel.study.ablation import arms_known

    return arms_known()


RecordedTasks = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TASK",
        autocompletion=completion.recorded_tasks,
        help="Recorded ones; all by default.",
    ),
]


def record(
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK", autocompletion=completion.tasks, help="Built-in names or files."
        ),
    ],
    folder: Annotated[
        Path, typer.Option("--to", metavar="FOLDER", help="Where the recordings go.")
    ] = Path("recordings"),
    limit: Annotated[
        int, typer.Option(min=4, max=200, metavar="N", help="Plans of a task's space at most.")
    ] = LIMIT,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="NAME=N", help="Another size; one task only."),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, metavar="N", help="CPU threads of kernels and reference.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option(metavar="M", help="Stop after so many; the same command goes on.")
    ] = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Measure a task's whole template space once, so that runs on it can be simulated.

    Every plan is built, checked and timed at least ten times in three or more processes. It may be
    stopped at any moment: the same command goes on.

    Example: evokernel memory record softmax --size ROWS=128
    """
    if size and len(tasks) > 1:
        raise ConfigError("`--size` is for one task; name one")
    end = time.monotonic() + 60 * minutes
    found = []
    with waiting("loading PyTorch", "memory record", GOES_ON) as shown:
        for number, name in enumerate(tasks):
            shown.reach(number, len(tasks) if tasks[1:] else 0)
            say = shown.say if as_json else _printer(shown)
            found.append(_recorded(name, _sizes(size or ()), threads, limit, folder, end, say))
    if as_json:
        typer.echo(json.dumps(found, indent=2))


def _printer(shown: Waiting) -> Callable[[str], None]:
    def say(text: str) -> None:
        with shown.aside():
            put(text)
        shown.say("building, checking and timing plans")

    return say


def _recorded(
    name: str,
    sizes: dict[str, int],
    threads: int,
    limit: int,
    folder: Path,
    end: float,
    say: Callable[[str], None],
) -> dict[str, object]:
    from evokernel.config import BenchConfig
    from evokernel.study import recording
    from evokernel.study.recorder import record as measure
    from evokernel.study.recorder import subject_of

    subject = subject_of(name, sizes, "cpp", threads, limit)
    file = folder / f"{subject.name}.jsonl"
    tape = measure(subject, file, BenchConfig(), end - time.monotonic(), say)
    made = tape.recording()
    complete = sum(point.is_complete for point in made.points)
    say(f"{name}: {complete} of {counted(len(made.points), 'plan')} complete")
    told = {"task": name, "plans": len(made.points), "complete": complete, "file": None}
    if complete == len(made.points) and made.points:
        told["file"] = str(recording.write(made, folder))
        say(f"  in `{told['file']}`, headroom {made.headroom:.2f}x")
    return told


Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="NAME",
        autocompletion=completion.among(_arms),
        help="Only these arms, or MODULE:NAME of a policy of your own; may be repeated.",
    ),
]


def ablate(
    tasks: RecordedTasks = None,
    arms: Arms = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Seeds, from --first-seed.")] = 20,
    first_seed: Annotated[int, typer.Option(min=0, metavar="N", help="The first of them.")] = 0,
    attempts: Annotated[int, typer.Option(min=2, metavar="N", help="Budget of each run.")] = 24,
    recordings: Folder = None,
    backend: Backend = "cpp",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also write results (JSON) and plots there."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare the policies of a memory with each other and with none, on recorded tasks.

    Memory, policies and the templates' decisions are the real ones; only building, checking and
    timing are replaced by what was recorded. Thousands of runs take minutes.

    Example: evokernel memory ablate --seeds 5 --arm none --arm similarity --arm evokernel
    """
    from evokernel.study import plots, results
    from evokernel.study.ablation import ablate as carry_out
    from evokernel.study.ablation import arms_known, design, shops
    from evokernel.study.recording import recorded

    for arm in arms or ():
        one_of("--arm", arms_known(), own_policy)(arm)
    known = recorded(recordings, tasks or (), backend)  # type: ignore[arg-type]  # checked above
    plan = design(known, arms or (), range(first_seed, first_seed + seeds), attempts)
    if not plan.tasks:
        raise ConfigError("none of these tasks has enough headroom: there is nothing to find")
    began = time.monotonic()
    with waiting("simulating runs", f"memory ablate {len(plan.tasks)} {seeds}") as shown:
        outcomes = carry_out(plan, shops(plan, known), _heard(shown, plan, as_json))
        found = results.results(plan, known, outcomes, time.monotonic() - began)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            results.write(found, out / "ablation.json")
            plots.draw(found, out)
    if as_json:
        typer.echo(found.model_dump_json(indent=2, exclude={"outcomes"}))
        return
    tell(found)


def _heard(shown: Waiting, plan: "Design", as_json: bool) -> Callable[[str], None]:
    """Tell how far it is; a line each where nobody sees that on a terminal."""
    total, done = len(plan.arms) * len(plan.seeds), count(1)

    def heard(text: str) -> None:
        shown.say(text)
        shown.reach(next(done), total)
        if not as_json and not sys.stderr.isatty():
            typer.echo(text, err=True)

    return heard


def tell(found: "Results") -> None:
    """Print an ablation as tables."""
    for setting, title in (
        ("adaptation", "within a stream of tasks"),
        ("transfer", "frozen bank, held-out tasks"),
    ):
        table = Table(title, "attempts", "reached", "first", "final", "area", "over none", box=None)
        for effect in (e for e in found.effects if e.setting == setting):
            table.add_row(
                effect.arm,
                f"{effect.needed:.1f}",
                f"{effect.reached:.0%}",
                f"{effect.first:.2f}",
                f"{effect.final:.3f}",
                f"{effect.area:.3f}",
                _interval(effect.ratio) if effect.ratio else "",
            )
        show(table)
        typer.echo("")
    table = Table("setting", "arm", "against", "attempts", "final speed", "area", box=None)
    for c in found.contrasts:
        table.add_row(
            c.setting, c.arm, c.opponent, _interval(c.ratio), _signed(c.final), _signed(c.area)
        )
    show(table)
    design = found.design
    put(
        f"\n{counted(found.runs, 'run')} in {duration(found.seconds)}; "
        f"{counted(len(design.tasks), 'task')}, {counted(len(design.seeds), 'seed')}, "
        f"{design.budget} attempts each, target {design.target:.0%} of the best known speed"
    )
    for task, headroom in design.left_out.items():
        put(f"left out: {task}, headroom {headroom:.2f}x")


def _sizes(given: list[str] | tuple[str, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for text in given:
        name, equals, number = text.partition("=")
        if not equals or not number.isdigit():
            raise ConfigError(f"`--size {text}` expects `NAME=NUMBER`")
        sizes[name] = int(number)
    return sizes


def _interval(interval: "Interval") -> str:
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _signed(interval: "Interval") -> str:
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
