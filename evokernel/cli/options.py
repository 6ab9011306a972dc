"""Owns the options that several commands share, so that they look and mean the same everywhere."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, get_args

import typer

from evokernel.attempt import Backend as BackendName


def one_of(name: str, known: Iterable[str]) -> Callable[[str], str]:
    """A check for an option's value that suggests the nearest of the known ones.

    Raises (when called):
        ConfigError: another value.
    """
    values = tuple(known)

    def check(value: str) -> str:
        if value in values:
            return value
        from evokernel.errors import ConfigError
        from evokernel.task.constants import nearest

        expected = ", ".join(f"`{known}`" for known in values)
        raise ConfigError(
            f"`{name}` cannot be `{value}`; expected one of {expected}.{nearest(value, values)}"
        )

    return check


def _policy(value: str | None) -> str | None:
    from evokernel.memory.policies import POLICIES

    return value and one_of("--policy", POLICIES)(value)


BACKENDS = get_args(BackendName)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print every event and the result as JSON lines.")
]
Backend = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=one_of("--backend", BACKENDS),
        help="Language of the kernels: cpp (C++ with OpenMP).",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=one_of("--device", ("cpu", "cuda")),
        help="Whose sizes the built-in tasks take: cpu or cuda.",
    ),
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
    typer.Option(
        metavar="NAME",
        callback=_policy,
        help="How memory chooses what to show: none, random, similarity or evokernel.  "
        "[default: evokernel]",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Measure roughly, within about a second.")]
RunsDir = Annotated[Path, typer.Option(metavar="FOLDER", help="Where run folders lie.")]
Threads = Annotated[int, typer.Option(min=0, metavar="N", help="CPU threads; 0 is all.")]
TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="Name of a built-in task, or path of a task file.")
]

RUNS = Path("runs")
"""The default of `--runs-dir`."""
