"""Owns the reading of the catalogue of optimisation techniques, `techniques.toml`."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

from evokernel.attempt import Backend
from evokernel.frozen import Frozen

Bottleneck = Literal["memory", "compute", "latency", "launch", "contention", "unknown"]


class Technique(Frozen):
    """A named optimisation."""

    name: str
    """As it stands in plans, proposals and experiences, e.g. `online-softmax`."""
    title: str
    """A few words."""
    does: str
    """What changes in the kernel."""
    helps: str
    """When it makes a kernel faster."""
    costs: str
    """What it costs, and when it makes a kernel slower."""
    bottlenecks: tuple[Bottleneck, ...]
    """What binds the kernels that it helps, as `Profile.bound_by`."""
    families: tuple[str, ...] = ()
    """Families of operator graphs that it is for; empty for all."""
    backends: tuple[Backend, ...]
    """Languages in which it can be written."""
    is_algorithm: bool = False
    """Kernels with and without it are different algorithms, not tunings of one: each is a niche of
    the search."""

    def suits(self, family: str, backend: Backend) -> bool:
        """Whether it is for this kind of operator graph and language."""
        return backend in self.backends and (not self.families or family in self.families)


class Catalogue(Mapping[str, Technique]):
    """Every known technique by name, in the order of the file."""

    def __init__(self, techniques: Mapping[str, Technique]) -> None:
        self._techniques = dict(techniques)

    def __getitem__(self, name: str) -> Technique:
        """The technique of that name."""
        return self._techniques[name]

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._techniques)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._techniques)


@cache
def catalogue() -> Catalogue:
    """Read the catalogue; the first call parses the file."""
    text = (files("evokernel.proposers") / "techniques.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)
    return Catalogue({name: Technique(name=name, **entry) for name, entry in entries.items()})
