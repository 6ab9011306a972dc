"""Owns where the memory lies that a command was pointed at, and its JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evokernel.config import MemoryConfig, home

if TYPE_CHECKING:
    from evokernel.memory.store import Memory


def path(memory: str | None) -> Path:
    """The folder that `--memory` names, or the user's own."""
    return Path(memory).expanduser() if memory else home() / "memory"


def place(memory: str | None) -> str:
    """The same for messages."""
    return f"`{path(memory)}`"


def opened_at(
    memory: str | None, to_repair: bool = False, settings: Mapping[str, Any] | None = None
) -> "Memory":
    """Open it, with settings of `MemoryConfig` that are not None; a new one is not made.

    Raises:
        StoreError: missing, damaged or locked.
    """
    from evokernel.memory.store import Memory

    named = {name: value for name, value in (settings or {}).items() if value is not None}
    config = MemoryConfig(path=path(memory), **named)
    return Memory.open(config, create=False, to_repair=to_repair)


def print_json(value: Any) -> None:
    """Print plain values for programs."""
    typer.echo(json.dumps(value, indent=2))
