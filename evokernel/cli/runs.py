"""Owns how a run, or a file in its place, is named on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evokernel.cli import completion
from evokernel.errors import RecordError

if TYPE_CHECKING:
    from evokernel.config import BenchConfig
    from evokernel.export.subject import Subject

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        autocompletion=completion.runs,
        help="Run folder, or its name below --runs-dir.",
    ),
]
RunOrFile = Annotated[
    str,
    typer.Argument(
        metavar="RUN|FILE",
        autocompletion=completion.runs,
        help="Run folder or its name, a candidate with `ModelNew`, or an exported file.",
    ),
]
CandidateTask = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="TASK",
        autocompletion=completion.tasks,
        help="What a candidate is for: a name or a task file.",
    ),
]


def found(run: str, runs_dir: Path) -> Path:
    """The folder of a run that is named by its path or by its id.

    Raises:
        RecordError: There is none.
    """
    from evokernel.task.constants import nearest

    for path in (Path(run), runs_dir / run):
        if path.is_dir():
            return path
    known = [file.parent.name for file in runs_dir.glob("*/run.json")]
    raise RecordError(
        f"there is no run `{run}`; expected the path of a run folder, or the name of one in "
        f"`{runs_dir}`.{nearest(Path(run).name, known)}"
    )


def subject(where: str, runs_dir: Path, task: str | None, bench: "BenchConfig") -> "Subject":
    """What is named: a run, or a file (with the task and the config that the command names).

    Raises:
        UsageError: It is neither, or a file without a task.
    """
    from evokernel.export.subject import of_file, of_run

    path = Path(where).expanduser()
    if path.is_file() or path.suffix == ".py":
        return of_file(path, task, bench)
    return of_run(found(where, runs_dir))
