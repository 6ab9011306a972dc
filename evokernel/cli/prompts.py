"""Owns the commands `prompts ...`: what a model is shown, and texts of one's own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from evokernel.cli import completion, options
from evokernel.cli.choices import one_of
from evokernel.cli.groups import group
from evokernel.cli.listing import put, show, show_pairs
from evokernel.cli.memory_place import print_json
from evokernel.cli.runs import found
from evokernel.cli.waiting import waiting
from evokernel.errors import ConfigError

if TYPE_CHECKING:
    from evokernel.attempt import Attempt
    from evokernel.prompts import Prompt, Texts
    from evokernel.proposers import Request
    from evokernel.proposers.techniques import Technique
    from evokernel.record import RunRecord

app = group("Read what a model is shown, and replace its texts.", "evokernel prompts show draft")

STEPS = ("draft", "repair", "refine", "recombine")
RunOrNone = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN",
        autocompletion=completion.runs,
        help="Run whose attempts and measurements are shown.",
    ),
]
TaskOrNone = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="TASK",
        autocompletion=completion.tasks,
        help="A built-in task or a task file, without a run.",
    ),
]

StepName = Annotated[
    str,
    typer.Argument(
        metavar="|".join(STEPS),
        autocompletion=completion.among(STEPS),
        help="What the prompt asks for.",
    ),
]


@app.command("list")
def list_texts(prompts: options.Prompts = None, as_json: options.AsJson = False) -> None:
    """List the texts that prompts are made of, with the places that are filled in.

    Example: evokernel prompts list
    """
    from evokernel.prompts import FILES, Texts, tokens
    from evokernel.prompts.texts import SECTIONS

    texts = Texts.load(prompts)
    table = Table(box=None, header_style="bold")
    for name in ("text", "", "tokens"):
        table.add_column(name, no_wrap=True)
    table.add_column("for")
    table.add_column("places")
    rows = []
    for name, file in FILES.items():
        whose = "yours" if name in texts.own else ""
        size, places = tokens(texts.contents[name]), sorted(file.places)
        shown = "every part" if file.places == SECTIONS else ", ".join(places)
        table.add_row(name, whose, str(size), file.about, shown)
        rows.append({"text": name, "own": bool(whose), "tokens": size, "places": places})
    if as_json:
        print_json({"digest": texts.digest, "texts": rows})
        return
    show(table)
    show_pairs(
        f"hash of all: {texts.digest}, as every attempt keeps it (`texts`)",
        [("every part", ", ".join(sorted(SECTIONS)))],
    )


@app.command("copy")
def copy_texts(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.")],
    as_json: options.AsJson = False,
) -> None:
    """Write our texts into a folder, to be changed and given with `--prompts DIR`.

    Files that exist are left alone; those that you delete again are taken from ours.

    Example: evokernel prompts copy my_prompts
    """
    from evokernel.prompts import copy

    written = copy(folder)
    if as_json:
        print_json({"folder": str(folder), "written": [str(file) for file in written]})
        return
    put(f"{len(written)} texts written into {folder}")


@app.command("show")
def show_prompt(
    step: StepName,
    task: TaskOrNone = None,
    run: RunOrNone = None,
    attempt: Annotated[
        int | None,
        typer.Option(metavar="N", help="Attempt that is repaired or refined.  [default: the last]"),
    ] = None,
    backend: options.BackendOrNone = None,
    prompts: options.Prompts = None,
    room: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tokens at most, as estimated.")
    ] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Show how many tokens each part takes instead.")
    ] = False,
    runs_dir: options.RunsDir = options.RUNS,
    as_json: options.AsJson = False,
) -> None:
    """Print the prompt of a step, as a model gets it.

    With `--task` a first draft, without measurements; with `--run` any step after the attempts of
    that run. What a run's model was really shown lies in its `attempts/<n>/prompt.md`.

    Example: evokernel prompts show draft --task softmax

    Example: evokernel prompts show refine --run runs/20260131-180000-softmax-1a2b
    """
    one_of("STEP", STEPS)(step)
    if (task is None) == (run is None):
        raise ConfigError("`prompts show` expects either `--task TASK` or `--run RUN`")
    from evokernel.prompts import Texts, render

    texts = Texts.load(prompts)
    with waiting("loading PyTorch, looking at the operators", "prompts show"):
        if run is not None:
            request = _request_of_run(step, found(run, runs_dir), attempt)
        else:
            request = _request_of_task(step, str(task), backend or "cpp")
        prompt = render(request, _techniques(request), texts, room)
    if as_json:
        print_json(_plain(prompt, texts))
    elif sizes:
        _show_sizes(prompt, texts)
    else:
        typer.echo(prompt.text)


def _plain(prompt: "Prompt", texts: "Texts") -> dict[str, Any]:
    messages = {"system": prompt.system, "user": prompt.user}
    sizes = {"tokens": prompt.tokens, "sections": prompt.sections}
    return {"step": prompt.step, **messages, **sizes, "texts": texts.digest}


def _techniques(request: "Request") -> "list[Technique]":
    """Those for this kind of task and language, as a model is told."""
    from evokernel.proposers.techniques import catalogue

    family = request.graph.family if request.graph else "unknown"
    return [t for t in catalogue().values() if t.suits(family, request.backend)]


def _show_sizes(prompt: "Prompt", texts: "Texts") -> None:
    from evokernel.prompts import tokens

    parts = sum(prompt.sections.values())
    rows = {"system message": tokens(prompt.system), **prompt.sections}
    rows["the step itself"] = tokens(prompt.user) - parts
    table = Table("part", "tokens", box=None, header_style="bold")
    for name, size in {**rows, "together": prompt.tokens}.items():
        table.add_row(name, str(size))
    show(table)
    put(f"estimated; texts {texts.digest}, step `{prompt.step}`")


def _request_of_task(step: str, task: str, backend: str) -> "Request":
    """The first draft of a task, as it is before anything was measured."""
    if step != "draft":
        raise ConfigError(
            f"a task alone has nothing to {step}; expected `--run RUN`, whose attempts are looked "
            "at, or `prompts show draft`"
        )
    from evokernel.bench.gpu import choice
    from evokernel.config import RunConfig
    from evokernel.graphs.preview import first_request
    from evokernel.opgraph import CaptureFailed, capture
    from evokernel.optimize.environment import environment
    from evokernel.task import Task

    chosen = RunConfig.model_validate({"task": task, "backend": backend}).backend
    loaded = Task.load(task, choice.device_of(chosen))
    try:
        graph = capture(loaded.program())
    except CaptureFailed:
        graph = None
    return first_request(loaded, graph, chosen, environment(chosen))


def _request_of_run(step: str, path: Path, number: int | None) -> "Request":
    """A step that could come next in a run."""
    from evokernel.attempt import Stage
    from evokernel.graphs.preview import next_request
    from evokernel.record import RunRecord

    record = RunRecord.open(path)
    stage = Stage.DRAFT if step in {"draft", "repair"} else Stage.REFINE
    return next_request(record, stage, _parents(record, step, number))


def _parents(record: "RunRecord", step: str, number: int | None) -> "tuple[Attempt, ...]":
    """The attempts that the step is about.

    Raises:
        ConfigError: the run has none of that kind.
    """
    if step == "draft":
        return ()
    wants_failed = step == "repair"
    known = {a.proposal.candidate.sha: a for a in reversed(record.attempts())}
    fitting = [a for a in known.values() if a.evaluation.status.is_feasible is not wants_failed]
    if number is not None:
        fitting.sort(key=lambda a: a.number != number)
        if not fitting or fitting[0].number != number:
            raise ConfigError(
                f"attempt {number} of `{record.id}` is none to {step}; expected one that "
                f"{'failed' if wants_failed else 'passed'}"
            )
    needed = 2 if step == "recombine" else 1
    if len(fitting) < needed:
        kind = "failed" if wants_failed else "right"
        raise ConfigError(
            f"`{record.id}` has {len(fitting)} {kind} attempts, to {step} takes {needed}; expected "
            "another run"
        )
    return tuple(fitting[:needed])
