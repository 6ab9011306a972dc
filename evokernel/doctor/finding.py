"""Owns `Finding`: what one check found, and what to do about it."""

from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from evokernel.frozen import Frozen

State = Literal["ok", "warning", "missing"]
Fact = bool | int | float | str | tuple[str, ...] | None
Facts = dict[str, Fact]


class Settings(Frozen):
    """The places and choices that the checks look at, as a run would resolve them."""

    runs: Path
    """Folder that receives run folders."""
    home: Path
    """Folder of cache, memory and tracebacks."""
    memory: Path
    """Folder of the memory."""
    keys: tuple[str, ...]
    """Names, never values, of the keys in the environment."""

    @property
    def cache(self) -> Path:
        """Folder of built kernels and measured peaks."""
        return self.home / "cache"


class Finding(Frozen):
    """What one check found."""

    name: str
    """The check."""
    state: State
    """`ok`; `warning`: it works, with the limit that is told; `missing`: it does not work."""
    found: str
    """What is there, or what is wrong, in one line."""
    advice: str = ""
    """What to do where it is not ok."""
    is_required: bool = False
    """While this is missing no run works with the present settings; filled by `examine`."""
    facts: Facts = {}
    """The same for programs; the keys of a check never depend on what it found."""

    @model_validator(mode="after")
    def _say_what_to_do(self) -> Self:
        if self.state != "ok" and not self.advice:
            raise ValueError(f"the finding `{self.name}` is not ok and gives no advice")
        return self

    @property
    def stops_runs(self) -> bool:
        """Whether no run works because of it."""
        return self.is_required and self.state == "missing"


def in_one_line(text: str) -> str:
    """A message without its line breaks."""
    return " ".join(text.split())
