"""Owns what a process of ours begins with: it runs the very package that its parent runs."""

import sys
from collections.abc import Iterable
from pathlib import Path

from evokernel.config import python_path


def entry(module: str, path: Iterable[Path] = ()) -> str:
    """Python that finds this package and what it needs, then calls `main` of a module of it.

    Args:
        module: Its full name.
        path: Folders that are looked at before the user's and the installed ones.
    """
    installed = [folder for folder in sys.path if folder.endswith("-packages")]
    places = [str(package_folder().parent), *map(str, path), *python_path(), *installed]
    return (
        "import sys\n"
        f"sys.path[:0] = [place for place in {places!r} if place not in sys.path]\n"
        f"from {module} import main\n"
        "main()\n"
    )


def package_folder() -> Path:
    """The folder of the package `evokernel`."""
    return Path(__file__).resolve().parent.parent
