"""Owns the options by which experiences of the memory are narrowed down."""

from typing import Annotated, get_args

import typer

from evokernel.cli import options
from evokernel.cli.choices import choice
from evokernel.memory.experience import ExperienceStatus, Kind

KindOption = Annotated[
    str | None,
    choice("--kind", get_args(Kind), "Only this kind: " + ", ".join(get_args(Kind)) + "."),
]
StatusOption = Annotated[
    str | None,
    choice(
        "--status",
        tuple(ExperienceStatus),
        "Only this status: " + ", ".join(ExperienceStatus) + ".",
    ),
]
FamilyOption = Annotated[
    str | None, typer.Option("--family", metavar="NAME", help="Only this family of tasks.")
]
BackendOption = Annotated[
    str | None,
    choice(
        "--backend",
        (*options.BACKENDS, "neutral"),
        "Only this backend; neutral notes serve all.",
    ),
]
