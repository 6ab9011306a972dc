"""Owns how the package is read for the reference: as text, without importing it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

Find = Callable[[str], Any]
"""What a dotted name stands for, as griffe describes it."""


def reader(package: str, root: Path = ROOT) -> Find:
    """A way to find what a package below `root` holds."""
    from griffe import GriffeLoader

    loaded = GriffeLoader(search_paths=[root]).load(package, submodules=True)
    return lambda name: defined(loaded[name.partition(".")[2]])


def reader_of(config: Any) -> Find:
    """The same for the package of the site, which mkdocstrings reads once."""
    handler = config.plugins["mkdocstrings"].get_handler("python")
    options = handler.get_options({})
    return lambda name: defined(handler.collect(name, options))


def defined(described: Any) -> Any:
    """What an imported name stands for, where it is defined."""
    return described.final_target if described.is_alias else described
